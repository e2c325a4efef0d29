"""The trend page: every series as a picture with its steps, and its runs as a table. One file that needs no other."""

import os
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.fleet.history.history_records import Point
from model_profiling.fleet.history.steps import version_changes
from model_profiling.fleet.history.trends import Series, Step, Trend
from model_profiling.report import html, markdown
from model_profiling.report.blocks import (
    Block,
    Bullets,
    Cell,
    KeyFigure,
    Link,
    Number,
    Paragraph,
    Picture,
    Report,
    Section,
    Table,
)
from model_profiling.report.charts.frame import NARROW, WIDE, Spec
from model_profiling.report.charts.trend import Dot, StepMark, add_links, axis_of, trend
from model_profiling.report.drawing.drawing_pool import DrawingPool
from model_profiling.report.drawing.theme import LIGHT, Theme
from model_profiling.report.drawing.vega import PAPER_SCALE, draw
from model_profiling.report.files import report_files
from model_profiling.report.numbers import ms as shown_ms
from model_profiling.report.numbers import percent as shown_percent

# A picture takes a third of a second; of more series the table tells.
_MOST_DRAWN = 24
_MOST_RUNS = 500
_MADE_FROM = "everything here can be made again from the run directories (sme2-kit history trend)."


def write(found: Trend, output: Path) -> list[Path]:
    """Write a page with Markdown and JSON beside it, or one picture, as the file's name ends."""
    if output.suffix in (".svg", ".png"):
        return [_write_picture(found, output)]
    if output.suffix != ".html":
        raise InputError(f"{output} is no page and no picture", "Name it FILE.html, FILE.svg or FILE.png.")
    home = output.parent
    report = page_report(found, home)
    drawn = found.series[:_MOST_DRAWN]
    with DrawingPool() as artist:
        wide = {key(n): artist.draw(picture(series, WIDE, LIGHT, "")) for n, series in enumerate(drawn)}
        narrow = {key(n): artist.svg(picture(series, NARROW, LIGHT, "")) for n, series in enumerate(drawn)}
        text = output.with_suffix(".md")
        pictures = report_files.write_pictures(wide, text, files.write_bytes)
        figures = {}
        for number, series in enumerate(drawn):
            places = [_leads_to(point, home) for point in series.points]
            svgs = wide[key(number)].result().svg, narrow[key(number)].result()
            figures[key(number)] = (add_links(svgs[0], places), add_links(svgs[1], places))
    files.write_text(text, markdown.render(report, pictures))
    files.write_json(output.with_suffix(".json"), found)
    files.write_text(output, html.overview(report, figures, _MADE_FROM))
    return [output, text, output.with_suffix(".json")]


def _write_picture(found: Trend, output: Path) -> Path:
    if len(found.series) != 1:
        names = ", ".join(sorted({series.experiment for series in found.series}))
        raise InputError(
            f"there are {len(found.series)} series, and a picture shows one",
            f"Choose with --experiment ({names}), --platform or --dtype, or write a page: FILE.html.",
        )
    series = found.series[0]
    drawing = draw(picture(series, WIDE, LIGHT, f"{series.title} on {series.device}"), PAPER_SCALE)
    files.write_bytes(output, drawing.png if output.suffix == ".png" else drawing.svg.encode())
    return output


def key(number: int) -> str:
    return f"series_{number + 1}"


def picture(series: Series, width: int, theme: Theme, title: str) -> Spec:
    """Return one series over its runs."""
    edges = [
        StepMark(s.index, s.before_ms, s.after_ms, s.state == "confirmed", f"{s.percent:+.1f} %", s.state)
        for s in series.steps
    ]
    return trend(dots(series), edges, width, theme, title)


def dots(series: Series) -> list[Dot]:
    return [Dot(point.created, point.median_ms, point.spread_ms, _words(point)) for point in series.points]


def _words(point: Point) -> str:
    revision = point.revision
    commit = f", commit {revision.commit[:12]}{' with changes' if revision.dirty else ''}" if revision.commit else ""
    branch = f" on {revision.branch}" if revision.branch else ""
    version = f", ExecuTorch {point.executorch}" if point.executorch else ""
    return f"{point.created[:16]}, {point.label}: {shown_ms(point.median_ms)}{commit}{branch}{version}"


