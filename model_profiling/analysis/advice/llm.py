"""Findings about language models, of their phases only: the head, attention and its cache, memory, and weights.

Every one is from the run's own events and the program's data flow. Where a gain cannot be known the finding is a
measurement: it says what something costs and predicts nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.llm.phases import LINEAR, kind_of
from model_profiling.analysis.sme2.weight_formats import CHECKED, no_kernel, weight_formats
from model_profiling.analysis.timing.categories import is_custom
from model_profiling.analysis.timing.profile import RUNTIME
from model_profiling.base.records import by_key
from model_profiling.base.units import counted, shown_ms
from model_profiling.formats.graph_terms import base_name

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph

# What writes into a buffer that the program keeps between executions, and what makes the new value of one.
_KEEPING = ("copy_", "index_put_")
_CACHE_WRITES = ("index_put", "index_copy", "slice_scatter", "select_scatter", "scatter")
# What runs once per token anyway is not worth a word below these shares of the time.
_MUCH_RUNTIME = 0.1
_MUCH_WEIGHT = 0.2
# Attention at two depths has to differ by more than noise does.
_GROWN = 1.2


def head_of_all_tokens(e: Evidence) -> Iterator[Finding]:
    """Yield a finding where prefill computes logits of every token, and generation needs those of the last."""
    phase = e.phase
    if phase is None or phase.kind != "prefill" or phase.tokens < 2 or e.graph is None:
        return
    linear = {n: step.outputs for n, step in enumerate(e.graph.flow.steps) if base_name(step.op) in LINEAR}
    shapes = {n: outputs[0].shape for n, outputs in linear.items() if outputs and outputs[0].shape}
    # What makes logits is as wide as the vocabulary: the last linear layer, if none is wider.
    head = max(shapes, default=-1)
    row = e.graph.rows.get(head)
    if row is None or row in e.claimed or any(shape[-1] > shapes[head][-1] for shape in shapes.values()):
        return
    # A row for each of several tokens; unfixed sizes count by their bound.
    if not any(size > 1 for size in shapes[head][:-1]):
        return
    yield e.finding(
        FindingKind.HEAD_OF_ALL_TOKENS,
        f"the head computes logits for all {phase.tokens} tokens",
        [row],
        "Let the model take the last token's hidden state before its head: export_llm does so unless "
        "generate_full_logits is set.",
        ["when text is generated, only the last token's logits are read"],
    )


def plain_attention(e: Evidence) -> Iterator[Finding]:
    """Yield findings about attention and its cache written with ordinary operators."""
    if e.phase is None or e.graph is None or any(is_custom(step.op) for step in e.graph.flow.steps):
        return
    copies = _cache_copies(e, e.graph)
    if not copies:
        return
    weights = weight_formats(e.graph)
    known = e.free(lambda entry: kind_of(entry) in ("attention", "cache"))
    rows = sorted({*copies, *(row for row in known if row not in weights)})
    yield e.finding(
        FindingKind.PLAIN_ATTENTION,
        "attention and its cache without llama::custom_sdpa",
        rows,
        "Export with ExecuTorch's own operators for it, llama::custom_sdpa and llama::update_cache: "
        "use_sdpa_with_kv_cache of export_llm, or a model of the zoo.",
        [f"{counted(len(copies), 'operator')} copy the cache or what was read of it: {shown_ms(e.ms(copies))}"],
    )


def _cache_copies(e: Evidence, graph: "ModelGraph") -> list[int]:
    """Return the rows that write a buffer the program keeps, or only move what was written."""
    steps = graph.flow.steps
    movers = set(e.free(lambda entry: entry.category == "Data Movement"))
    moving = {n: row for row, n in graph.steps.items() if row in movers}
    kept = {n for n in moving if base_name(steps[n].op) in _KEEPING}
    made = {tensor.source for n in kept for tensor in steps[n].inputs}
    waiting = [n for n in moving if n in kept or (n in made and base_name(steps[n].op) in _CACHE_WRITES)]
    found = set(waiting)
    while waiting:
        further = [n for n in graph.flow.readers(waiting.pop()) if n in moving and n not in found]
        found.update(further)
        waiting += further
    return sorted(moving[n] for n in found)


def decode_runtime(e: Evidence) -> Iterator[Finding]:
    """Yield findings about ExecuTorch's own time in decode, where all instructions run again for each token."""
    phase = e.phase
    rows = e.free(lambda entry: entry.category == RUNTIME)
    if phase is None or phase.kind != "decode" or e.share(rows) < _MUCH_RUNTIME:
        return
    calls = sum(entry.name == "delegate call" for entry in e.breakdown.instances)
    portable = sum(entry.where == "portable" for entry in e.breakdown.instances)
    yield e.finding(
        FindingKind.DECODE_RUNTIME,
        "ExecuTorch runtime overhead of each token",
        rows,
        "Leave fewer instructions: bring what runs between delegates into them; the passes of export_llm and of "
        "sme2-kit export leave out needless ones.",
        [f"{counted(calls, 'delegate call')} and {counted(portable, 'operator')} outside delegates for each token"],
    )


