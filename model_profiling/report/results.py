"""What derives from a run, written beside it: analysis, metrics, summaries and tables. All of it can be made again."""

import shlex
from collections.abc import Callable

import msgspec

from model_profiling.analysis.categories import CategoryTable, load_table
from model_profiling.analysis.dumps import Analysed
from model_profiling.analysis.latency import Latency
from model_profiling.analysis.metrics import Metrics
from model_profiling.analysis.summary import analyse_run, has_times
from model_profiling.artifacts import KERNEL_VIEW, KERNELS
from model_profiling.derived import DerivedWriter, Outdated
from model_profiling.errors import InputError
from model_profiling.report import kernel_view, markdown, tables
from model_profiling.run_directory import Manifest, RunDirectory, experiment_file


class RobustStats(msgspec.Struct, frozen=True):
    """`…_robust_stats.json`: one experiment's latency and what it was taken from."""

    model: str
    experiment: str
    latency_source: str
    latency: Latency
    tracer_overhead_percent: float | None


def refresh(
    directory: RunDirectory,
    table: CategoryTable | None = None,
    tell: Callable[[Outdated], None] = lambda outdated: None,
) -> Analysed | None:
    """Analyse the run again and write all that derives from it; None if there is no run yet.

    Reports and pictures of an earlier state of the run are removed; `tell` hears of each.
    """
    if not directory.manifest_path.is_file():
        return None
    table = table or load_table()
    writer = DerivedWriter(directory, table.identity)
    manifest = directory.manifest()
    analysed = analyse_run(directory, manifest, table)
    write(writer, directory, manifest, analysed, table)
    for outdated in writer.finish():
        tell(outdated)
    return analysed


def write(
    writer: DerivedWriter, directory: RunDirectory, manifest: Manifest, analysed: Analysed, table: CategoryTable
) -> None:
    """Write all that derives from a run that has been analysed."""
    metrics, summary = analysed.summary.metrics, analysed.summary
    assert metrics is not None
    renew = "analyze {dir}" + (f" --categories {shlex.quote(table.origin)}" if table.origin else "")
    for name in analysed.profiles:
        if has_times(manifest, name):
            _write_experiment(writer, renew, directory, manifest, name, analysed, metrics)
    if any(experiment.coverage is not None for experiment in summary.experiments.values()):
        writer.write_json(directory.path / KERNELS, kernel_view.kernels_data(manifest, summary), renew)
        writer.write_text(directory.path / KERNEL_VIEW, kernel_view.kernel_view(summary), renew)
    writer.write_json(directory.metrics_path, metrics, renew)
    writer.write_json(directory.analysis_path, summary, renew)
    stem = manifest.model.stem
    writer.write_json(directory.summary_path(stem, "json"), _pipeline_summary(manifest, analysed), renew)
    writer.write_text(directory.summary_path(stem, "md"), markdown.pipeline_summary(manifest, summary), renew)


def refreshed(
    directory: RunDirectory,
    table: CategoryTable | None = None,
    tell: Callable[[Outdated], None] = lambda outdated: None,
) -> Analysed:
    """`refresh` where there must be a run."""
    analysed = refresh(directory, table, tell)
    if analysed is None:
        raise InputError(f"{directory.path} holds no run", "Give the directory a pipeline wrote to.")
    return analysed


def _write_experiment(
    writer: DerivedWriter,
    renew: str,
    directory: RunDirectory,
    manifest: Manifest,
    name: str,
    analysed: Analysed,
    metrics: Metrics,
) -> None:
    record, profile = manifest.experiments[name], analysed.profiles[name]
    home, stem = directory.experiment(name), manifest.model.stem

    def place(suffix: str) -> str:
        return experiment_file(stem, name, record.threads, suffix)

    every, breakdown = range(profile.executions), analysed.summary.experiments[name].breakdown
    writer.write_text(home / place("_all_runs_timeline.csv"), tables.timeline_csv(profile, every), renew)
    writer.write_text(home / place("_run0_timeline.csv"), tables.timeline_csv(profile, every[:1]), renew)
    writer.write_text(home / place("_ops_stats.csv"), tables.operators_csv(breakdown), renew)
    measured = metrics.experiments[name]
    if measured.latency is not None:
        stats = RobustStats(stem, name, measured.latency_source, measured.latency, measured.tracer_overhead_percent)
        writer.write_json(home / place("_robust_stats.json"), stats, renew)


def _pipeline_summary(manifest: Manifest, analysed: Analysed) -> dict[str, object]:
    """`<model_stem>_pipeline_summary.json`: what a person would paste, as data."""
    summary = analysed.summary
    return {
        "model": manifest.model,
        "platform": manifest.platform,
        "environment": manifest.environment,
        "status": manifest.status,
        "updated": manifest.updated,
        "metrics": summary.metrics,
        "categories": {name: experiment.breakdown.categories for name, experiment in summary.experiments.items()},
        "shifts": [comparison.shift for comparison in summary.comparisons],
        "advice": {name: experiment.advice for name, experiment in summary.experiments.items()},
        "notes": summary.notes,
    }
