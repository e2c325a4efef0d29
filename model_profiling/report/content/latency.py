"""Latency: the distribution of untraced executions, comparisons with intervals, and whether to believe them."""

from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import metric_columns, numbers
from model_profiling.report.blocks import Block, Bullets, Paragraph, Picture, Row, Section, Table, bullets
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
        sentences = [f"{run.labelled(comparison_sentence(run.told(c), busy=False))}." for c in metrics.comparisons]
        known = {run.label(name): each.latency for name, each in timed.items() if each.latency}
        sentences += [f"{label}: {warning}." for label, latency in known.items() for warning in latency.warnings]
        sentences += [
            f"{run.label(name)}: only traced runs exist; latency includes tracer overhead."
            for name, experiment in timed.items()
            if experiment.latency_source != "untraced executions"
        ]
        blocks += bullets(sentences)
        if any(run.turns.values()):
            caption = "Dots: executions; line: medians of turns; triangles: above the axis. Each has its own axis."
            if len(run.turns) > MOST_PANELS:
                caption += f" The first {MOST_PANELS} experiments; of another: --png latency --experiment NAME."
            blocks.append(Picture("latency", caption))
    wrong = {run.label(name): each.nonfinite_outputs for name, each in metrics.experiments.items()}
    wrong_outputs = [f"{label} gave {count} outputs that are NaN or Inf." for label, count in wrong.items() if count]
    blocks += bullets([*_agreements(run), *wrong_outputs]) or [Paragraph("Outputs were not compared with anything.")]
    return Section("latency", "Latency" if run.measured else "Outputs", blocks, True, _result(run)) if blocks else None


def _result(run: RunView) -> str:
    agreed = [run.labelled(agreement_sentence(each)) for each in run.metrics.agreements[:1]]
    times = [(name, run.execution_ms(name)) for name in run.shown[:1] if run.measured]
    said = [f"{run.label(name)} {numbers.ms(ms)}" for name, ms in times if ms is not None]
    return "; ".join([*said, *agreed])


def table_section(run: RunView) -> Section | None:
    """Return the latencies alone, with what each was taken from."""
    metrics = run.summary.metrics
    timed = metrics.experiments if metrics is not None and run.measured else {}
    if not timed:
        return None
    measured = _table("latency", run, timed, "short")
    rows: list[Row] = [
        (row[0], each.status, metric_columns.disabled_features(each), *row[1:], each.latency_source)
        for row, each in zip(measured.rows, timed.values(), strict=True)
    ]
    columns = ("experiment", "status", "switched off", *measured.columns[1:], "latency from")
    return Section("latency", "Latency", [Table("latency", columns, rows), Bullets(_agreements(run))])


def _table(key: str, run: RunView, timed: dict[str, ExperimentMetrics], *details: metric_columns.Detail) -> Table:
    columns = metric_columns.columns(*details, phases=bool(run.phases) and "short" in details)
    rows: list[Row] = [
        (run.label(name), *(column.number(measured) for column in columns)) for name, measured in timed.items()
    ]
    return Table(key, ("experiment", *metric_columns.labels(columns)), rows)


def _agreements(run: RunView) -> list[str]:
    """Return whether the outputs agree: speed without it is worth nothing."""
    return [f"Outputs of {run.labelled(agreement_sentence(agreement))}." for agreement in run.metrics.agreements]
