"""Findings about start-up and memory. No inference gains by them: what they cost is measured, not predicted."""

from collections.abc import Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.base.units import shown_mib, shown_ms

# What a person notices: half a tenth of a second, and some ten megabytes.
_LEAST_MS = 50.0
_LEAST_BYTES = 32 << 20
# A part that is this much of the whole is what to look at first.
_MOST = 0.5
# XNNPACK packs weights into a second copy, so that twice what the file needs is usual; this much more is not.
_FAR_ABOVE = 1.5
# A first inference takes longer than later ones by what it does once; this many times is more than that.
_SLOW_FIRST = 3.0
_WEIGHT_CACHE = "Try `weight_cache: true` in a config: delegates with the same weights then share packed ones."


def memory_growth(e: Evidence) -> Iterator[Finding]:
    """Yield findings about a process that takes more memory with every inference."""
    memory = e.measured.memory
    if memory is None or not memory.leak or memory.growth_per_execution_bytes is None:
        return
    each = shown_mib(memory.growth_per_execution_bytes)
    yield e.measurement(
        FindingKind.MEMORY_GROWTH,
        "memory grows with every inference: a leak",
        f"{each} an inference",
        "Look for an operator or a library that allocates and does not free: a custom operator, a preloaded library, "
        "outputs that are kept. Run with heaptrack or LeakSanitizer.",
        [
            f"{shown_mib(memory.growth_bytes or 0)} over the inferences after the first, in the middle of "
            f"{memory.processes} processes",
            f"after the first inference {shown_mib(memory.after_first_bytes or 0)}, "
            f"after the last {shown_mib(memory.after_last_bytes or 0)}",
        ],
    )


def packing(e: Evidence) -> Iterator[Finding]:
    """Yield a finding where loading the method, mostly packing weights, takes most of the time to the first result."""
    start, memory = e.measured.startup, e.measured.memory
    if start is None or (e.program is not None and not e.program.all_constant_bytes):
        return
    load, whole = start.method.median_ms, start.first_result.median_ms
    if load < _LEAST_MS or load < _MOST * whole:
        return
    added = memory.packing_bytes if memory is not None else None
    said = f"loading adds {shown_mib(added)} of memory that is no file's" if added is not None else ""
    weights = f"weights in the .pte: {shown_mib(e.program.all_constant_bytes)}" if e.program is not None else ""
    step = f"Load the model once and keep it. A smaller dtype packs less. {_weight_cache(e)}"
    yield e.measurement(
        FindingKind.PACKING,
        f"loading the method, with packing weights, takes {load / whole:.0%} of the time to the first result",
        f"{shown_ms(load)} of {shown_ms(whole)}",
        step.strip(),
        [said, weights],
    )


def _weight_cache(e: Evidence) -> str:
    """Return what to try where delegates may share weights and do not."""
    delegates = sum(each.delegates for each in e.program.delegates) if e.program is not None else 0
    return _WEIGHT_CACHE if delegates > 1 and e.measured.weight_cache != "on" else ""


def first_inference_memory(e: Evidence) -> Iterator[Finding]:
    """Yield a finding where the first inference allocates much more than was planned at export: delegates need it."""
    unplanned, memory = _unplanned(e), e.measured.memory
    if e.measured.phase is not None and e.measured.phase.kind == "decode":
        return  # what comes first there is filling the cache
    if memory is None or unplanned is None or unplanned < _LEAST_BYTES or unplanned < _MOST * memory.peak_bytes / 2:
        return
    step = "Look for the largest intermediate value inside a delegate: a smaller resolution, batch or dtype shrinks it."
    if e.measured.workspace == "disabled":
        step += " `workspace: global` in a config lets delegates share this memory."
    planned = f", {shown_mib(e.program.planned_bytes)} of it planned" if e.program is not None else ""
    yield e.measurement(
        FindingKind.FIRST_INFERENCE_MEMORY,
        f"the first inference takes {shown_mib(memory.first_inference_bytes or 0)} more memory than loading{planned}",
        f"{shown_mib(unplanned)} of a peak of {shown_mib(memory.peak_bytes)}",
        step,
        [
            f"after loading {shown_mib(memory.after_load_bytes or 0)}, "
            f"after the first inference {shown_mib(memory.after_first_bytes or 0)}",
            f"XNNPACK's workspace: {e.measured.workspace or 'not known'}",
        ],
    )


def _unplanned(e: Evidence) -> int | None:
    """Return what the first inference adds beyond the planned arenas, which it is the first to touch."""
    memory = e.measured.memory
    if memory is None or memory.first_inference_bytes is None:
        return None
    return memory.first_inference_bytes - (e.program.planned_bytes if e.program is not None else 0)


def peak_memory(e: Evidence) -> Iterator[Finding]:
    """Yield findings about a peak far above what the file accounts for, for another reason than the first inference."""
    memory = e.measured.memory
    if memory is None or e.program is None or memory.before_load_bytes is None:
        return
    expected = memory.before_load_bytes + e.program.planned_bytes + e.program.all_constant_bytes
    excess = memory.peak_bytes - expected - max(0, _unplanned(e) or 0)
    if memory.leak or excess < _LEAST_BYTES or excess < _FAR_ABOVE * expected:
        return
    added = memory.packing_bytes or 0
    step = "A smaller dtype needs less."
    # A packed copy is as large as the weights, twice that where fp16 is computed in fp32.
    if min(added, 2 * e.program.all_constant_bytes) > _MOST * excess:
        step = f"Packed weights are a copy of the weights: a smaller dtype shrinks both. {_weight_cache(e)}"
    yield e.measurement(
        FindingKind.PEAK_MEMORY,
        f"the peak of {shown_mib(memory.peak_bytes)} is {memory.peak_bytes / expected:.1f} times what the .pte needs",
        f"{shown_mib(excess)} more",
        step.strip(),
        [
            f"runner {shown_mib(memory.before_load_bytes)}, planned {shown_mib(e.program.planned_bytes)}, "
            f"weights {shown_mib(e.program.all_constant_bytes)}",
            f"loading adds {shown_mib(added)} that is no file's",
        ],
    )


def slow_first_inference(e: Evidence) -> Iterator[Finding]:
    """Yield findings about a first inference that takes much longer than later ones, which a user waits for."""
    start, latency = e.measured.startup, e.measured.latency
    if start is None or latency is None:
        return
    first, later = start.first_inference.median_ms, latency.median_ms
    if first - later < _LEAST_MS or first < _SLOW_FIRST * later:
        return
    yield e.measurement(
        FindingKind.SLOW_FIRST_INFERENCE,
        f"the first inference takes {first / later:.1f} times as long as later ones",
        f"{shown_ms(first)} instead of {shown_ms(later)}",
        "Run one inference when the model is loaded, before a user waits for it.",
        [f"{start.launches} launches; the .pte was {start.page_cache} in the page cache"],
    )
