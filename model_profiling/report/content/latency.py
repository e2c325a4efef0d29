"""Latency: the distribution of untraced executions, comparisons with intervals, and whether to believe them."""

from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import metric_columns
from model_profiling.report.blocks import Block, Bullets, Paragraph, Picture, Row, Section, Table
from model_profiling.report.charts import MOST_PANELS
from model_profiling.report.words import agreement_sentence, comparison_sentence


def section(run: RunView) -> Section | None:
    metrics = run.summary.metrics
    if metrics is None:
        return None
    blocks: list[Block] = []
    if run.measured:
        timed = {name: experiment for name, experiment in metrics.experiments.items() if experiment.latency}
        if timed:
            blocks += [_table("latency", run, timed, "short", "full"), _table("spread", run, timed, "distribution")]
        sentences = [run.labelled(comparison_sentence(comparison)) + "." for comparison in metrics.comparisons]
        sentences += [
            f"{run.label(name)}: {warning}."
            for name, experiment in metrics.experiments.items()
            for warning in (experiment.latency.warnings if experiment.latency else [])
        ]
        sentences += [
            f"{run.label(name)}: only traced runs exist; latency includes tracer overhead."
            for name, experiment in metrics.experiments.items()
            if experiment.latency and experiment.latency_source != "untraced executions"
        ]
        if sentences:
            blocks.append(Bullets(sentences))
        if any(run.turns.values()):
            caption = "Dots: executions; line: medians of turns; triangles: above the axis. Each has its own axis."
            if len(run.turns) > MOST_PANELS:
                caption += f" The first {MOST_PANELS} experiments; of another: --png latency --experiment NAME."
            blocks.append(Picture("latency", caption))
    blocks += _outputs(run)
    return Section("latency", "Latency" if run.measured else "Outputs", blocks) if blocks else None


def _table(key: str, run: RunView, timed: dict[str, ExperimentMetrics], *details: metric_columns.Detail) -> Table:
    columns = metric_columns.columns(*details, phases=bool(run.phases) and "short" in details)
    rows: list[Row] = [
        (run.label(name), *(column.number(measured) for column in columns)) for name, measured in timed.items()
    ]
    return Table(key, ("experiment", *metric_columns.labels(columns)), rows)


def _outputs(run: RunView) -> list[Block]:
    """Return whether the outputs agree: speed without it is worth nothing."""
    metrics = run.summary.metrics
    assert metrics is not None
    items = [f"Outputs of {run.labelled(agreement_sentence(agreement))}." for agreement in metrics.agreements]
    items += [
        f"{run.label(name)} gave {experiment.nonfinite_outputs} outputs that are NaN or Inf."
        for name, experiment in metrics.experiments.items()
        if experiment.nonfinite_outputs
    ]
    return [Bullets(items)] if items else [Paragraph("Outputs were not compared with anything.")]
