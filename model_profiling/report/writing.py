"""Which files a report consists of, and writing them: text, pictures, page and trace of one run."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling import files
from model_profiling.analysis.summary import Analysed
from model_profiling.errors import InputError
from model_profiling.report import charts, content, drawing, html, markdown_report, perfetto, results
from model_profiling.report.run import Run, load
from model_profiling.report.theme import LIGHT, THEMES
from model_profiling.run_directory import RunDirectory

MARKDOWN = "report.md"
PAGE = "report.html"
TRACE = "trace.json"
PICTURES = ("shift", "latency", "operators")


@dataclass(frozen=True)
class Loaded:
    """A run that is ready to be reported on."""

    run: Run
    analysed: Analysed


def read(path: Path) -> Loaded:
    """Analyse a run directory, write what derives from it, and make it ready for reports."""
    directory = RunDirectory(path)
    analysed = results.refreshed(directory)
    return Loaded(load(directory, analysed), analysed)


def write_markdown(loaded: Loaded, output: Path, title: str = "") -> list[Path]:
    """`output` with the pictures, as PNG and SVG, in a folder beside it."""
    specs = charts.of_run(loaded.run, charts.WIDE, LIGHT)
    pictures, written = write_pictures(specs, output)
    files.write_text(output, markdown_report.render(content.report(loaded.run, title), pictures))
    return [output, *written]


def write_pictures(specs: dict[str, charts.Spec], beside: Path) -> tuple[dict[str, str], list[Path]]:
    """Draw each picture in both formats into `<name>_charts/`; their relative paths and what was written."""
    folder = beside.with_name(f"{beside.stem}_charts")
    pictures, written = {}, []
    for name, spec in specs.items():
        drawn = drawing.svg(spec)
        files.write_text(folder / f"{name}.svg", drawn)
        files.write_bytes(folder / f"{name}.png", drawing.png(drawn))
        pictures[name] = f"{folder.name}/{name}.png"
        written += [folder / f"{name}.png", folder / f"{name}.svg"]
    return pictures, written


def write_trace(loaded: Loaded, output: Path) -> list[Path]:
    """The trace, unless times mean nothing."""
    if not loaded.run.measured or not loaded.run.shown:
        return []
    profiles = {name: loaded.analysed.profiles[name] for name in loaded.run.shown}
    trace = perfetto.trace(loaded.run.summary.model, profiles)
    files.write_bytes(output, msgspec.json.encode(trace))
    return [output]


def write_page(loaded: Loaded, output: Path, title: str = "") -> Path:
    files.write_text(output, html.page(loaded.run, content.report(loaded.run, title)))
    return output


def write_picture(loaded: Loaded, name: str, output: Path, theme: str, width: int) -> Path:
    """One picture at paper quality; the name's ending says the format."""
    specs = charts.of_run(loaded.run, width, THEMES[theme])
    if name not in specs:
        why = "its times are emulated" if not loaded.run.measured else "nothing that it shows was measured"
        raise InputError(f"{loaded.run.directory} has no picture '{name}': {why}", _known(specs))
    drawn = drawing.svg(specs[name])
    if output.suffix == ".svg":
        files.write_text(output, drawn)
    else:
        files.write_bytes(output, drawing.png(drawn, drawing.PAPER_SCALE))
    return output


def _known(specs: dict[str, charts.Spec]) -> str:
    return f"There are: {', '.join(specs)}." if specs else "Run on real hardware for pictures of time."
