"""Runs one `sme2-kit` command in a process of its own: its progress as it comes, its JSON at the end.

A process of its own, because what torch and runners print must not get into the protocol, and because a call that is
cancelled has to end, with all that it started.
"""

import codecs
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import IO, TypeVar

import anyio
import msgspec

from model_profiling.base.child_watcher import GRACE_S
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.programs import ChildProcess, start
from model_profiling.fleet.sweep.executor import failure_of

T = TypeVar("T")
Progress = Callable[[float, float | None, str], Awaitable[None]]
_COUNTED = re.compile(r"\((\d+)/(\d+)(?: runs)?\)\s*$")
_LOOK_S = 0.02


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended and what it printed."""

    code: int
    stdout: str

    def read(self, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(self.stdout, type=type_)
        except msgspec.DecodeError as error:
            raise RunError(f"the command's output cannot be read: {error}", "Report this with the call.") from None


class ProgressCounter:
    """Numbers for progress that only rise, as the protocol wants, over all commands of one call.

    A line that says `(done/total)` counts on from where the lines before it ended, and its total with it.
    """

    def __init__(self, tell: Progress) -> None:
        self._tell = tell
        self._last = 0.0
        self._start = 0.0
        self._total = 0.0

    async def say(self, line: str) -> None:
        if not line.strip():
            return
        counted = _COUNTED.search(line)
        if counted is None:
            self._total = 0.0
            await self._report(self._last + 1, None, line)
            return
        done, total = float(counted[1]), float(counted[2])
        if total != self._total or self._start + done < self._last:
            self._start, self._total = self._last, total
        await self._report(self._start + done, self._start + total, line)

    async def _report(self, value: float, total: float | None, line: str) -> None:
        if value > self._last:
            self._last = value
            await self._tell(value, total, line.strip())


async def run_kit(
    arguments: list[str], workspace: Path, steps: ProgressCounter, accept: tuple[int, ...] = (0,)
) -> CommandResult:
    """Run to the end; an exit code that is not accepted becomes the error the command itself gave."""
    # Not in another thread: a call that is cancelled meanwhile would not know what was started.
    command = python_command("model_profiling", *arguments)
    process = start(command, workspace, signal.SIGTERM, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed: list[str] = []
    said: list[str] = []
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process.stdout, printed)
            tasks.start_soon(_follow, process.stderr, said, steps)
        code = await _wait(process)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    output = "".join(printed)
    # A command that failed before it had a result printed an error or nothing, whatever its exit code means elsewhere.
    if code not in accept or (code != 0 and not _is_result(output)):
        raise _error(code, said)
    return CommandResult(code, output)


async def _wait(process: ChildProcess) -> int:
    while (code := process.poll()) is None:
        await anyio.sleep(_LOOK_S)
    return code


async def _end(process: ChildProcess) -> None:
    """Ask a command that still runs to end, as Ctrl-C does: it ends its runners, which have groups of their own."""
    if process.poll() is None:
        process.terminate()
        with anyio.move_on_after(GRACE_S):
            async with anyio.create_task_group() as tasks:
                # A full pipe would keep it from ending.
                tasks.start_soon(_collect, process.stdout, [])
                tasks.start_soon(_collect, process.stderr, [])
            await _wait(process)
    process.end_all()
    # What is left of it ends now, and its pipes are closed.
    with process:
        pass


async def _read(stream: IO[bytes] | None) -> AsyncIterator[str]:
    assert stream is not None
    text = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while True:
        await anyio.wait_readable(stream)
        data = os.read(stream.fileno(), 1 << 16)
        yield text.decode(data, final=not data)
        if not data:
            return


async def _collect(stream: IO[bytes] | None, into: list[str]) -> None:
    async for text in _read(stream):
        into.append(text)


async def _follow(stream: IO[bytes] | None, into: list[str], steps: ProgressCounter) -> None:
    """Turn the lines a command says into progress."""
    rest = ""
    async for text in _read(stream):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            into.append(line)
            await steps.say(line)


def _is_result(output: str) -> bool:
    try:
        found = msgspec.json.decode(output)
    except msgspec.DecodeError:
        return False
    return not (isinstance(found, dict) and "error" in found)


def _error(code: int, said: list[str]) -> KitError:
    """Return the error that the command ended with."""
    error = RunError(*failure_of("\n".join(said), code))
    error.exit_code = code
    return error
