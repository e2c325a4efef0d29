"""The phases of a language model: time to the first token, tokens per second, and how decode slows down with depth."""

from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.llm.phases import LEFT_OUT, PhaseMetrics
from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Number, Row, Section, Table
from model_profiling.report.words import factor

COLUMNS = ("tokens/s", "time to first token", "time per token", "p95", "peak memory", "faster")


def section(run: RunView) -> Section | None:
    """Return the section of phases; None for what is not a language model, and where no phase was measured."""
    found = rows(run)
    if not found or not run.measured:
        return None
    blocks: list[Block] = [Table("phases", ("phase", "", *COLUMNS), found), Bullets(sentences(run))]
    return Section("phases", "Prefill and decode", [*blocks, *_layers(run)])


def rows(run: RunView) -> list[Row]:
    """Return each experiment in the order of the phases, before on top; how much faster stands with the later one."""
    metrics = run.summary.metrics
    if metrics is None:
        return []
    faster = {c.after: factor(c)[0] for c in metrics.comparisons}
    pairs = [(c.before, c.after) for c in metrics.comparisons]
    order = dict.fromkeys([*(name for pair in pairs for name in pair), *metrics.experiments])
    found: list[Row] = []
    for label, name in ((label, name) for label in run.phases for name in order):
        phase, memory = metrics.experiments[name].phase, metrics.experiments[name].memory
        if phase is not None and phase.label == label:
            peak = numbers.bytes_cell(memory.peak_bytes) if memory is not None else "-"
            found.append((label, without_phase(run, name), *_cells(phase), peak, faster.get(name, "")))
    return found


def _layers(run: RunView) -> list[Block]:
    """Return the time of each kind of layer, phases side by side, in traced executions."""
    known = {n: run.summary.experiments[n].layer_kinds for n in run.of_interest if n in run.summary.experiments}
    found = {run.label(name): kinds for name, kinds in known.items() if kinds}
    rows: list[Row] = []
    for kind in dict.fromkeys(kind for kinds in found.values() for kind in kinds):
        times = [(kinds.get(kind, 0.0), sum(kinds.values())) for kinds in found.values()]
        rows.append((kind, *(Number(f"{numbers.ms(ms)} ({ms / of:.0%})" if ms else "-", ms) for ms, of in times)))
    return [Table("layers", ("kind of layer", *found), rows)] if rows else []


def without_phase(run: RunView, name: str) -> str:
    """Return what to call an experiment where its phase stands beside it."""
    phase = run.phase(name)
    return run.label(name).replace(f" ({phase})", "").replace(f"({phase}, ", "(")


def _cells(phase: PhaseMetrics) -> Row:
    times = (phase.ttft_ms, phase.tpot_ms, phase.tpot_p95_ms)
    rate = numbers.cell(phase.token_per_sec, numbers.rate)
    return (rate, *(numbers.ms_cell(value) if value is not None else "" for value in times))


def sentences(run: RunView) -> list[str]:
    metrics = run.metrics
    read = run.manifest.config.get("token_file")
    tokens = f"those of {read}." if read else "random: no speed depends on which they are."
    found = [f"Times are {LEFT_OUT}. Tokens are {tokens}"]
    kinds = {measured.phase.kind for measured in metrics.experiments.values() if measured.phase is not None}
    if "prefill" not in kinds:
        found.append("Prefill was not run: the time to the first token is not known.")
    if metrics.program is not None and metrics.program.cache_bytes:
        found.append(f"The program keeps {numbers.mebibytes(metrics.program.cache_bytes)} of cache between executions.")
    return [*found, *_depths(run, metrics), *_bandwidth(run, metrics)]


def _bandwidth(run: RunView, metrics: Metrics) -> list[str]:
    """Return how fast decode reads its weights, and which part of the memory's measured bandwidth that is."""
    found = []
    for name in run.of_interest:
        phase = metrics.experiments[name].phase
        if phase is None or phase.tpot_ms is None:
            continue
        works = [entry.work for entry in run.summary.experiments[name].breakdown.instances]
        weights = sum(work.weight_bytes for work in works if work is not None)
        if not weights:
            continue
        rate = weights / phase.tpot_ms / 1e6
        roofline = run.rooflines.get(name)
        best = roofline.bandwidth[-1] if roofline is not None and roofline.bandwidth else None
        part = f", {rate / best:.0%} of the {best:.1f} GB/s that its memory gives" if best else ""
        part = part or "; `sme2-kit roofs` measures what memory gives"
        read = f"every token reads {numbers.mebibytes(weights)} of weights, at {rate:.1f} GB/s"
        found.append(f"{run.label(name)}: {read}{part}.")
    return found


def _depths(run: RunView, metrics: Metrics) -> list[str]:
    """Return how a token's time grows with the tokens before it, for experiments that differ only in their depth."""
    groups: dict[str, list[PhaseMetrics]] = {}
    for name, measured in metrics.experiments.items():
        if measured.phase is not None and measured.phase.tpot_ms is not None:
            groups.setdefault(without_phase(run, name), []).append(measured.phase)
    found = []
    for label, members in groups.items():
        ordered = sorted(members, key=lambda phase: phase.depth)
        if len(ordered) < 2:
            continue
        first, last = ordered[0], ordered[-1]
        assert first.tpot_ms is not None and last.tpot_ms is not None
        each = (last.tpot_ms - first.tpot_ms) / (last.depth - first.depth) * 1000
        ends = [
            f"{numbers.ms(first.tpot_ms)} after {first.depth} tokens",
            f"{numbers.ms(last.tpot_ms)} after {last.depth}",
        ]
        grown = f"{last.tpot_ms / first.tpot_ms:.2f}x; {numbers.ms(each)} for every 1000 tokens of context"
        found.append(f"{label}: a token takes {' and '.join(ends)} ({grown}).")
    return found
