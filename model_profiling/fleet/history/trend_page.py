"""The trend page: every series as a picture with its steps, and its runs as a table. One file that needs no other."""

import os
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.units import counted
from model_profiling.fleet.history.history_records import Point
from model_profiling.fleet.history.steps import version_changes
from model_profiling.fleet.history.trends import Series, Step, Trend
from model_profiling.report import blocks, numbers
from model_profiling.report.charts.frame import WIDE, Spec
from model_profiling.report.charts.trend import Dot, StepMark, add_links, axis_of, trend
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT, Theme
from model_profiling.report.drawing.vega import PAPER_SCALE, draw
from model_profiling.report.files.page_files import Drawings, write_document

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
    home, drawn = output.parent, found.series[:_MOST_DRAWN]

    def pictures(width: int) -> dict[str, Spec]:
        return {key(n): picture(series, width, LIGHT, "") for n, series in enumerate(drawn)}

    def linked(name: str, svg: str) -> str:
        series = next(series for n, series in enumerate(drawn) if key(n) == name)
        return add_links(svg, [_leads_to(point, home) for point in series.points])

    with DrawingPool() as artist:
        text = output.with_suffix(".md")
        drawings = Drawings.start(pictures, artist)
        write_document(page_report(found, home), drawings, output, _MADE_FROM, text, finish=linked)
    files.write_json(output.with_suffix(".json"), found)
    return [output, text, output.with_suffix(".json")]


def _write_picture(found: Trend, output: Path) -> Path:
    if len(found.series) != 1:
        names = ", ".join(sorted({series.experiment for series in found.series}))
        hint = f"Choose with --experiment ({names}), --platform or --dtype, or write a page: FILE.html."
        raise InputError(f"there are {len(found.series)} series, and a picture shows one", hint)
    series = found.series[0]
    drawing = draw(picture(series, WIDE, LIGHT, f"{series.title} on {series.device}"), PAPER_SCALE)
    files.write_bytes(output, drawing.png if output.suffix == ".png" else drawing.svg.encode())
    return output


def key(number: int) -> str:
    return f"series_{number + 1}"


def picture(series: Series, width: int, theme: Theme, title: str) -> Spec:
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
    return f"{point.created[:16]}, {point.label}: {numbers.ms(point.median_ms)}{commit}{branch}{version}"


def _leads_to(point: Point, home: Path) -> str:
    """Return the report of a run, as seen from where the page lies; '' if it has none."""
    return os.path.relpath(point.report, home.resolve()) if point.report else ""


def page_report(found: Trend, home: Path) -> blocks.Report:
    models = sorted({series.model for series in found.series})
    steps = [step for series in found.series for step in series.steps]
    confirmed = [step for step in steps if step.state == "confirmed" and step.percent > 0]
    waiting = [step for step in steps if step.state in ("candidate", "program not kept")]
    runs = sum(len(series.points) for series in found.series)
    figures = [
        blocks.Fact("Series", str(len(found.series)), f"with {counted(runs, 'measurement')}", card=True),
        blocks.Fact("Confirmed", str(len(confirmed)), "regressions: slower side by side as well", card=True),
        blocks.Fact("Candidates", str(len(waiting)), "steps that were not compared side by side", card=True),
    ]
    title = f"Trend of {models[0]}" if len(models) == 1 else f"Trends of {len(models)} models"
    days = sorted(point.created[:10] for series in found.series for point in series.points)
    left_out = f"{len(found.series) - _MOST_DRAWN} more series have no picture here"
    choose = [blocks.Paragraph(f"{left_out}; choose some with --model or --experiment.")]
    overview: list[blocks.Block] = [_overview(found), *(choose if len(found.series) > _MOST_DRAWN else [])]
    sections = [
        blocks.Section("series", "All series", overview),
        *(_section(series, number, home) for number, series in enumerate(found.series[:_MOST_DRAWN])),
    ]
    headline = [f"{series.title}: {step.sentence}." for series in found.series for step in series.steps][:8]
    glance = _glance(found.series[0]) if len(found.series) == 1 else _overview(found)
    facts: list[list[blocks.Fact | blocks.Table]] = [[*figures], [glance]]
    return blocks.Report(title, f"{days[0]} to {days[-1]}" if days else "", headline, sections, opening=facts)


def _glance(series: Series) -> blocks.Table:
    steps, changed = {step.index: step for step in series.steps}, version_changes(series.points)
    rows: list[blocks.Row] = []
    for place, point in reversed(list(enumerate(series.points))):
        commit = point.revision.commit[:10] + ("+" if point.revision.dirty else "")
        said = [changed[place]] if place in changed else []
        said += [steps[place].sentence] if place in steps else []
        rows.append((point.created[:16], point.label, commit, numbers.ms_cell(point.median_ms), "; ".join(said)))
    return blocks.Table("glance", ("made (UTC)", "label", "commit", "median", ""), rows)


def _overview(found: Trend) -> blocks.Table:
    rows: list[blocks.Row] = []
    for series in found.series:
        first, last = series.points[0], series.points[-1]
        change = numbers.cell((last.median_ms / first.median_ms - 1) * 100, numbers.percent)
        said = [f"{_outcome(step)} on {step.created[:10]}" for step in series.steps[-1:]] or ["none"]
        cells = (numbers.count_cell(len(series.points)), numbers.ms_cell(last.median_ms), change)
        rows.append((series.title, f"{series.device} ({series.platform})", *cells, *said))
    columns = ("series", "device", "runs", "latest", "since the first", "last step")
    return blocks.Table("series", columns, rows, sortable=True)


def _outcome(step: Step) -> str:
    what = numbers.percent(step.percent)
    return f"{what}, {step.state}" if step.state != "same program" else f"{what}, machine or environment"


def _section(series: Series, number: int, home: Path) -> blocks.Section:
    content: list[blocks.Block] = [
        blocks.Paragraph(f"{series.device} ({series.platform}); latency from {series.latency_source}."),
        blocks.Picture(
            key(number),
            f"Median latency of each run of {series.title}, in their order (times are UTC), and the steps between "
            f"them. Pale bars: the spread of a run (median absolute deviation). {axis_of(dots(series)).words}",
        ),
    ]
    said = [(step.created[:16], step.sentence) for step in series.steps]
    said += [(series.points[place].created[:16], words) for place, words in version_changes(series.points).items()]
    content += blocks.bullets(f"{when.replace('T', ' ')} UTC: {sentence}." for when, sentence in sorted(said))
    if not series.steps and len(series.points) < 10:
        content.append(blocks.Paragraph("Step detection needs 10 runs, 5 on each side."))
    content.append(_runs(series, number, home))
    return blocks.Section(key(number), series.title, content)


def _runs(series: Series, number: int, home: Path) -> blocks.Table:
    rows: list[blocks.Row] = []
    for point in reversed(series.points[-_MOST_RUNS:]):
        page = _leads_to(point, home)
        when = point.created[:16].replace("T", " ")
        commit = point.revision.commit[:12] + ("+" if point.revision.dirty else "")
        said = ", ".join(f"{name}={value}" for name, value in sorted(point.labels.items()))
        which = (blocks.Link(when, page) if page else when, point.label, commit, point.revision.branch)
        times = (blocks.Number(numbers.ms(point.median_ms), point.median_ms, page), numbers.ms_cell(point.spread_ms))
        rows.append((*which, *times, point.sha256[:12], point.executorch or "not known", said))
    columns = ("made (UTC)", "label", "commit", "branch", "median", "spread (MAD)", "program", "ExecuTorch", "labels")
    return blocks.Table(f"runs_{number + 1}", columns, rows, short=10, sortable=True)
