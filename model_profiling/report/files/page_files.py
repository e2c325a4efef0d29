"""Writing a report that is of no single run: its page, and Markdown with pictures beside it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.forecast_validation import ForecastValidation
from model_profiling.base import files
from model_profiling.report import markdown
from model_profiling.report.blocks import Report
from model_profiling.report.charts.frame import NARROW, WIDE, Spec
from model_profiling.report.charts.numerics import numerics
from model_profiling.report.charts.runtimes import runtimes as runtimes_chart
from model_profiling.report.content import combined, comparison, runtimes, validation
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.drawing.vega import draw
from model_profiling.report.files.report_files import write_pictures
from model_profiling.store.artifacts import FORECAST_VALIDATION, VALIDATION_PAGE, ExportPaths
from model_profiling.store.derived import embed_stamp

COMBINED = Path("combined_report.md")

# Pictures by name, for a width; and what is done with the drawn ones, such as links on their points.
Pictures = Callable[[int], Mapping[str, Spec]]
Finish = Callable[[str, str], str]


def write_document(
    report: Report,
    output: Path,
    pictures: Pictures,
    artist: DrawingPool,
    made_from: str = "",
    text: Path | None = None,
    page: bool = True,
    finish: Finish = lambda _, svg: svg,
    write: Callable[[Path, bytes], None] = files.write_bytes,
) -> list[Path]:
    """Write the page at `output`, and the same as Markdown at `text`, whole or not at all; returns what was written."""
    drawings = {name: artist.draw(spec) for name, spec in pictures(WIDE).items()}
    narrow = {name: artist.svg(spec) for name, spec in pictures(NARROW).items()} if page else {}
    written = []
    if text is not None:
        beside = write_pictures(drawings, text, write)
        write(text, files.text_bytes(markdown.render(report, beside)))
        written.append(text)
    if page:
        from model_profiling.report import html  # jinja2 takes a moment to load

        figures = {
            name: (finish(name, drawings[name].result().svg), finish(name, svg.result()))
            for name, svg in narrow.items()
        }
        write(output, files.text_bytes(html.page(report, figures, made_from)))
        written.append(output)
    return written


def write_compared(pairs: Sequence[ProgramPair], artist: DrawingPool, output: Path, title: str = "") -> Path:
    """Write the page of some compared pairs, whole or not at all, and say where."""
    drawn = [{key: artist.svg(spec) for key, spec in comparison.pictures(pairs, w).items()} for w in (WIDE, NARROW)]
    from model_profiling.report import html  # as above

    figures = {name: (svg.result(), drawn[1][name].result()) for name, svg in drawn[0].items()}
    timelines = list(comparison.keyed(pairs, "changes"))
    made = html.comparison(comparison.report(pairs, title), figures, comparison.page_data(pairs), timelines)
    files.write_text(output, made)
    return output


def write_runtimes(found: RuntimeComparison, artist: DrawingPool, output: Path, title: str = "") -> Path:
    """Write the page of one model in several runtimes, and say where."""
    made_from = "its numbers are those of `compare --runtimes --json`."
    names = [runtimes.KEY] if any(row.latency is not None for row in found.rows) else []

    def pictures(width: int) -> dict[str, Spec]:
        return {name: runtimes_chart(found, width, LIGHT, "") for name in names}

    return write_document(runtimes.report(found, title), output, pictures, artist, made_from)[-1]


def write_combined(
    runs: Sequence[RunView], artist: DrawingPool, output: Path | None, title: str = "", page: bool = False
) -> list[Path]:
    """Write the report of several runs, by default into the current directory, and with `page` the page beside it.

    A name that ends in .html asks for the page and nothing else.
    """
    output = output or COMBINED
    only_page = output.suffix == ".html"
    return write_document(
        combined.report(runs, title),
        output.with_suffix(".html"),
        lambda width: combined.pictures_of(runs, width, LIGHT),
        artist,
        "everything here can be made again from the run directories.",
        text=None if only_page else output,
        page=page or only_page,
        write=lambda path, data: files.write_bytes(path, embed_stamp(data, path.suffix, [run.sources for run in runs])),
    )


def write_validation(found: ForecastValidation, home: Path) -> list[Path]:
    """Write the JSON and the page, made from the same record, into a folder."""
    from model_profiling.report import html  # as above

    written = [home / FORECAST_VALIDATION, home / VALIDATION_PAGE]
    # On one line: it is for programs, and a third of the size.
    files.write_bytes(written[0], files.json_bytes(found, indent=0))
    made_from = f"its numbers are in {FORECAST_VALIDATION}, beside it."
    files.write_text(written[1], html.page(validation.page_report(found), {}, made_from))
    return written


def write_layers(found: Numerics, paths: ExportPaths) -> Path:
    """Draw signal to noise by layer as SVG and PNG beside a .pte; returns the PNG."""
    drawing = draw(numerics(found, WIDE, LIGHT, f"{found.model} ({found.dtype}): accuracy by layer"))
    for suffix, data in ((".svg", drawing.svg.encode()), (".png", drawing.png)):
        files.write_bytes(paths.numerics.with_suffix(suffix), data)
    return paths.numerics.with_suffix(".png")
