"""Writing a report: its page, and Markdown with pictures beside it; of one run with more in `report_files.py`."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import NamedTuple

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.forecast_validation import ForecastValidation
from model_profiling.base import files
from model_profiling.base.errors import RunError
from model_profiling.report import html, markdown
from model_profiling.report.blocks import Detail, Report
from model_profiling.report.charts.frame import NARROW, WIDE, Spec
from model_profiling.report.charts.numerics import numerics
from model_profiling.report.charts.runtimes import runtimes as runtimes_chart
from model_profiling.report.content import combined, comparison, runtimes, validation
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.drawing.vega import Drawing, draw
from model_profiling.store.artifacts import FORECAST_VALIDATION, VALIDATION_PAGE, ExportPaths
from model_profiling.store.derived import embed_stamp

COMBINED = Path("combined_report.md")

# Pictures by name, for a width; and what is done with the drawn ones, such as links on their points.
Pictures = Callable[[int], Mapping[str, Spec]]
Finish = Callable[[str, str], str]


class Drawings(NamedTuple):
    """Pictures that are being drawn: wide ones for a text and a page, and narrow ones, which only a page has."""

    wide: "dict[str, Future[Drawing]]"
    narrow: "dict[str, Future[str]]"

    @classmethod
    def start(cls, pictures: Pictures, artist: DrawingPool, page: bool = True) -> "Drawings":
        wide = {name: artist.draw(spec) for name, spec in pictures(WIDE).items()}
        narrow = pictures(NARROW) if page else {}
        return cls(wide, {name: artist.svg(spec) for name, spec in narrow.items()})


def write_document(
    report: Report,
    drawings: Drawings,
    page: Path | None,
    made: str | Callable[[html.Figures], str],
    text: Path | None = None,
    detail: Detail = "whole",
    finish: Finish = lambda _, svg: svg,
    write: Callable[[Path, bytes], None] = files.write_bytes,
) -> list[Path]:
    """Write a report as Markdown at `text` and as a page, each whole or not at all; returns what was written.

    `made` is what the page can be made again from, or makes the page. Where pictures cannot be drawn, the text is
    written without them.
    """
    written = []
    if text is not None:
        try:
            pictures = write_pictures(drawings.wide, text, write)
        except RunError as error:
            write(text, files.text_bytes(markdown.render(report, detail=detail)))
            error.hint += f" The report without pictures is in {text}."
            raise
        write(text, files.text_bytes(markdown.render(report, pictures, detail=detail)))
        written.append(text)
    if page is not None:
        figures = {
            name: (finish(name, drawings.wide[name].result().svg), finish(name, svg.result()))
            for name, svg in drawings.narrow.items()
        }
        made_page = html.page(report, figures, made) if isinstance(made, str) else made(figures)
        write(page, files.text_bytes(made_page))
        written.append(page)
    return written


def write_pictures(
    drawings: "Mapping[str, Future[Drawing]]", beside: Path, write: Callable[[Path, bytes], None]
) -> dict[str, str]:
    """Put each picture in both formats into `<name>_charts/`, and return the PNGs' paths relative to `beside`."""
    folder = beside.with_name(f"{beside.stem}_charts")
    pictures = {}
    for name, future in drawings.items():
        drawing = future.result()
        write(folder / f"{name}.svg", drawing.svg.encode())
        write(folder / f"{name}.png", drawing.png)
        pictures[name] = f"{folder.name}/{name}.png"
    return pictures


def write_compared(pairs: Sequence[ProgramPair], artist: DrawingPool, output: Path, title: str = "") -> Path:
    """Write the page of some compared pairs, whole or not at all, and say where."""
    drawings = Drawings.start(lambda width: comparison.pictures(pairs, width), artist)
    report = comparison.report(pairs, title)
    made = partial(html.comparison, report, data=comparison.page_data(pairs))
    return write_document(report, drawings, output, made)[-1]


def write_runtimes(found: RuntimeComparison, artist: DrawingPool, output: Path, title: str = "") -> Path:
    """Write the page of one model in several runtimes, and say where."""
    made_from = "its numbers are those of `compare --runtimes --json`."
    names = [runtimes.KEY] if any(row.latency is not None for row in found.rows) else []

    def pictures(width: int) -> dict[str, Spec]:
        return {name: runtimes_chart(found, width, LIGHT, "") for name in names}

    return write_document(runtimes.report(found, title), Drawings.start(pictures, artist), output, made_from)[-1]


def write_combined(
    runs: Sequence[RunView], artist: DrawingPool, output: Path | None, title: str = "", page: bool = False
) -> list[Path]:
    """Write the report of several runs, by default into the current directory, and with `page` the page beside it.

    A name that ends in .html asks for the page and nothing else.
    """
    output = output or COMBINED
    only_page = output.suffix == ".html"
    page = page or only_page
    return write_document(
        combined.report(runs, title),
        Drawings.start(lambda width: combined.pictures_of(runs, width, LIGHT), artist, page),
        output.with_suffix(".html") if page else None,
        "everything here can be made again from the run directories.",
        text=None if only_page else output,
        write=lambda path, data: files.write_bytes(path, embed_stamp(data, path.suffix, [run.sources for run in runs])),
    )


def write_validation(found: ForecastValidation, home: Path) -> list[Path]:
    """Write the JSON and the page, made from the same record, into a folder."""
    # On one line: it is for programs, and a third of the size.
    files.write_bytes(home / FORECAST_VALIDATION, files.json_bytes(found, indent=0))
    made_from = f"its numbers are in {FORECAST_VALIDATION}, beside it."
    page = write_document(validation.page_report(found), Drawings({}, {}), home / VALIDATION_PAGE, made_from)
    return [home / FORECAST_VALIDATION, *page]


def write_layers(found: Numerics, paths: ExportPaths) -> Path:
    """Draw signal to noise by layer as SVG and PNG beside a .pte; returns the PNG."""
    drawing = draw(numerics(found, WIDE, LIGHT, f"{found.model} ({found.dtype}): accuracy by layer"))
    for suffix, data in ((".svg", drawing.svg.encode()), (".png", drawing.png)):
        files.write_bytes(paths.numerics.with_suffix(suffix), data)
    return paths.numerics.with_suffix(".png")
