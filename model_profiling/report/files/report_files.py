"""Which files a report consists of, and writing them: text, pictures, page and trace of one run."""

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from model_profiling.analysis.run.run_view import RunView
from model_profiling.base import files
from model_profiling.base.errors import InputError, RunError
from model_profiling.report import charts, content
from model_profiling.report.drawing.drawing_pool import DrawingPool
from model_profiling.report.drawing.theme import LIGHT, THEMES
from model_profiling.report.drawing.vega import PAPER_SCALE, Drawing, compress_png
from model_profiling.report.files import perfetto
from model_profiling.report.files.artifact_files import write_artifacts
from model_profiling.report.markdown import render
from model_profiling.store.artifacts import GRAPH_PAGE, MODEL_EXPLORER, REPORT, TRACE
from model_profiling.store.derived import DerivedWriter, OutdatedFile


def write_report(
    run: RunView, artist: DrawingPool, output: Path, title: str = "", markdown: bool = True, page: bool = False
) -> tuple[list[Path], list[OutdatedFile]]:
    """Write Markdown with its pictures and the trace, the page, or all, at and beside `output`.

    Returns what was written, and which files of an earlier state of the run that outdates.
    """
    writer = DerivedWriter(run)
    drawings = {name: artist.draw(spec) for name, spec in charts.of_run(run, charts.WIDE, LIGHT, titled=False).items()}
    narrow = charts.of_run(run, charts.NARROW, LIGHT, titled=False) if page else {}
    small = {name: artist.svg(spec) for name, spec in narrow.items()}
    # All else is done while the artist draws.
    write_artifacts(run, writer)
    report = content.report(run, title)
    renew = _renew(run, output, title, page and markdown)
    # One trace is beside a report: that of the whole run.
    written = _write_trace(run, writer, output.with_name(TRACE), renew) if markdown and not run.only else []
    if markdown:
        try:
            pictures = write_pictures(drawings, output, lambda file, data: writer.write_bytes(file, data, renew))
        except RunError as error:
            writer.write_text(output, render(report), renew)
            writer.finish()
            error.hint += f" The report without pictures is in {output}."
            raise
        writer.write_text(output, render(report, pictures), renew)
        written.insert(0, output)
    if page:
        from model_profiling.report import html

        figures = {name: (drawings[name].result().svg, future.result()) for name, future in small.items()}
        written.append(output.with_suffix(".html"))
        writer.write_text(written[-1], html.page(run, report, figures), renew)
    return written, writer.finish()


def write_graph(run: RunView, output: Path | None = None) -> tuple[Path, list[OutdatedFile]]:
    """Write the page with the graph alone, by default into the run directory; returns where, and what that outdates."""
    from model_profiling.report import html

    if run.path.is_file():
        if output is None:
            raise InputError(f"{run.path} is an ETDump without a run directory", "Say where to write: --out FILE.html")
        files.write_text(output, html.graph(run))
        return output, []
    place = output or run.path / GRAPH_PAGE
    writer = DerivedWriter(run)
    # Everything that derives from the run is of the same state of it.
    write_artifacts(run, writer)
    words = ["graph {dir}"]
    if place.resolve() != (run.path / GRAPH_PAGE).resolve():
        words.append(_to(run.path, place))
    writer.write_text(place, html.graph(run), " ".join([*words, *_forecast(run)]))
    return place, writer.finish()


def write_model_explorer(run: RunView) -> tuple[list[Path], list[OutdatedFile]]:
    """Write graphs and overlays for Google's Model Explorer into the run directory, what is of most interest first."""
    from model_profiling.report.files import model_explorer

    writer, home = DerivedWriter(run), run.path / MODEL_EXPLORER
    renew = " ".join(["report {dir} --model-explorer", *_forecast(run)])
    write_artifacts(run, writer)
    made = {name: files.json_bytes(graph, indent=0) for name, graph in model_explorer.graphs(run).items()}
    made |= {name: files.json_bytes(overlay, indent=0) for name, overlay in model_explorer.overlays(run).items()}
    for name, data in made.items():
        writer.write_bytes(home / name, data, renew)
    return [home / name for name in made], writer.finish()


def _renew(run: RunView, output: Path, title: str, page: bool) -> str:
    """Return the command that writes this report again."""
    words = ["report {dir}", *(["--html"] if page else [])]
    if output.resolve() != (run.path / REPORT).resolve():
        words.append(_to(run.path, output))
    words += _chosen(run)
    if title:
        words.append(f"--title {shlex.quote(title)}")
    words += _forecast(run)
    if run.target is not None:
        words.append(f"--target {shlex.quote(str(run.target))}")
    return " ".join(words)


def _forecast(run: RunView) -> list[str]:
    return [f"--forecast {shlex.quote(run.emulated.directory)}"] if run.emulated is not None else []


def _chosen(run: RunView) -> list[str]:
    """Return the flags for the experiments that were asked for."""
    return [f"--experiment {shlex.quote(name)}" for name in run.asked]


def _to(path: Path, output: Path) -> str:
    """Return `--out`, relative to the run directory where it lies in there: a run directory may be moved."""
    home, place = path.resolve(), output.resolve()
    if place.is_relative_to(home):
        return f"--out {{dir}}/{shlex.quote(str(place.relative_to(home)))}"
    return f"--out {shlex.quote(str(output))}"


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


def _write_trace(run: RunView, writer: DerivedWriter, output: Path, renew: str) -> list[Path]:
    """Return the trace, unless times mean nothing."""
    if not run.measured or not run.shown:
        return []
    profiles = {name: run.profiles[name] for name in run.shown}
    trace = {**perfetto.trace(run.summary.model, profiles), "sources": run.sources}
    writer.write_bytes(output, files.json_bytes(trace, indent=0), renew)
    return [output]


def write_picture(
    run: RunView, artist: DrawingPool, name: str, output: Path, theme: str, width: int
) -> tuple[list[Path], list[OutdatedFile]]:
    """Return one picture at paper quality; the name's ending says the format."""
    specs = charts.of_run(run, width, THEMES[theme])
    if name not in specs:
        why = "its times are emulated" if not run.measured else "nothing that it shows was measured"
        known = f"There are: {', '.join(specs)}." if specs else "Run on real hardware for pictures of time."
        raise InputError(f"{run.directory} has no picture '{name}': {why}", known)
    drawing = artist.draw(specs[name], PAPER_SCALE).result()
    words = [f"report {{dir}} --png {name} --theme {theme} --width {width}", *_chosen(run), _to(run.path, output)]
    renew = " ".join(words)
    writer = DerivedWriter(run)
    # Everything that derives from the run is of the same state of it.
    write_artifacts(run, writer)
    data = drawing.svg.encode() if output.suffix == ".svg" else compress_png(drawing.png)
    writer.write_bytes(output, data, renew)
    return [output], writer.finish()
