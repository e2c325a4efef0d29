"""All that commands do with a run directory that came from elsewhere, in this process and without drawing."""

import contextlib
import io
import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

from model_profiling.base.errors import KitError
from model_profiling.base.visible import visible_values
from model_profiling.cli.main import _module, make_parser
from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.vega import Drawing
from model_profiling.report.files.page_files import write_compared
from model_profiling.report.files.report_files import write_report
from sme2_kit import Run, compare

RUN = Path(__file__).parents[1] / "data" / "known_good_run"


class TextArtist:
    """Stands for the drawing process: a picture is the text of its specification, which has to be JSON."""

    def draw(self, spec: dict[str, Any], scale: float = 1.0) -> "Future[Drawing]":
        return _done(Drawing(_svg(spec), b""))

    def svg(self, spec: dict[str, Any]) -> "Future[str]":
        return _done(_svg(spec))


def _svg(spec: dict[str, Any]) -> str:
    return f"<svg><desc>{len(json.dumps(visible_values(spec), allow_nan=False))}</desc></svg>"


def _done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def command(*words: object) -> str:
    """Run a subcommand as the command line does, but for its last door: what is no KitError comes out."""
    import importlib

    argv = [str(word) for word in words]
    args = make_parser(argv[:1]).parse_args(argv)
    args.words = argv
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        importlib.import_module(_module(argv[0])).run(args)
    return said.getvalue()


def report(home: Path) -> str:
    """Markdown, page and all tables beside them; the page's text."""
    run = Run.open(home)
    written, _ = write_report(run, cast(DrawingPool, TextArtist()), home / "report.md", page=True)
    return "".join(path.read_text() for path in written)


def _before(home: Path) -> Path:
    """What a run is compared with: one with the same experiments if that lies beside it."""
    beside = home.with_name("before")
    return beside if beside.exists() else RUN


def comparison(home: Path) -> str:
    """The page of the run against another one."""
    pairs = compare(_before(home), home).pairs
    return write_compared(pairs, cast(DrawingPool, TextArtist()), home.parent / "compare.html").read_text()


def uses(home: Path) -> dict[str, Callable[[], str]]:
    """What people do with a run, by name; each gives what it prints or writes."""
    beside = home.parent
    return {
        "validate": lambda: command("validate", "--results", home),
        "analyze": lambda: command("analyze", home),
        "report": lambda: report(home),
        "graph": lambda: command("graph", home, "--output", beside / "graph.html"),
        "compare": lambda: command(
            *("compare", _before(home), home, "--verbose", "--fail-if-slower", "5", "--any-baseline"),
            *("--junit", beside / "junit.xml", "--summary", beside / "summary.md"),
        ),
        "compared": lambda: command("compare", home, _before(home), "--json"),
        "comparison": lambda: comparison(home),
        "runs": lambda: command("history", "runs", home),
    }


def use_all(home: Path, *names: str) -> dict[str, str]:
    """Do all of it, or what is named; what a KitError refuses is its message."""
    found = {}
    known = uses(home)
    for name in names or known:
        try:
            found[name] = known[name]()
        except KitError as error:
            found[name] = f"error: {error.message} {error.hint}"
    return found
