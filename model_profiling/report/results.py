"""What is written and shown after a run: metrics.json, the pipeline summary, and the table on the terminal."""

import sys

import msgspec

from model_profiling import files
from model_profiling.analysis.metrics import Metrics, measure
from model_profiling.report import summary, terminal
from model_profiling.run_directory import RunDirectory


def refresh(directory: RunDirectory) -> Metrics | None:
    """Compute everything that derives from the run again; None if there is no run yet."""
    if not directory.manifest_path.is_file():
        return None
    manifest = directory.manifest()
    metrics = measure(directory, manifest)
    files.write_json(directory.metrics_path, metrics)
    files.write_json(directory.summary_path(manifest.model.stem, "json"), summary.as_data(manifest, metrics))
    files.write_text(directory.summary_path(manifest.model.stem, "md"), summary.as_markdown(manifest, metrics))
    return metrics


def show(directory: RunDirectory, as_json: bool) -> None:
    """Print the metrics for a machine or the table for a person."""
    metrics = refresh(directory)
    manifest = directory.manifest()
    assert metrics is not None
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(metrics)).decode() + "\n")
    else:
        terminal.print_run(directory, manifest, metrics)
