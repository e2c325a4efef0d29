"""How a command answers: data or text, notes beside it, where its page is, and the command to type next."""

import argparse
import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from model_profiling import api
from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import columns, say_json, tell, warn
from model_profiling.report.blocks import Fact, Report, Row, Table
from model_profiling.store.artifacts import REPORT_PAGE
from model_profiling.store.derived import OutdatedFile, notes

# Commands that are run as stages of another one: only that one says how to go on, and is typed to do it again.
_outer: list[str] = []


def answer(args: argparse.Namespace, data: object, show: Callable[[], object], page: Path | None = None) -> int:
    """Print the data if --json asks for it, else `show` it; the exit code of a command that has answered."""
    if args.json:
        say_json(data)
        warn(ending(page))  # standard output has the data alone
    else:
        show()
    return 0


def note(sentence: str) -> None:
    """Say something worth knowing that is no part of the answer."""
    warn(f"note: {sentence}\n")


def tell_outdated(outdated: Iterable[OutdatedFile]) -> None:
    """Say which earlier files what was just written outdates."""
    for sentence in notes(list(outdated)):
        note(sentence)


def show_result(
    report: Report,
    page: Path | None = None,
    following: Iterable[object] = (),
    whole: bool = False,
    lines: int | None = None,
) -> None:
    """Print the first screen of a result, or with `whole` all of it, and how to go on. A table has as many rows as
    there is room for, or `lines` of them."""
    from model_profiling.report.terminal import SCREEN_LINES, Style, render

    end = ending(page, following)
    groups = [group for group in report.opening if group]
    apart = "" if not whole and groups and isinstance(groups[-1][-1], Fact) else "\n" if end else ""
    room = SCREEN_LINES - len((apart + end).splitlines()) if lines is None else lines + 2
    tell(render(report, Style.of_stdout(), "whole" if whole else "short", room) + apart + end)


def show_rows(
    columns: tuple[str, ...], rows: list[Row], none: str, most: int | None = None, following: Iterable[object] = ()
) -> None:
    """Print a table as the first screen has room for, all rows that were asked for, or that there are `none`."""
    if rows:
        show_result(Report("", opening=[[Table("rows", columns, rows)]]), None, following, lines=most)
    else:
        tell(none)


def ending(page: Path | None = None, following: Iterable[object] = ()) -> str:
    """Return the last lines of a command: `Report` where there is a page, `Next` where there is a next step."""
    if _outer:
        return ""
    words = [relative_to_here(word) if isinstance(word, Path) else word for word in following]
    report = f"{'Report':<10} {relative_to_here(page)}\n" if page is not None else ""
    return report + (next_command(*words) if words else "")


def after_run(run: "api.Run") -> list[object]:
    """Return what comes after a run: which kernels SME2 would use, of an emulated one the time that it takes."""
    program = run.manifest.model.file()
    if program is None:
        return ["graph", run.path]
    if run.wrong:
        return ["numerics", program]
    return ["kernels" if run.manifest.timing == "measured" else "run", program]


def page_of(directory: Path) -> Path | None:
    """Return the report page of a run, if one was written."""
    page = directory / REPORT_PAGE
    return page if page.is_file() else None


def next_command(*words: object) -> str:
    """Return `Next sme2-kit …`, by the path of the command where the shell does not find it; where that is too wide,
    the shell's backslash ends each line."""
    beside, width = Path(sys.prefix, "bin", "sme2-kit"), columns()
    program = "sme2-kit" if shutil.which("sme2-kit") or not beside.is_file() else relative_to_here(beside)
    lines = [f"{'Next':<10}"]
    for number, part in enumerate(shlex.quote(str(word)) for word in (program, *words)):
        # Room for " \\" behind it.
        if number and width and len(lines[-1]) + 1 + len(part) + 2 > width:
            lines[-1] += " \\"
            lines.append(" " * 5)
        lines[-1] += f" {part}"
    return "\n".join(lines) + "\n"


def command_line(args: argparse.Namespace) -> str:
    """Return `sme2-kit …` with the words that were given, whatever program started this process, and the variable that
    shapes a run if it is set: for whoever wants the same again."""
    from model_profiling.pipeline.schedule import BUDGET_VARIABLE

    if _outer:
        return _outer[0]
    budget = os.environ.get(BUDGET_VARIABLE)
    variable = f"{BUDGET_VARIABLE}={shlex.quote(budget)} " if budget else ""
    # Without words nobody typed anything: a program called the command.
    words: list[str] = getattr(args, "words", [])
    return variable + shlex.join(["sme2-kit", *words]) if words else ""


@contextlib.contextmanager
def as_stage(of: str) -> Iterator[None]:
    """Let what is run here end without `Report` and `Next`, because it is a stage `of` another command."""
    _outer.append(of)
    try:
        yield
    finally:
        _outer.pop()
