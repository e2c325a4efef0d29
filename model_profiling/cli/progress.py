"""Progress of long work on standard error: a live line on a terminal, now and then a line elsewhere."""

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from model_profiling.api.calling import call_with, caller
from model_profiling.base.on_progress import OnProgress
from model_profiling.base.printing import columns, show_live, warn
from model_profiling.cli.arguments import keywords

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_DRAWINGS = 0.2
_LABEL, _BAR = 24, 12


def call(
    args: argparse.Namespace,
    function: Callable[..., T],
    parts: list[Any] | None = None,
    quiet: bool = False,
    **given: Any,
) -> T:
    """Return what a verb answers to what was said, and to what else it is given; `parts` gets the parts of its work."""
    heard = {} if parts is None else {"on_part": parts.append}
    with progress(quiet, plain=caller().loud) as report, call_with(**heard):
        return function(**keywords(args, function) | given, on_progress=report)


@contextlib.contextmanager
def progress(quiet: bool = False, of: str = "runs", command: str = "run", plain: bool = False) -> Iterator[OnProgress]:
    """Yield the function that long work calls with what it is doing, how much is done, and how much there is.

    `of` is what is counted, and `command` is what lines begin with. `plain`: lines, on a terminal as well.
    """
    if quiet:
        yield lambda label, done, total: None
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not plain:
        with _live(of) as report:
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
def _live(of: str) -> Iterator[OnProgress]:
    """Redraw one line, several times in a second and not at every report, until the work has ended."""
    line, stream, ended = LiveLine(of), sys.stderr, threading.Event()

    def redraw() -> None:
        while not ended.wait(_SECONDS_BETWEEN_DRAWINGS):
            # The window may have another width than before.
            show_live(line.text(time.monotonic(), columns(stream) or 80), stream)

    thread = threading.Thread(target=redraw, daemon=True)
    thread.start()
    try:
        yield line.report
    finally:
        ended.set()
        thread.join()
        show_live("", stream)


@dataclass
class LiveLine:
    """What a live line says of the work. Time left is judged by the pace since the total was last another one."""

    of: str
    label: str = "preparing"
    done: int = 0
    total: int = 0
    began: float = 0.0
    done_before: int = 0

    def report(self, label: str, done: int, total: int) -> None:
        if not self.began or total != self.total:
            self.began, self.done_before = time.monotonic(), done
        self.label, self.done, self.total = label, done, total

    def text(self, now: float, width: int) -> str:
        """Return the line, cut to `width`."""
        took = now - self.began if self.began else 0.0
        if not self.total:
            return f"{self.label}  {_clock(took)}"[: width - 1]
        filled = min(_BAR, _BAR * self.done // self.total)
        bar, count = f"[{'#' * filled}{'.' * (_BAR - filled)}]", f"{self.done}/{self.total} {self.of}"
        if self.of != "runs":
            # What goes on side by side is longer than a line, and says itself how long it will take.
            return f"{count} {bar} {self.label}"[: width - 1]
        pace = (self.done - self.done_before) / took if took else 0.0
        left = f"{_clock((self.total - self.done) / pace)} left" if pace > 0 else ""
        return f"{self.label:<{_LABEL}} {bar} {count} {left}"[: width - 1]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
