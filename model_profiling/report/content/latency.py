"""Latency: the distribution of untraced executions, comparisons with intervals, and whether to believe them."""

from model_profiling.analysis.metrics import ExperimentMetrics
from model_profiling.analysis.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Cell, Number, Paragraph, Picture, Section, Table
from model_profiling.report.words import agreement_sentence, comparison_sentence, tracer_cost

_COLUMNS = ("experiment", "switched off", "median", "MAD", "p95", "runs", "launches", "tracer cost")
_SPREAD = ("experiment", "min", "p90", "p99", "max", "CV", "between launches", "drift", "outliers")


def section(run: RunView) -> Section | None:
    metrics = run.summary.metrics
    if metrics is None:
        return None
    blocks: list[Block] = []
    if run.measured:
        timed = {name: experiment for name, experiment in metrics.experiments.items() if experiment.latency}
        if timed:
            blocks.append(Table("latency", _COLUMNS, [_row(*item) for item in timed.items()]))
            blocks.append(Table("spread", _SPREAD, [_spread(*item) for item in timed.items()]))
        sentences = [comparison_sentence(comparison) + "." for comparison in metrics.comparisons]
        sentences += [
            f"{name}: {warning}."
            for name, experiment in metrics.experiments.items()
            for warning in (experiment.latency.warnings if experiment.latency else [])
        ]
        sentences += [
            f"{name}: only traced runs exist; latency includes tracer overhead."
            for name, experiment in metrics.experiments.items()
            if experiment.latency and experiment.latency_source != "untraced executions"
        ]
        if sentences:
            blocks.append(Bullets(sentences))
        if any(run.turns.values()):
            blocks.append(
                Picture(
                    "latency", "Every execution by turn. Each experiment has its own axis, so that drift is visible."
                )
            )
    blocks += _outputs(run)
    return Section("latency", "Latency" if run.measured else "Outputs", blocks) if blocks else None


def _row(name: str, experiment: ExperimentMetrics) -> tuple[Cell, ...]:
    latency = experiment.latency
    assert latency is not None
    return (
        name,
        ", ".join(experiment.disabled) or "nothing",
        Number(numbers.ms(latency.median_ms), latency.median_ms),
        Number(numbers.spread(latency.mad_percent), latency.mad_percent),
        Number(numbers.ms(latency.p95_ms), latency.p95_ms),
        Number(str(latency.runs), latency.runs),
        Number(str(latency.launches), latency.launches),
        Number(tracer_cost(experiment), experiment.tracer_overhead_percent),
    )


def _spread(name: str, experiment: ExperimentMetrics) -> tuple[Cell, ...]:
    latency = experiment.latency
    assert latency is not None
    return (
        name,
        *_times(latency.min_ms, latency.p90_ms, latency.p99_ms, latency.max_ms),
        Number(f"{latency.cv_percent:.1f} %", latency.cv_percent),
        Number(numbers.spread(latency.launch_spread_percent), latency.launch_spread_percent),
        Number(numbers.percent(latency.drift_percent), latency.drift_percent),
        Number(str(latency.outliers), latency.outliers),
    )


def _times(*values: float) -> list[Number]:
    return [Number(numbers.ms(value), value) for value in values]


def _outputs(run: RunView) -> list[Block]:
    """Whether the outputs agree: speed without it is worth nothing."""
    metrics = run.summary.metrics
    assert metrics is not None
    items = [f"Outputs of {agreement_sentence(agreement)}." for agreement in metrics.agreements]
    items += [
        f"{name} gave {experiment.nonfinite_outputs} outputs that are NaN or Inf."
        for name, experiment in metrics.experiments.items()
        if experiment.nonfinite_outputs
    ]
    return [Bullets(items)] if items else [Paragraph("Outputs were not compared with anything.")]
