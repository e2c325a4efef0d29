"""The phases of a language model: time to the first token, tokens per second, and how decode slows down with depth."""

from model_profiling.analysis.compare.metrics import ExperimentMetrics, Metrics
from model_profiling.analysis.llm.phase_metrics import LEFT_OUT, PhaseMetrics
from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Cell, Number, Section, Table
from model_profiling.report.words import factor

COLUMNS = ("tokens/s", "time to first token", "time per token", "p95", "peak memory", "faster")


def section(run: RunView) -> Section | None:
    """Return the section of phases; None for what is not a language model, and where no phase was measured."""
    found = rows(run)
    if not found or not run.measured:
        return None
    blocks: list[Block] = [Table("phases", ("phase", "", *COLUMNS), found), Bullets(sentences(run))]
    layers = layer_rows(run)
    if layers:
        blocks.append(Table("layers", ("kind of layer", *layer_heads(run)), layers))
    return Section("phases", "Prefill and decode", blocks)


def rows(run: RunView) -> list[tuple[Cell, ...]]:
    """Return each experiment in the order of the phases, before on top; how much faster stands with the later one."""
    metrics = run.summary.metrics
    if metrics is None:
        return []
    faster = {c.after: factor(c)[0] for c in metrics.comparisons}
    pairs = [(c.before, c.after) for c in metrics.comparisons]
    order = dict.fromkeys([*(name for pair in pairs for name in pair), *metrics.experiments])
    found: list[tuple[Cell, ...]] = []
    for label in run.phases:
        for name in order:
            phase = metrics.experiments[name].phase
            if phase is not None and phase.label == label:
                peak = _peak(metrics.experiments[name])
                found.append((label, without_phase(run, name), *_cells(phase), peak, faster.get(name, "")))
    return found


def _with_layers(run: RunView) -> list[str]:
    experiments = run.summary.experiments
    return [name for name in run.of_interest if name in experiments and experiments[name].layer_kinds]


def layer_heads(run: RunView) -> list[str]:
    return [run.label(name) for name in _with_layers(run)]


def layer_rows(run: RunView) -> list[tuple[Cell, ...]]:
    """Return the time of each kind of layer, phases side by side, in traced executions."""
    names = _with_layers(run)
    found = [run.summary.experiments[name].layer_kinds for name in names]
    rows: list[tuple[Cell, ...]] = []
    for kind in dict.fromkeys(kind for kinds in found for kind in kinds):
        cells = []
        for kinds in found:
            ms, whole = kinds.get(kind, 0.0), sum(kinds.values())
            cells.append(Number(f"{numbers.ms(ms)} ({ms / whole:.0%})" if ms else "-", ms))
        rows.append((kind, *cells))
    return rows


def without_phase(run: RunView, name: str) -> str:
    """Return what to call an experiment where its phase stands beside it."""
    phase = run.phase(name)
    return run.label(name).replace(f" ({phase})", "").replace(f"({phase}, ", "(")


def _cells(phase: PhaseMetrics) -> tuple[Cell, ...]:
    def time(value: float | None) -> Cell:
        return Number(numbers.ms(value), value) if value is not None else ""

    rate = phase.token_per_sec
    known = Number(numbers.rate(rate), rate) if rate is not None else "-"
    return (known, time(phase.ttft_ms), time(phase.tpot_ms), time(phase.tpot_p95_ms))


def _peak(measured: ExperimentMetrics) -> Cell:
    peak = measured.memory.peak_bytes if measured.memory is not None else None
    return Number(numbers.mebibytes(peak), peak) if peak is not None else "-"


def sentences(run: RunView) -> list[str]:
    metrics = run.metrics
    found = [f"Times are {LEFT_OUT}. Tokens are random: no speed depends on which they are."]
    read = run.manifest.config.get("token_file")
    if read:
        found = [f"Times are {LEFT_OUT}. Tokens are those of {read}."]
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
        hint = "" if best else "; `sme2-kit roofs` measures what memory gives"
        found.append(
            f"{run.label(name)}: every token reads {numbers.mebibytes(weights)} of weights, at {rate:.1f} GB/s{part}"
            f"{hint}."
        )
    return found


def _depths(run: RunView, metrics: Metrics) -> list[str]:
    """Return how a token's time grows with the tokens before it, for experiments that differ only in their depth."""
    groups: dict[str, list[tuple[PhaseMetrics, ExperimentMetrics]]] = {}
    for name, measured in metrics.experiments.items():
        if measured.phase is not None and measured.phase.tpot_ms is not None:
            groups.setdefault(without_phase(run, name), []).append((measured.phase, measured))
    found = []
    for label, members in groups.items():
        ordered = sorted((phase for phase, _ in members), key=lambda phase: phase.depth)
        if len(ordered) < 2:
            continue
        first, last = ordered[0], ordered[-1]
        assert first.tpot_ms is not None and last.tpot_ms is not None
        grown = last.tpot_ms / first.tpot_ms
        each = (last.tpot_ms - first.tpot_ms) / (last.depth - first.depth) * 1000
        found.append(
            f"{label}: a token takes {numbers.ms(first.tpot_ms)} after {first.depth} tokens and "
            f"{numbers.ms(last.tpot_ms)} after {last.depth} ({grown:.2f}x; {numbers.ms(each)} for every 1000 tokens of "
            "context)."
        )
    return found
