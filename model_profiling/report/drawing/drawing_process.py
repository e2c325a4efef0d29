"""Processes that draw, spoken to through their pipes.

It is neither a fork (of a process that has threads, it may never wake up) nor one of multiprocessing's, which run the
caller's main module again: a script without a `__main__` guard would start itself, and one from standard input has no
file to run. It works the same in a script, a notebook and a REPL.
"""

import contextlib
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, Any

from model_profiling.base.code_path import python_command
from model_profiling.base.directories import remedy
from model_profiling.base.errors import RunError, SetupError
from model_profiling.base.programs import ChildProcess, StartError, start
from model_profiling.report.drawing import vega
from model_profiling.report.drawing.vega import SCREEN_SCALE, Drawing

_REPORT_IT = "Check free memory, `ulimit -n` and `ulimit -u`; else please report it with the run directory."
# A second process halves the drawing, but on two cores its own start would cost as much.
_HANDS = 2 if (os.cpu_count() or 1) > 2 else 1
# Drawn first, for nobody to see: by then the library has compiled most of what it needs.
_SKETCH: dict[str, Any] = {
    "vconcat": [
        {
            "title": "sketch",
            "data": {"values": [{"a": place, "b": str(place % 3)} for place in range(20)]},
            "layer": [
                {"mark": mark, "encoding": {"x": {"field": "a", "type": "quantitative"}, "color": {"field": "b"}}}
                for mark in ("bar", "text", "line", "point")
            ],
        }
    ]
    * 2
}


class DrawingProcess:
    """One such process. It starts at once, so that it is ready when there is something to draw."""

    def __init__(self) -> None:
        # What it says of its end, which is no business of the user's terminal.
        self._said: IO[bytes] = _scratch()
        self._process = _started(self._said)

    def ask(self, *question: Any) -> Any:
        """Have one picture drawn; a process that ends over it is replaced for the next one."""
        try:
            _send(self._process.stdin, question)
            worked, answer = pickle.load(_there(self._process.stdout))
        except (OSError, EOFError, pickle.UnpicklingError):
            why = f"the process that draws ended (exit code {self._end()}{self._last_words()})"
            self._process = _started(self._said)
            raise RunError(f"a picture could not be drawn: {why}", _REPORT_IT) from None
        if not worked:
            raise RunError(f"a picture could not be drawn: {' '.join(answer.split())}", _REPORT_IT)
        return answer

    def close(self) -> None:
        self._end()
        self._said.close()

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = [line.strip("# ") for line in self._said.read().decode(errors="replace").split("\n")]
        # A library that crashes prints addresses after it.
        reasons = [line for line in lines if re.search(r"memory|rror|panicked|Too many", line)] or lines
        return f": {reasons[-1]}" if reasons[-1] else ""

    def _end(self) -> int:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                _there(pipe).close()
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class DrawingPool:
    """Holds processes that draw: started early, they are ready when a run has been read, and draw while the rest of a
    report is written. Ask for pictures early and for their results late."""

    def __enter__(self) -> "DrawingPool":
        self._hands = [DrawingProcess() for _ in range(_HANDS)]
        self._free: queue.SimpleQueue[DrawingProcess] = queue.SimpleQueue()
        for hand in self._hands:
            self._free.put(hand)
        self._pool = ThreadPoolExecutor(max_workers=_HANDS)
        for _ in range(_HANDS):
            self._pool.submit(self._ask, "draw", _SKETCH, SCREEN_SCALE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for hand in self._hands:
            hand.close()

    def svg(self, spec: dict[str, Any]) -> "Future[str]":
        return self._pool.submit(self._ask, "svg", spec)

    def draw(self, spec: dict[str, Any], scale: float = SCREEN_SCALE) -> "Future[Drawing]":
        return self._pool.submit(self._ask, "draw", spec, scale)

    def _ask(self, *question: Any) -> Any:
        hand = self._free.get()
        try:
            return hand.ask(*question)
        finally:
            self._free.put(hand)


def serve() -> None:
    """Draw what is asked for until nobody is there to ask."""
    # Ctrl-C reaches us, too; whoever asked decides what it means, and our end is the end of their pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints is no answer.
    os.dup2(2, 1)
    answer_all(sys.stdin.buffer, answers)


def answer_all(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every question of a `DrawingProcess`, until there are no more."""
    tasks: dict[str, Callable[..., Any]] = {"svg": vega.svg, "draw": vega.draw}
    while True:
        try:
            name, *arguments = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = (True, tasks[name](*arguments))
        except Exception as error:  # noqa: BLE001 - raised again where the picture was asked for
            answer = (False, str(error))
        _send(answers, answer)


def _send(pipe: IO[bytes] | None, value: Any) -> None:
    pipe = _there(pipe)
    pipe.write(pickle.dumps(value))
    pipe.flush()


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # all of ours are pipes
    return pipe


def _scratch() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise SetupError(f"the process that draws cannot be started: {error.strerror}", remedy(error)) from None


def _started(said: IO[bytes]) -> ChildProcess:
    command = python_command("model_profiling.report.drawing.drawing_process")
    try:
        return start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
    except StartError as error:
        raise error.within("the process that draws") from None


if __name__ == "__main__":
    serve()
