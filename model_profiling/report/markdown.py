"""Markdown: the pipeline summary, short enough to paste."""

from typing import TYPE_CHECKING

from model_profiling.analysis.dumps import AnalysisSummary
from model_profiling.analysis.metrics import Metrics
from model_profiling.report import metric_columns, numbers
from model_profiling.report.words import agreement_sentence, comparison_sentence

if TYPE_CHECKING:
    from model_profiling.analysis.run_view import RunView


def pipeline_summary(run: "RunView") -> str:
    """`<model_stem>_pipeline_summary.md`: headline, latency, categories, advice, environment."""
    manifest, summary, metrics = run.manifest, run.summary, run.metrics
    partial = ", partial run" if any(record.partial for record in manifest.experiments.values()) else ""
    lines = [f"# {text(summary.model)} on {text(summary.platform)}{partial}", ""]
    lines += [f"- {text(comparison_sentence(comparison))}" for comparison in metrics.comparisons]
    lines += [f"- {text(comparison.shift.sentence)}" for comparison in summary.comparisons]
    lines += [f"- outputs: {text(agreement_sentence(agreement))}" for agreement in metrics.agreements]
    if summary.timing == "measured":
        lines += ["", "## Latency", "", *_latency(metrics), "", "## Where the time goes", "", *_categories(summary)]
        lines += _advice(summary)
    for name, experiment in summary.experiments.items():
        if experiment.coverage is not None:
            lines += [f"- {text(name)}: {text(experiment.coverage.headline)} (kernel_view.md has each)"]
    environment = manifest.environment
    lines += ["", f"CPU: {text(str(environment.get('cpu', environment.get('arch'))))}."]
    lines += [f"Model SHA-256: `{manifest.model.sha256}`."]
    lines += [f"Note: {text(note)}." for note in summary.notes]
    return "\n".join(lines) + "\n"


def _latency(metrics: Metrics) -> list[str]:
    columns = metric_columns.columns("short")
    lines = [row(["experiment", "status", "switched off", *metric_columns.labels(columns), "latency from"])]
    lines += ["|---|---|---|" + "---:|" * len(columns) + "---|"]
    for name, measured in metrics.experiments.items():
        cells = [column.text(measured) for column in columns]
        lines.append(
            row([name, measured.status, metric_columns.switched_off(measured), *cells, measured.latency_source])
        )
    return lines


def _categories(summary: AnalysisSummary) -> list[str]:
    if not summary.experiments:
        return ["Nothing was measured."]
    names = list(summary.experiments)
    lines = [row(["category", *names]), "|---|" + "---:|" * len(names)]
    first = next(iter(summary.experiments.values())).breakdown
    for category in [entry.category for entry in first.categories]:
        entries = [experiment.breakdown.category(category) for experiment in summary.experiments.values()]
        lines.append(row([category, *(f"{numbers.ms(entry.ms)} ({entry.share:.1%})" for entry in entries)]))
    totals = [numbers.ms(experiment.breakdown.execute_ms) for experiment in summary.experiments.values()]
    return [*lines, row(["Method::execute (traced)", *totals])]


def _advice(summary: AnalysisSummary) -> list[str]:
    lines = []
    for name, experiment in summary.experiments.items():
        if experiment.advice:
            lines += ["", f"## What to do next ({text(name)})", ""]
            for place, finding in enumerate(experiment.advice, 1):
                gain = numbers.gain(finding.gain)
                lines.append(f"{place}. **{text(finding.title)}** (predicted gain {gain}). {text(finding.next_step)}")
    return lines


def row(cells: list[str]) -> str:
    return "| " + " | ".join(text(cell) for cell in cells) + " |"


def text(value: str) -> str:
    """Make untrusted text plain in Markdown: no markup, no table breaks, no new lines."""
    for character in "\\`*_{}[]<>|#":
        value = value.replace(character, "\\" + character)
    return " ".join(value.split())
