"""Which files a report consists of, and writing them: text, pictures, page and trace of one run."""

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from model_profiling.analysis.categories import load_table
from model_profiling.analysis.dumps import Analysed
from model_profiling.analysis.forecast import forecasts, read_side
from model_profiling.analysis.summary import analyse_run
from model_profiling.artifacts import REPORT, TRACE
from model_profiling.derived import DerivedWriter, Outdated
from model_profiling.errors import InputError
from model_profiling.report import charts, content, markdown_report, perfetto, results
from model_profiling.report.drawing import PAPER_SCALE, Artist, Drawing, squeezed
from model_profiling.report.run import Run, load
from model_profiling.report.theme import LIGHT, THEMES
from model_profiling.run_directory import RunDirectory


@dataclass(frozen=True)
class Loaded:
    """A run that is ready to be reported on, and what writes down what derives from it."""

    directory: RunDirectory
    run: Run
    analysed: Analysed
    writer: DerivedWriter

    def write_derived(self) -> None:
        results.write(self.writer, self.directory, self.run.manifest, self.analysed, load_table())


def read(path: Path, emulated: Path | None = None) -> Loaded:
    """Analyse a run directory and make it ready for reports; with an emulated run, also predict what SME2 changes."""
    directory = RunDirectory(path)
    directory.manifest()  # says what is wrong with the directory, if anything is
    writer = DerivedWriter(directory, emulated=emulated)
    analysed = analyse_run(directory, directory.manifest(), load_table())
    run = load(directory, analysed, writer.sources)
    if emulated is not None:
        run = replace(run, forecasts=tuple(forecasts((run.manifest, run.summary), read_side(emulated))))
    return Loaded(directory, run, analysed, writer)


def write_report(
    artist: Artist,
    path: Path,
    output: Path,
    title: str = "",
    markdown: bool = True,
    page: bool = False,
    emulated: Path | None = None,
    tell: Callable[[Outdated], None] = lambda outdated: None,
) -> list[Path]:
    """Write Markdown with its pictures and the trace, the page, or all, at and beside `output`; say what is written.

    Reports and pictures of an earlier state of the run are removed; `tell` hears of each.
    """
    loaded = read(path, emulated)
    run, writer = loaded.run, loaded.writer
    drawings = {name: artist.draw(spec) for name, spec in charts.of_run(run, charts.WIDE, LIGHT).items()}
    narrow = charts.of_run(run, charts.NARROW, LIGHT) if page else {}
    small = {name: artist.svg(spec) for name, spec in narrow.items()}
    # All else is done while the artist draws.
    loaded.write_derived()
    report = content.report(run, title)
    renew = _renew(path, output, title, page and markdown, emulated)
    written = _write_trace(loaded, output.with_name(TRACE), renew) if markdown else []
    if markdown:
        pictures = write_pictures(drawings, output, lambda file, data: writer.write_bytes(file, data, renew))
        writer.write_text(output, markdown_report.render(report, pictures), renew)
        written.insert(0, output)
    if page:
        from model_profiling.report import html

        figures = {name: (drawings[name].result().svg, future.result()) for name, future in small.items()}
        written.append(output.with_suffix(".html"))
        writer.write_text(written[-1], html.page(run, report, figures), renew)
    for outdated in writer.finish():
        tell(outdated)
    return written


def _renew(path: Path, output: Path, title: str, page: bool, emulated: Path | None) -> str:
    """The command that writes this report again."""
    words = ["report {dir}"]
    if page:
        words.append("--html")
    if output.resolve() != (path / REPORT).resolve():
        words.append(_to(path, output))
    if title:
        words.append(f"--title {shlex.quote(title)}")
    if emulated is not None:
        words.append(f"--forecast {shlex.quote(str(emulated))}")
    return " ".join(words)


def _to(path: Path, output: Path) -> str:
    """`--output`, relative to the run directory where it lies in there: a run directory may be moved."""
    home, place = path.resolve(), output.resolve()
    if place.is_relative_to(home):
        return f"--output {{dir}}/{shlex.quote(str(place.relative_to(home)))}"
    return f"--output {shlex.quote(str(output))}"


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


def _write_trace(loaded: Loaded, output: Path, renew: str) -> list[Path]:
    """The trace, unless times mean nothing."""
    if not loaded.run.measured or not loaded.run.shown:
        return []
    profiles = {name: loaded.analysed.profiles[name] for name in loaded.run.shown}
    trace = {**perfetto.trace(loaded.run.summary.model, profiles), "sources": loaded.writer.sources}
    loaded.writer.write_bytes(output, msgspec.json.encode(trace), renew)
    return [output]


def write_picture(
    artist: Artist,
    path: Path,
    name: str,
    output: Path,
    theme: str,
    width: int,
    tell: Callable[[Outdated], None] = lambda outdated: None,
) -> Path:
    """One picture at paper quality; the name's ending says the format."""
    loaded = read(path)
    run = loaded.run
    specs = charts.of_run(run, width, THEMES[theme])
    if name not in specs:
        why = "its times are emulated" if not run.measured else "nothing that it shows was measured"
        known = f"There are: {', '.join(specs)}." if specs else "Run on real hardware for pictures of time."
        raise InputError(f"{run.directory} has no picture '{name}': {why}", known)
    drawing = artist.draw(specs[name], PAPER_SCALE).result()
    renew = f"report {{dir}} --png {name} --theme {theme} --width {width} {_to(path, output)}"
    # Everything that derives from the run is of the same state of it.
    loaded.write_derived()
    data = drawing.svg.encode() if output.suffix == ".svg" else squeezed(drawing.png)
    loaded.writer.write_bytes(output, data, renew)
    for outdated in loaded.writer.finish():
        tell(outdated)
    return output
