"""Runs one `sme2-kit` command in a process of its own: its progress as it comes, its JSON at the end.

A process of its own, because what torch and runners print must not get into the protocol, and because a call that is
cancelled has to end, with all that it started.
"""

import codecs
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec

from model_profiling.base.child_watcher import GRACE_S
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import RunError
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
    command, said = python_command("model_profiling", *arguments), list[str]()
    with tempfile.TemporaryFile() as printed:
        # Not in another thread: a call that is cancelled meanwhile would not know what was started.
        process = start(command, workspace, signal.SIGTERM, stdout=printed, stderr=subprocess.PIPE)
        try:
            code = await _follow(process, said, steps)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    # A command that failed before it had a result printed an error or nothing, whatever its exit code means elsewhere.
    found = _decoded(output)
    printed_error = found.get("error") if isinstance(found, dict) else None
    if code not in accept or (code != 0 and (found is None or printed_error)):
        if isinstance(printed_error, dict):
            error = RunError(printed_error["message"], printed_error["hint"])
        else:
            error = RunError(*failure_of("\n".join(said), code))
        error.exit_code = code
        raise error
    return CommandResult(code, output)


async def _end(process: ChildProcess) -> None:
    """Ask a command that still runs to end, as Ctrl-C does: it ends its runners, which have groups of their own."""
    if process.poll() is None:
        process.terminate()
        with anyio.move_on_after(GRACE_S):
            # A full pipe would keep it from ending.
            await _follow(process, [], None)
    process.end_all()
    with process:
        pass  # what is left of it ends now, and its pipe is closed


async def _follow(process: ChildProcess, into: list[str], steps: ProgressCounter | None) -> int:
    """Turn the lines that a command says into progress, until it ends."""
    assert process.stderr is not None
    text, rest, data = codecs.getincrementaldecoder("utf-8")(errors="replace"), "", b"-"
    while data:
        await anyio.wait_readable(process.stderr)
        data = os.read(process.stderr.fileno(), 1 << 16)
        *lines, rest = (rest + text.decode(data, final=not data)).split("\n")
        for line in lines:
            into.append(line)
            if steps is not None:
                await steps.say(line)
    while (code := process.poll()) is None:
        await anyio.sleep(_LOOK_S)
    return code


def _decoded(output: str) -> Any:
    try:
        return msgspec.json.decode(output)
    except msgspec.DecodeError:
        return None
