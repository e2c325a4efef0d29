"""The numbers that people know of language models, by phase: time to the first token, tokens per second. And the time
of a transformer by kind of layer: attention, MLP, head, norm, cache, embedding, and the rest.

The path of an operator's module tells, word by word and from the inside out: `layers.3.attention_norm` is a norm, and
`layers.3.attention.wq` is attention. Where no ETRecord gives a path, what the operator is tells, and of a linear layer
what it feeds: attention's projections lead to attention or come from it, and the largest last one is the head. Where
neither does, the kind is unknown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.latency import Latency
from model_profiling.formats.graph_terms import base_name
from model_profiling.store.run_directory import Phase, PhaseKind

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph
    from model_profiling.formats.pte.dataflow import DataFlow

# What the numbers leave out, said wherever they are shown.
LEFT_OUT = "of a warm process, without tokenizer and sampling"


class PhaseMetrics(msgspec.Struct, frozen=True):
    """One phase of a language model; what it does not measure is None.

    `ttft_ms` is how long a prompt of `tokens` tokens takes until the first token can be sampled. `tpot_ms` is the time
    for each token after it, with its 95th percentile. Tokens per second are from medians.
    """

    label: str
    kind: PhaseKind
    tokens: int
    depth: int
    ttft_ms: float | None = None
    prefill_token_per_sec: float | None = None
    tpot_ms: float | None = None
    tpot_p95_ms: float | None = None
    decode_token_per_sec: float | None = None

    @property
    def token_per_sec(self) -> float | None:
        return self.prefill_token_per_sec if self.kind == "prefill" else self.decode_token_per_sec


def phase_metrics(phase: Phase | None, latency: Latency | None) -> PhaseMetrics | None:
    if phase is None:
        return None
    known = PhaseMetrics(phase.label, phase.kind, phase.tokens, phase.depth)
    if latency is None:
        return known
    rate = phase.tokens_read * 1000 / latency.median_ms
    if phase.kind == "prefill":
        # After tokens that were read before, it is not the first token that is waited for.
        first = latency.median_ms if not phase.depth else None
        return msgspec.structs.replace(known, ttft_ms=first, prefill_token_per_sec=rate)
    return msgspec.structs.replace(
        known, tpot_ms=latency.median_ms, tpot_p95_ms=latency.p95_ms, decode_token_per_sec=rate
    )


class DepthCost(msgspec.Struct, frozen=True):
    """What one token costs after `depth` others: attention with its cache, and the whole."""

    depth: int
    attention_ms: float
    execute_ms: float


LayerKind = Literal["attention", "MLP", "head", "norm", "cache", "embedding", "other", "runtime", "unknown"]
KINDS: tuple[LayerKind, ...] = (
    *("attention", "MLP", "head", "norm", "cache", "embedding"),
    *("other", "runtime", "unknown"),
)

# What a part of a path says, the particular before the general: `attention_norm` is a norm, `kv_cache` a cache.
_WORDS: tuple[tuple[str, LayerKind], ...] = (
    (r"norm\d*$|norm_|^ln_?(\d+|f)?$|layernorm|rmsnorm", "norm"),
    (r"cache", "cache"),
    (r"rotary|rope|freqs", "attention"),
    (r"embed|^wte$|^wpe$", "embedding"),
    (r"attn|attention|sdpa", "attention"),
    (r"mlp|ffn|feed_?forward|experts?\b|moe|^router$", "MLP"),
)
# The last layer of all; inside a block the same words mean something else (`attention.output`).
_HEADS = ("output", "lm_head", "head", "logits", "embed_out", "classifier", "score")
_CONTAINERS = ("model", "transformer", "decoder", "language_model", "text_model", "backbone", "base_model")

_ATTENTION = ("custom_sdpa", "sdpa_with_kv_cache", "custom_quantized_sdpa", "scaled_dot_product_attention")
# `copy_` writes back a buffer that the program keeps: of a transformer, its cache.
_CACHE = ("update_cache", "update_cache_with_indices", "copy_")
_WRITES = ("index_put", "index_put_", "index_copy", "slice_scatter")
LINEAR = ("FullyConnected", "linear", "addmm", "mm")


def layer_kinds(breakdown: Breakdown, graph: "ModelGraph | None" = None) -> dict[LayerKind, float]:
    """Return milliseconds of a typical execution by kind, adding up to the whole; kinds that took none are left out."""
    fed = _by_data_flow(graph) if graph is not None else {}
    found = dict.fromkeys(KINDS, 0.0)
    for row, entry in enumerate(breakdown.instances):
        found[kind_of(entry) or fed.get(row) or "unknown"] += entry.ms
    return {kind: ms for kind, ms in found.items() if ms > 0}


def kind_of(entry: InstanceTime) -> LayerKind | None:
    """Return the kind that an operator's module or the operator itself tells; None if neither does."""
    if entry.where == "runtime":
        return "runtime"
    name = base_name(entry.operator)
    if name in _CACHE:
        return "cache"
    if entry.source is not None and entry.source.module:
        kind = of_module(entry.source.module)
        return "cache" if kind == "attention" and name in _WRITES else kind
    if name in _ATTENTION:
        return "attention"
    return "embedding" if name.startswith("embedding") else None


def of_module(path: str) -> LayerKind:
    """Return the kind of a module by the words of its path, innermost first."""
    parts = [part for part in path.split(".") if part and not part.isdigit()]
    for part in reversed(parts):
        word = part.lower()
        if word in _HEADS:
            outer = [other for other in path.split(".")[:-1] if other and other not in _CONTAINERS]
            if part is parts[-1] and not outer:
                return "head"
            continue
        kind = next((kind for pattern, kind in _WORDS if re.search(pattern, word)), None)
        if kind is not None:
            return kind
    return "other"


def _by_data_flow(graph: "ModelGraph") -> dict[int, LayerKind]:
    """Return linear layers by what they feed, where the program has attention as one operator."""
    flow = graph.flow
    attention = [position for position, step in enumerate(flow.steps) if base_name(step.op) in _ATTENTION]
    linear = {position for position, step in enumerate(flow.steps) if base_name(step.op) in LINEAR}
    if not attention or not linear:
        return {}
    # Keys and values reach attention through the cache, whose buffer is written in place.
    cache = [position for position, step in enumerate(flow.steps) if base_name(step.op) in _CACHE]
    sources = {n: tuple(t.source for t in step.inputs if t.source >= 0) for n, step in enumerate(flow.steps)}
    projections = set(_reached([*attention, *cache], sources, linear))
    projections |= set(_reached(attention, flow.consumers, linear))
    kinds: dict[int, LayerKind] = {n: "attention" if n in projections else "MLP" for n in linear}
    head = max(linear)
    if head not in projections and _width(flow, head) == max(_width(flow, position) for position in linear):
        kinds[head] = "head"
    return {graph.rows[position]: kind for position, kind in kinds.items() if position in graph.rows}


def _reached(starts: Iterable[int], neighbours: Mapping[int, tuple[int, ...]], stops: set[int]) -> Iterator[int]:
    """Yield the first of `stops` on every way that leads away from the starts."""
    seen: set[int] = set()
    waiting = list(starts)
    while waiting:
        for other in neighbours.get(waiting.pop(), ()):
            if other in stops:
                yield other
            elif other not in seen:
                seen.add(other)
                waiting.append(other)


def _width(flow: "DataFlow", position: int) -> int:
    outputs = flow.steps[position].outputs
    return outputs[0].shape[-1] if outputs and outputs[0].shape else 0
