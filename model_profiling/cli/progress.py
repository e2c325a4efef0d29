"""Progress of long work on standard error: a bar on a terminal, now and then a line elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator

from model_profiling.base.on_progress import OnProgress
from model_profiling.base.printing import columns, warn
from model_profiling.base.visible import visible

_SECONDS_BETWEEN_LINES = 5.0


@contextlib.contextmanager
def progress(quiet: bool = False, of: str = "runs", command: str = "run") -> Iterator[OnProgress]:
    """Yield the function that long work calls with what it is doing, how much is done, and how much there is.

    `of` is what is counted, and `command` is what lines begin with.
    """
    if quiet:
        yield lambda label, done, total: None
    elif sys.stderr.isatty():
        with _bar(of) as report:
            yield report
    else:
        yield _lines(of, command)


def _lines(of: str, command: str) -> OnProgress:
    last_time, last_stage = 0.0, ""
    # As it is now: standard error is redirected while torch talks.
    stream = sys.stderr

    def report(label: str, done: int, total: int) -> None:
        nonlocal last_time, last_stage
        stage = label.split(" ")[0] if total else label
        if stage != last_stage or time.monotonic() - last_time > _SECONDS_BETWEEN_LINES:
            # What cannot be counted are the stages of an export, which say so themselves.
            counted = f" ({done}/{total} {of})" if done else ""
            words = f"{command}: {label}{counted}" if total else label
            warn(f"{words}\n", stream)
            last_time, last_stage = time.monotonic(), stage

    return report


@contextlib.contextmanager
def _bar(of: str) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    label, count = TextColumn("{task.description:<24}", markup=False), TextColumn("{task.fields[runs]}")
    shown: tuple[ProgressColumn, ...] = (label, BarColumn(), count, TimeRemainingColumn())
    if of != "runs":
        # What goes on side by side is longer than a line, and says itself how long it will take.
        whole, rest = Column(no_wrap=True, min_width=12), Column(no_wrap=True, ratio=1, overflow="ellipsis")
        count = TextColumn("{task.fields[runs]}", table_column=whole)
        shown = (
            count,
            BarColumn(12, table_column=whole),
            TextColumn("{task.description}", markup=False, table_column=rest),
        )
    with Progress(*shown, console=Console(file=sys.stderr, width=columns(sys.stderr)), transient=True) as bar:
        task = bar.add_task("preparing", total=1, runs="")

        def report(label: str, done: int, total: int) -> None:
            runs = f"{done}/{total} {of}" if total else ""
            bar.update(task, description=visible(label), completed=done, total=total or None, runs=runs)

        yield report
