"""What derives from a run, written beside it: analysis, metrics, summaries and tables. All of it can be made again."""

import msgspec

from model_profiling.analysis.advice.finding import Finding
from model_profiling.analysis.compare.comparison import Shift
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.run.summary import has_times
from model_profiling.analysis.timing.breakdown import CategoryTime
from model_profiling.analysis.timing.latency import Latency
from model_profiling.report import kernel_view, markdown
from model_profiling.report.content import kernels
from model_profiling.report.files import tables
from model_profiling.store.artifacts import KERNEL_VIEW, KERNELS, OPERATOR_THREADS, THREADS
from model_profiling.store.derived import DerivedWriter, OutdatedFile
from model_profiling.store.run_directory import LatencySource, ModelRecord, RunStatus, experiment_file


class RobustStats(msgspec.Struct, frozen=True, tag="robust_stats", tag_field="kind"):
    """`…_robust_stats.json`: one experiment's latency and what it was taken from."""

    model: str
    experiment: str
    latency_source: LatencySource
    latency: Latency
    tracer_overhead_percent: float | None
    schema: int = 1
    sources: str | msgspec.UnsetType = msgspec.UNSET


class PipelineSummary(msgspec.Struct, frozen=True, tag="pipeline_summary", tag_field="kind"):
    """`<model_stem>_pipeline_summary.json`: what a person would paste, as data."""

    model: ModelRecord
    platform: str
    environment: dict[str, object]
    status: RunStatus
    updated: str
    metrics: Metrics
    categories: dict[str, list[CategoryTime]]
    shifts: list[Shift]
    advice: dict[str, list[Finding]]
    notes: list[str]
    schema: int = 1
    sources: str | msgspec.UnsetType = msgspec.UNSET


def save(run: RunView) -> list[OutdatedFile]:
    """Write all that derives from a run; returns which files of an earlier state of it that outdates."""
    writer = DerivedWriter(run)
    write_artifacts(run, writer)
    return writer.finish()


def write_artifacts(run: RunView, writer: DerivedWriter) -> None:
    """Write all that derives from a run, apart from reports and pictures, unless one may only read there.

    Of a part of a run nothing is: it would be taken for the whole.
    """
    directory, summary, renew = run.run_directory, run.summary, "analyze {dir}"
    if run.only or not writer.may_keep(run.profiles):
        return
    for name, data in run.remembered().items():
        writer.keep(name, data)
    for name in run.profiles:
        if has_times(run.manifest, name):
            _write_experiment(writer, renew, run, name)
    if any(experiment.coverage is not None for experiment in summary.experiments.values()):
        writer.write_json(run.path / KERNELS, kernel_view.kernels_data(run), renew)
        writer.write_text(run.path / KERNEL_VIEW, kernels.kernel_view(run), renew)
    if run.metrics.scaling is not None:
        writer.write_text(run.path / THREADS, tables.threads_csv(run.metrics.scaling), renew)
        writer.write_text(run.path / OPERATOR_THREADS, tables.operator_threads_csv(summary.operator_scaling), renew)
    writer.write_json(directory.metrics_path, run.metrics, renew)
    writer.write_json(directory.analysis_path, run.full_summary, renew)
    stem = run.manifest.model.stem
    writer.write_json(directory.summary_path(stem, "json"), _pipeline_summary(run), renew)
    writer.write_text(directory.summary_path(stem, "md"), pipeline_summary(run), renew)


def _write_experiment(writer: DerivedWriter, renew: str, run: RunView, name: str) -> None:
    record, profile = run.manifest.experiments[name], run.profiles[name]
    home, stem = run.run_directory.experiment(name), run.manifest.model.stem

    def place(suffix: str) -> str:
        return experiment_file(stem, name, record.threads, suffix)

    every, experiment = range(profile.executions), run.summary.experiments[name]
    held = (experiment.breakdown, experiment.roofline)
    writer.write_text(home / place("_all_runs_timeline.csv"), tables.timeline_csv(profile, every), renew)
    writer.write_text(home / place("_run0_timeline.csv"), tables.timeline_csv(profile, every[:1]), renew)
    writer.write_text(home / place("_ops_stats.csv"), tables.operators_csv(*held), renew)
    writer.write_text(home / place("_operators.csv"), tables.instances_csv(*held), renew)
    measured = run.metrics.experiments[name]
    if measured.latency is not None:
        stats = RobustStats(stem, name, measured.latency_source, measured.latency, measured.tracer_overhead_percent)
        writer.write_json(home / place("_robust_stats.json"), stats, renew)


def _pipeline_summary(run: RunView) -> PipelineSummary:
    manifest, summary = run.manifest, run.summary
    return PipelineSummary(
        model=manifest.model,
        platform=manifest.platform,
        environment=manifest.environment,
        status=manifest.status,
        updated=manifest.updated,
        metrics=run.metrics,
        categories={name: experiment.breakdown.categories for name, experiment in summary.experiments.items()},
        shifts=[comparison.shift for comparison in summary.comparisons],
        advice={name: experiment.advice for name, experiment in summary.experiments.items()},
        notes=summary.notes,
    )


def pipeline_summary(run: RunView) -> str:
    """Return the summary as Markdown."""
    from model_profiling.report.content.whole import summary  # which loads every section of a report

    return markdown.render(summary(run))
