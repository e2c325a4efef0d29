"""Which files a report consists of, and writing them: text, pictures, page and trace of one run."""

import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.profile import Profile
from model_profiling.analysis.timing.spans import Span, spans
from model_profiling.base import files
from model_profiling.base.errors import InputError, RunError
from model_profiling.report import charts, html
from model_profiling.report.content import whole as content
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.theme import LIGHT, THEMES
from model_profiling.report.drawing.vega import PAPER_SCALE, compress_png
from model_profiling.report.files.artifact_files import write_artifacts
from model_profiling.report.files.page_files import Drawings, write_document
from model_profiling.store.artifacts import GRAPH_PAGE, MODEL_EXPLORER, REPORT, TRACE
from model_profiling.store.derived import DerivedWriter, OutdatedFile


def write_report(
    run: RunView, artist: DrawingPool, output: Path, title: str = "", markdown: bool = True, page: bool = False
) -> tuple[list[Path], list[OutdatedFile]]:
    """Write Markdown with its pictures and the trace, the page, or all, at and beside `output`.

    Returns what was written, and which files of an earlier state of the run that outdates.
    """
    writer = DerivedWriter(run)
    # All else is done while the artist draws.
    drawings = Drawings.start(lambda width: charts.of_run(run, width, LIGHT, titled=False), artist, page)
    write_artifacts(run, writer)
    report = content.report(run, title)
    words = ["report {dir}", *(["--html"] if page and markdown else []), *_to(run, output, REPORT), *_chosen(run)]
    words += [*([f"--title {shlex.quote(title)}"] if title else []), *_forecast(run)]
    words += [f"--target {shlex.quote(str(run.target))}"] if run.target is not None else []
    renew = " ".join(words)
    # One trace is beside a report: that of the whole run.
    traced = _write_trace(run, writer, output.with_name(TRACE), renew) if markdown and not run.only else []

    try:
        written = write_document(
            report,
            drawings,
            output.with_suffix(".html") if page else None,
            partial(html.run_page, run, report),
            text=output if markdown else None,
            detail="usual",
            write=lambda path, data: writer.write_bytes(path, data, renew),
        )
    except RunError:
        writer.finish()
        raise
    written[1:1] = traced
    return written, writer.finish()


def write_graph(run: RunView, output: Path | None = None) -> tuple[Path, list[OutdatedFile]]:
    """Write the page with the graph alone, by default into the run directory; returns where, and what that outdates."""
    if run.path.is_file():
        if output is None:
            raise InputError(f"{run.path} is an ETDump without a run directory", "Say where to write: --out FILE.html")
        files.write_text(output, html.graph(run))
        return output, []
    place = output or run.path / GRAPH_PAGE
    writer = _writer(run)
    words = ["graph {dir}", *_to(run, place, GRAPH_PAGE), *_forecast(run)]
    writer.write_text(place, html.graph(run), " ".join(words))
    return place, writer.finish()


def write_model_explorer(run: RunView) -> tuple[list[Path], list[OutdatedFile]]:
    """Write graphs and overlays for Google's Model Explorer into the run directory, what is of most interest first."""
    from model_profiling.report.files import model_explorer

    writer, home = _writer(run), run.path / MODEL_EXPLORER
    renew = " ".join(["report {dir} --model-explorer", *_forecast(run)])
    made = {**model_explorer.graphs(run), **model_explorer.overlays(run)}
    for name, data in made.items():
        writer.write_bytes(home / name, files.json_bytes(data, indent=0), renew)
    return [home / name for name in made], writer.finish()


def _writer(run: RunView) -> DerivedWriter:
    """Return a writer after all that derives from the run: everything in its directory is of one state of it."""
    writer = DerivedWriter(run)
    write_artifacts(run, writer)
    return writer


def _forecast(run: RunView) -> list[str]:
    return [f"--forecast {shlex.quote(run.emulated.directory)}"] if run.emulated is not None else []


def _chosen(run: RunView) -> list[str]:
    """Return the flags for the experiments that were asked for."""
    return [f"--experiment {shlex.quote(name)}" for name in run.asked]


def _to(run: RunView, output: Path, usual: str = "") -> list[str]:
    """Return `--out` for what is not in its `usual` place, relative to its run directory, which may be moved."""
    home, place = run.path.resolve(), output.resolve()
    if usual and place == (home / usual).resolve():
        return []
    if place.is_relative_to(home):
        return [f"--out {{dir}}/{shlex.quote(str(place.relative_to(home)))}"]
    return [f"--out {shlex.quote(str(output))}"]


def _write_trace(run: RunView, writer: DerivedWriter, output: Path, renew: str) -> list[Path]:
    """Return the trace, unless times mean nothing."""
    if not run.measured or not run.shown:
        return []
    profiles = {name: run.profiles[name] for name in run.shown}
    trace = {**trace_of(run.summary.model, profiles), "sources": run.sources}
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
    words = [f"report {{dir}} --png {name} --theme {theme} --width {width}", *_chosen(run), *_to(run, output)]
    writer = _writer(run)
    data = drawing.svg.encode() if output.suffix == ".svg" else compress_png(drawing.png)
    writer.write_bytes(output, data, " ".join(words))
    return [output], writer.finish()


# Executions per experiment: enough to see how they differ, few enough to load at once.
MOST_EXECUTIONS = 10
# Chrome's trace viewer knows colours by these names only; Perfetto colours by name and shows the category.
_COLOURS = {
    "CONV": "thread_state_running",
    "GEMM": "thread_state_runnable",
    "Data Movement": "thread_state_iowait",
    "Elementwise": "rail_animation",
    "Other": "grey",
    "Runtime": "good",
}
# What a viewer shows of a span that is chosen.
_TOLD = ("category", "kind", "where", "dtype", "algorithm")
# Executions are drawn one after another with this much between them; when each really began is not in the dump.
_GAP_US = 50.0


def trace_of(model: str, profiles: dict[str, Profile]) -> dict[str, Any]:
    """Return one track per experiment; on it typical executions in a row, calls and operators nested."""
    events: list[dict[str, Any]] = [_meta("process_name", 0, model)]
    for track, (experiment, profile) in enumerate(profiles.items(), 1):
        events.append(_meta("thread_name", track, experiment))
        begin = 0.0
        # The executions closest to the median, in the order they ran.
        distance = np.abs(profile.execute - np.median(profile.execute))
        for execution in sorted(np.argsort(distance, kind="stable")[:MOST_EXECUTIONS].tolist()):
            events += [_event(span, execution, track, begin) for span in spans(profile, execution)]
            begin += float(profile.execute[execution]) / 1e3 + _GAP_US
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"model": model}}


def _meta(what: str, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}


def _event(span: Span, execution: int, track: int, begin: float) -> dict[str, Any]:
    return {
        "name": f"Method::execute, execution {execution}" if span.depth == 0 else span.name,
        "cat": span.category,
        **{"ph": "X", "pid": 1, "tid": track},
        **{"ts": round(begin + span.start_us, 3), "dur": round(span.duration_us, 3)},
        "cname": _COLOURS.get(span.category, "grey"),
        "args": {**{name: getattr(span, name) for name in _TOLD}, "execution": execution},
    }