def decode_is_memory_bound(e: Evidence) -> Iterator[Finding]:
    """Decode reads all weights for one token: where the roofs show it, smaller weights help and threads do not."""
    phase = e.phase
    if phase is None or phase.kind != "decode":
        return
    roofs = {row: roof for row, roof in e.roofs.items() if e.breakdown.instances[row].category == "GEMM"}
    bound = [row for row, roof in roofs.items() if roof.bound == "memory"]
    share = e.share(bound)
    if share < _MUCH_WEIGHT or e.ms(bound) < 0.5 * e.ms(roofs):
        return
    works = [work for row in bound if (work := e.breakdown.instances[row].work) is not None]
    read = sum(work.weight_bytes for work in works)
    rate = read / (e.ms(bound) * 1e6)
    reached = sum(roofs[row].roof_ms for row in bound) / e.ms(bound)
    yield e.measurement(
        FindingKind.MEMORY_BOUND,
        f"decode is bound by memory: it reads {read / 2**20:.1f} MiB of weights for each token",
        f"{share:.0%} of the time",
        "Make weights smaller (int8-dynamic, int4): more threads share the same memory and bring less than in prefill.",
        [
            f"{counted(len(bound), 'matrix operator')} read weights at {rate:.1f} GB/s, "
            f"{reached:.0%} of the best that this CPU reaches"
        ],
    )


def attention_grows(e: Evidence) -> Iterator[Finding]:
    """Yield findings about attention at several depths: what it costs grows with the context, and all else does not."""
    phase = e.phase
    depths = sorted(e.depths, key=lambda cost: cost.depth)
    if phase is None or phase.kind != "decode" or len(depths) < 2 or phase.depth != depths[-1].depth:
        return
    first, last = depths[0], depths[-1]
    grown = last.attention_ms - first.attention_ms
    if not first.attention_ms or last.attention_ms < _GROWN * first.attention_ms or grown < 0.01 * last.execute_ms:
        return
    each = grown / (last.depth - first.depth) * 1000
    title = (
        f"attention grows with the context: {first.attention_ms / first.execute_ms:.0%} of a token after "
        f"{first.depth} tokens, {last.attention_ms / last.execute_ms:.0%} after {last.depth}"
    )
    yield e.measurement(
        FindingKind.ATTENTION_GROWS,
        title,
        f"{shown_ms(each)} more for every 1000 tokens of context",
        "Keep the context as short as the task allows, or export with a sliding window or a quantized cache.",
        [f"after {c.depth} tokens: attention {shown_ms(c.attention_ms)} of {shown_ms(c.execute_ms)}" for c in depths],
    )


def weights_without_sme2(e: Evidence) -> Iterator[Finding]:
    """Yield findings about weights in a format without SME2 kernels; what SME2 would bring is not known."""
    if e.graph is None:
        return
    instances, formats = e.breakdown.instances, weight_formats(e.graph)
    reasons = ((no_kernel(x, instances[row].where == "delegated", CHECKED), row) for row, x in formats.items())
    for why, rows in by_key(reasons).items():
        if not why or e.share(rows) < _MUCH_WEIGHT:
            continue
        kinds = " and ".join(sorted({formats[row] for row in rows}))
        yield e.measurement(
            FindingKind.WEIGHTS_WITHOUT_SME2,
            f"{counted(len(rows), 'operator')} with weights in {kinds} cannot use SME2",
            f"{e.share(rows):.0%} of the time",
            "Export in another format and compare speed and accuracy; sme2-kit kernels shows which kernels run.",
            [why, *e.lines(rows)],
        )
