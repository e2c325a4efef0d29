"""Which files a report consists of, and writing them: text, pictures, page and trace of one run."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from model_profiling import files
from model_profiling.analysis.categories import load_table
from model_profiling.analysis.forecast import forecasts, read_side
from model_profiling.analysis.summary import Analysed, analyse_run
from model_profiling.errors import InputError
from model_profiling.report import charts, content, markdown_report, perfetto, results
from model_profiling.report.drawing import PAPER_SCALE, Artist, Drawing, squeezed
from model_profiling.report.run import Run, load
from model_profiling.report.theme import LIGHT, THEMES
from model_profiling.run_directory import RunDirectory

MARKDOWN = "report.md"
TRACE = "trace.json"


@dataclass(frozen=True)
class Loaded:
    """A run that is ready to be reported on. What derives from it is not written yet."""

    directory: RunDirectory
    run: Run
    analysed: Analysed

    def write_derived(self) -> None:
        results.write(self.directory, self.run.manifest, self.analysed)


def read(path: Path, emulated: Path | None = None) -> Loaded:
    """Analyse a run directory and make it ready for reports; with an emulated run, also predict what SME2 changes."""
    directory = RunDirectory(path)
    analysed = analyse_run(directory, directory.manifest(), load_table())
    run = load(directory, analysed)
    if emulated is not None:
        run = replace(run, forecasts=tuple(forecasts((run.manifest, run.summary), read_side(emulated))))
    return Loaded(directory, run, analysed)


def write_report(
    artist: Artist,
    path: Path,
    output: Path,
    title: str = "",
    markdown: bool = True,
    page: bool = False,
    emulated: Path | None = None,
) -> list[Path]:
    """Write Markdown with its pictures and the trace, the page, or all, at and beside `output`; say what is written."""
    loaded = read(path, emulated)
    run = loaded.run
    drawings = {name: artist.draw(spec) for name, spec in charts.of_run(run, charts.WIDE, LIGHT).items()}
    narrow = charts.of_run(run, charts.NARROW, LIGHT) if page else {}
    small = {name: artist.svg(spec) for name, spec in narrow.items()}
    # All else is done while the artist draws.
    loaded.write_derived()
    report = content.report(run, title)
    written = _write_trace(loaded, output.with_name(TRACE)) if markdown else []
    if markdown:
        pictures = write_pictures(drawings, output)
        files.write_text(output, markdown_report.render(report, pictures))
        written.insert(0, output)
    if page:
        from model_profiling.report import html

        figures = {name: (drawings[name].result().svg, future.result()) for name, future in small.items()}
        written.append(output.with_suffix(".html"))
        files.write_text(written[-1], html.page(run, report, figures))
    return written


def write_pictures(drawings: "Mapping[str, Future[Drawing]]", beside: Path) -> dict[str, str]:
    """Put each picture in both formats into `<name>_charts/`, and return the PNGs' paths relative to `beside`."""
    folder = beside.with_name(f"{beside.stem}_charts")
    pictures = {}
    for name, future in drawings.items():
        drawing = future.result()
        files.write_text(folder / f"{name}.svg", drawing.svg)
        files.write_bytes(folder / f"{name}.png", drawing.png)
        pictures[name] = f"{folder.name}/{name}.png"
    return pictures


def _write_trace(loaded: Loaded, output: Path) -> list[Path]:
    """The trace, unless times mean nothing."""
    if not loaded.run.measured or not loaded.run.shown:
        return []
    profiles = {name: loaded.analysed.profiles[name] for name in loaded.run.shown}
    files.write_bytes(output, msgspec.json.encode(perfetto.trace(loaded.run.summary.model, profiles)))
    return [output]


def write_picture(artist: Artist, path: Path, name: str, output: Path, theme: str, width: int) -> Path:
    """One picture at paper quality; the name's ending says the format."""
    run = read(path).run
    specs = charts.of_run(run, width, THEMES[theme])
    if name not in specs:
        why = "its times are emulated" if not run.measured else "nothing that it shows was measured"
        known = f"There are: {', '.join(specs)}." if specs else "Run on real hardware for pictures of time."
        raise InputError(f"{run.directory} has no picture '{name}': {why}", known)
    drawing = artist.draw(specs[name], PAPER_SCALE).result()
    files.write_bytes(output, drawing.svg.encode() if output.suffix == ".svg" else squeezed(drawing.png))
    return output
