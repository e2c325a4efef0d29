"""Runs one `sme2-kit` command in a process of its own: its progress as it comes, its JSON at the end.

A process of its own, because what torch and runners print must not get into the protocol, and because a call that is
cancelled has to end, with all that it started.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc
import msgspec
from anyio.streams.text import TextReceiveStream

from model_profiling.base.code_path import python_command
from model_profiling.base.errors import KitError, RunError

T = TypeVar("T")
Progress = Callable[[float, float | None, str], Awaitable[None]]
_COUNTED = re.compile(r"\((\d+)/(\d+)(?: runs)?\)\s*$")
# How long a command that is cancelled may take to end its runners and to put a device's settings back.
_GRACE_S = 10


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
    process = await anyio.open_process(
        python_command("model_profiling", *arguments),
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    printed: list[str] = []
    said: list[str] = []
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process.stdout, printed)
            tasks.start_soon(_follow, process.stderr, said, steps)
        code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    output = "".join(printed)
    # A command that failed before it had a result printed an error or nothing, whatever its exit code means elsewhere.
    if code not in accept or (code != 0 and not _is_result(output)):
        raise _error(code, said)
    return CommandResult(code, output)


async def _end(process: anyio.abc.Process) -> None:
    """Ask a command that still runs to end, as Ctrl-C does: it ends its runners, which have groups of their own."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(_GRACE_S):
            async with anyio.create_task_group() as tasks:
                # A full pipe would keep it from ending.
                tasks.start_soon(_collect, process.stdout, [])
                tasks.start_soon(_collect, process.stderr, [])
            await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


async def _collect(stream: "anyio.abc.ByteReceiveStream | None", into: list[str]) -> None:
    assert stream is not None
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for text in TextReceiveStream(stream, errors="replace"):
            into.append(text)


async def _follow(stream: "anyio.abc.ByteReceiveStream | None", into: list[str], steps: ProgressCounter) -> None:
    """Turn the lines a command says into progress."""
    assert stream is not None
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
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
    """Return the error that the command ended with, each of its two parts over as many lines as it has."""
    text = "\n".join(said).strip()
    _, found, error_text = f"\n{text}".rpartition("\nerror: ")
    message, _, hint = error_text.partition("\n  fix: ")
    if not found:
        message, hint = f"the command ended with exit code {code}", text.rpartition("\n")[2]
    error = RunError(message.strip(), hint.strip())
    error.exit_code = code
    return error