def _leads_to(point: Point, home: Path) -> str:
    """Return the report of a run, as seen from where the page lies; '' if it has none."""
    return os.path.relpath(point.report, home.resolve()) if point.report else ""


def page_report(found: Trend, home: Path) -> Report:
    """Return what the page says, in blocks."""
    models = sorted({series.model for series in found.series})
    steps = [step for series in found.series for step in series.steps]
    confirmed = [step for step in steps if step.state == "confirmed" and step.percent > 0]
    waiting = [step for step in steps if step.state in ("candidate", "program not kept")]
    runs = sum(len(series.points) for series in found.series)
    figures = [
        KeyFigure("series", str(len(found.series)), f"{runs} measurements"),
        KeyFigure("confirmed regressions", str(len(confirmed)), "slower side by side as well"),
        KeyFigure("candidates", str(len(waiting)), "steps that were not compared side by side"),
    ]
    title = f"Trend of {models[0]}" if len(models) == 1 else f"Trends of {len(models)} models"
    days = sorted(point.created[:10] for series in found.series for point in series.points)
    overview: list[Block] = [_overview(found)]
    if (left_out := len(found.series) - _MOST_DRAWN) > 0:
        overview.append(
            Paragraph(f"{left_out} more series have no picture here; choose some with --model or --experiment.")
        )
    sections = [
        Section("series", "All series", overview),
        *(_section(series, number, home) for number, series in enumerate(found.series[:_MOST_DRAWN])),
    ]
    headline = [f"{series.title}: {step.sentence}." for series in found.series for step in series.steps][:8]
    return Report(title, f"{days[0]} to {days[-1]}" if days else "", headline, sections, figures=figures)


def _overview(found: Trend) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for series in found.series:
        first, last = series.points[0], series.points[-1]
        change = (last.median_ms / first.median_ms - 1) * 100
        step = series.steps[-1] if series.steps else None
        rows.append(
            (
                series.title,
                f"{series.device} ({series.platform})",
                Number(str(len(series.points)), len(series.points)),
                Number(shown_ms(last.median_ms), last.median_ms),
                Number(shown_percent(change), change),
                f"{_outcome(step)} on {step.created[:10]}" if step is not None else "none",
            )
        )
    columns = ("series", "device", "runs", "latest", "since the first", "last step")
    return Table("series", columns, rows, sortable=True)


def _outcome(step: Step) -> str:
    what = shown_percent(step.percent)
    return f"{what}, {step.state}" if step.state != "same program" else f"{what}, machine or environment"


def _section(series: Series, number: int, home: Path) -> Section:
    blocks: list[Block] = [
        Paragraph(f"{series.device} ({series.platform}); latency from {series.latency_source}."),
        Picture(
            key(number),
            f"Median latency of each run of {series.title}, in their order (times are UTC), and the steps between "
            f"them. Pale bars: the spread of a run (median absolute deviation). {axis_of(dots(series)).words}",
        ),
    ]
    said = [(step.created[:16], step.sentence) for step in series.steps]
    said += [(series.points[place].created[:16], words) for place, words in version_changes(series.points).items()]
    if said:
        blocks.append(Bullets([f"{when.replace('T', ' ')} UTC: {sentence}." for when, sentence in sorted(said)]))
    if not series.steps and len(series.points) < 10:
        blocks.append(Paragraph("Step detection needs 10 runs, 5 on each side."))
    blocks.append(_runs(series, number, home))
    return Section(key(number), series.title, blocks)


def _runs(series: Series, number: int, home: Path) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for point in reversed(series.points[-_MOST_RUNS:]):
        page = _leads_to(point, home)
        when = point.created[:16].replace("T", " ")
        commit = point.revision.commit[:12] + ("+" if point.revision.dirty else "")
        said = ", ".join(f"{name}={value}" for name, value in sorted(point.labels.items()))
        rows.append(
            (
                Link(when, page) if page else when,
                point.label,
                commit,
                point.revision.branch,
                Number(shown_ms(point.median_ms), point.median_ms, page),
                Number(shown_ms(point.spread_ms), point.spread_ms),
                point.sha256[:12],
                point.executorch or "not known",
                said,
            )
        )
    columns = ("made (UTC)", "label", "commit", "branch", "median", "spread (MAD)", "program", "ExecuTorch", "labels")
    return Table(f"runs_{number + 1}", columns, rows, short=10, sortable=True)
