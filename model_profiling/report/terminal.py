"""The table after a run: one screen, aligned, plain in a pipe."""

import os
import sys

from model_profiling.analysis.metrics import ExperimentMetrics, Metrics
from model_profiling.report.words import agreement_sentence, comparison_sentence
from model_profiling.run_directory import Manifest, RunDirectory

_BOLD, _GREEN, _RED, _DIM, _END = "\033[1m", "\033[32m", "\033[31m", "\033[2m", "\033[0m"


def print_run(directory: RunDirectory, manifest: Manifest, metrics: Metrics) -> None:
    sys.stdout.write(render_run(directory, manifest, metrics, colour=_wants_colour()))


def render_run(directory: RunDirectory, manifest: Manifest, metrics: Metrics, colour: bool) -> str:
    """The run as text: each experiment's latency, what the comparison says, how outputs agree, where the files are."""
    bold, green, red, dim, end = (_BOLD, _GREEN, _RED, _DIM, _END) if colour else ("",) * 5
    cpu = manifest.environment.get("cpu", manifest.environment.get("arch"))
    lines = ["", f"{bold}{metrics.model}{end} on {metrics.platform} ({cpu})", ""]
    lines += _table([_HEADER] + [_row(name, experiment) for name, experiment in metrics.experiments.items()])
    lines.append("")
    for comparison in metrics.comparisons:
        mark = {"faster": green, "slower": red}.get(comparison.verdict, "")
        lines.append(f"  {mark}{comparison_sentence(comparison)}{end if mark else ''}")
    for agreement in metrics.agreements:
        lines.append(f"  {dim}outputs{end}  {agreement_sentence(agreement)}")
    for name, record in manifest.experiments.items():
        if record.failure:
            lines.append(f"  {red}failed{end}   {name}: {record.failure}")
        if metrics.experiments[name].nonfinite_outputs:
            lines.append(
                f"  {red}warning{end}  {name}: {metrics.experiments[name].nonfinite_outputs} outputs are NaN or Inf"
            )
        lines += [f"  {dim}note{end}     {name}: {note}" for note in record.notes]
    lines.append(f"  {dim}files{end}    {directory.path}")
    return "\n".join(lines) + "\n"


_HEADER = ("experiment", "switched off", "median", "MAD", "p95", "runs", "tracer cost")


def _row(name: str, experiment: ExperimentMetrics) -> tuple[str, ...]:
    off = ", ".join(experiment.disabled) or "-"
    latency, overhead = experiment.latency, experiment.tracer_overhead_percent
    cost = f"{overhead:+.1f} %" if overhead is not None else "-"
    if latency is None:
        return (name, off, "-", "-", "-", "-", cost)
    spread = latency.mad_ms / latency.median_ms * 100 if latency.median_ms else 0.0
    return (
        name,
        off,
        f"{latency.median_ms:.3f} ms",
        f"{spread:.1f} %",
        f"{latency.p95_ms:.3f} ms",
        str(latency.runs),
        cost,
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Align columns: words left, numbers right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    aligned = []
    for row in rows:
        cells = [
            f"{cell:<{w}}" if column < 2 else f"{cell:>{w}}"
            for column, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        aligned.append("  " + "  ".join(cells).rstrip())
    return aligned


def _wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
