"""Runs one `sme2-kit` command in a process of its own: its progress as it comes, its JSON at the end.

A process of its own, because what torch and runners print must not get into the protocol, and because a call that is
cancelled has to end at once.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
from anyio.streams.text import TextReceiveStream

from model_profiling.errors import KitError, RunError

Progress = Callable[[float, float | None, str], Awaitable[None]]
_PACKAGE_HOME = str(Path(__file__).resolve().parents[2])
# Not `-m`: that would look for the package in the workspace first.
_START = f"import sys; sys.path[0] = {_PACKAGE_HOME!r}; from model_profiling.cli.main import main; sys.exit(main())"
_COUNTED = re.compile(r"\((\d+)/(\d+) runs\)\s*$")


class Ended(msgspec.Struct, frozen=True):
    """How a command ended and what it printed."""

    code: int
    stdout: str

    def data(self) -> Any:
        return msgspec.json.decode(self.stdout)


async def run_kit(arguments: list[str], workspace: Path, progress: Progress, accept: tuple[int, ...] = (0,)) -> Ended:
    """Run to the end; an exit code that is not accepted becomes the error the command itself gave."""
    command = [sys.executable, "-c", _START, *arguments]
    process = await anyio.open_process(
        command,
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
            tasks.start_soon(_follow, process.stderr, said, progress)
        code = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    output = "".join(printed)
    # A command that failed before it had a result printed an error, whatever its exit code means elsewhere.
    if code not in accept or (code != 0 and (not output.strip() or output.lstrip("{ \n").startswith('"error"'))):
        raise _error(code, said)
    return Ended(code, output)


async def _collect(stream: "anyio.abc.ByteReceiveStream | None", into: list[str]) -> None:
    assert stream is not None
    async for text in TextReceiveStream(stream, errors="replace"):
        into.append(text)


async def _follow(stream: "anyio.abc.ByteReceiveStream | None", into: list[str], progress: Progress) -> None:
    """Turn the lines a command says into progress."""
    assert stream is not None
    rest, steps = "", 0
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            into.append(line)
            counted = _COUNTED.search(line)
            steps += 1
            if counted:
                await progress(float(counted[1]), float(counted[2]), line)
            elif line.strip():
                await progress(float(steps), None, line)


def _error(code: int, said: list[str]) -> KitError:
    """The two lines the command ended with, as an error."""
    message = next((line.removeprefix("error: ") for line in said if line.startswith("error: ")), "")
    hint = next((line.strip().removeprefix("fix: ") for line in said if line.startswith("  fix: ")), "")
    error = RunError(message or f"the command ended with exit code {code}", hint)
    error.exit_code = code
    return error
