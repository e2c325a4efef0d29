"""The page of `compare MODEL --runtimes ... --html`: the runtimes side by side, in the report's style."""

from pathlib import Path

from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.base import files
from model_profiling.report import charts, numbers, runtime_words, words
from model_profiling.report.blocks import KeyFigure, Report
from model_profiling.report.charts.runtimes import runtimes
from model_profiling.report.content import runtimes as content
from model_profiling.report.drawing.drawing_pool import DrawingPool
from model_profiling.report.drawing.theme import LIGHT

_MADE_FROM = "its numbers are those of `compare --runtimes --json`."


def write(found: RuntimeComparison, artist: DrawingPool, output: Path, title: str = "") -> Path:
    """Write the page, whole or not at all, and say where."""
    drawn = {}
    if runtime_words.measured(found):
        sizes = (charts.WIDE, charts.NARROW)
        drawn = {content.KEY: [artist.svg(runtimes(found, width, LIGHT, "")) for width in sizes]}
    from model_profiling.report import html  # jinja2 takes a moment to load

    made = report(found, title)
    figures = {name: (wide.result(), narrow.result()) for name, (wide, narrow) in drawn.items()}
    files.write_text(output, html.overview(made, figures, _MADE_FROM))
    return output


def report(found: RuntimeComparison, title: str = "") -> Report:
    """Return what the page says, in blocks."""
    compared = [row.comparison for row in found.rows if row.comparison is not None]
    section = content.section(found)
    return Report(
        title or f"{found.model} in {len(found.rows)} runtimes",
        runtime_words.subject(found),
        [],
        [section] if section is not None else [],
        figures=_figures(found),
        subdued=bool(words.busy_sentence(compared)),
    )


def _figures(found: RuntimeComparison) -> list[KeyFigure]:
    """Return the baseline, the fastest of the others, and the factor between them, if they were compared."""
    base = runtime_words.baseline(found)
    others = [row for row in runtime_words.measured(found) if row is not base]
    shown = [row for row in (base, *others[:1]) if row is not None]
    figures = [
        KeyFigure(row.label, numbers.ms(row.latency.median_ms), "median latency, untraced")
        for row in shown
        if row.latency is not None
    ]
    compared = shown[-1].comparison if base is not None and others else None
    if base is None or compared is None:
        return figures
    return [*figures, KeyFigure(f"{shown[-1].label} against {base.label}", *words.factor(compared))]
