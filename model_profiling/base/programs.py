"""The one way to start a process: it ends with this one, and one that cannot be started is a `StartError`.

Each has a process group of its own, so that a compiler's passes and a runner behind a launcher are ended with it, and
Ctrl-C reaches this process alone. `child_watcher.py` ends them where this process cannot, because it was killed.
"""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from model_profiling.base import child_watcher
from model_profiling.base.code_path import script_command
from model_profiling.base.directories import remedy
from model_profiling.base.errors import SetupError
from model_profiling.base.on_progress import long_step

# What passes: too many processes or too little memory for the moment, a program that is still being written.
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY)
_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
_HINTS = {
    errno.ENOENT: "Install it, or correct its path.",
    errno.EACCES: "Allow it to be executed: chmod +x, on a file system that is not mounted noexec.",
    errno.ENOEXEC: "Use one that is built for this machine.",
    errno.ETXTBSY: "Wait until it is written: another process has it open.",
    errno.E2BIG: "Give fewer or shorter arguments, or make the environment smaller.",
}


class StartError(SetupError):
    """A process could not be started."""

    def __init__(self, program: str, error: Exception, cwd: Path | None) -> None:
        why, hint = str(error), "Correct its name."
        if isinstance(error, OSError):
            why, hint = error.strerror or why, _HINTS.get(error.errno or 0, "") or remedy(error, program)
        where = f" in {cwd}" if cwd is not None and not cwd.is_dir() else ""
        super().__init__(f"{program} cannot be started{where}: {why}", hint)


class TimedOutError(SetupError):
    """A program did not end in time."""

    def __init__(self, program: str, timeout_s: float) -> None:
        super().__init__(f"{program} did not end within {timeout_s:g} s", "Start it by hand to see why it hangs.")


class ChildProcess(subprocess.Popen[bytes]):
    """A process that ends with this one. Its `number` is negative where that means its whole group."""

    number: int

    def poll(self) -> int | None:
        return self._noted(super().poll())

    def wait(self, timeout: float | None = None) -> int:
        self._noted(super().wait(timeout))
        return self.returncode

    def end_all(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to it and to all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.number, how)

    def _noted(self, code: int | None) -> int | None:
        if code is not None:
            _watcher.tell(self.number, 0)
        return code


class _Watcher:
    """The process that ends ours when we are gone: started before the first of them, and again if it was ended."""

    def __init__(self) -> None:
        self._lock, self._pipe = threading.RLock(), -1
        self._alive: dict[int, int] = {}

    def tell(self, number: int, how: int) -> None:
        """Note that a process is to be ended by a signal, or by 0 that it has ended."""
        with self._lock:
            if how:
                self._alive[number] = how
            elif not self._alive.pop(number, 0):
                return
            # All of them again if the watcher was ended; where there cannot be another one, work goes on without.
            for known in ({number: how}, self._alive):
                with contextlib.suppress(BrokenPipeError):
                    if known:
                        self.begin()
                        os.write(self._pipe, b"".join(b"%d %d\n" % each for each in known.items()))
                    break
                self.leave()

    def begin(self) -> None:
        with self._lock:
            if self._pipe < 0:
                reading, self._pipe = os.pipe()
                # Nobody who reads our output waits for it, and no folder is kept in use by it.
                streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
                # A shell starts it and ends: it is nobody's child, for whoever counts ours.
                command = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh", *script_command(child_watcher.__file__)]
                try:
                    subprocess.Popen(command, stdin=reading, start_new_session=True, **streams).wait()
                except BaseException:
                    self.leave()
                    raise
                finally:
                    os.close(reading)

    def leave(self) -> None:
        """Close our end of the pipe: the watcher is gone, or that of the process that we were forked from."""
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = -1


_watcher = _Watcher()


def _after_fork() -> None:
    global _watcher
    forked, _watcher = _watcher, _Watcher()
    forked.leave()


os.register_at_fork(after_in_child=_after_fork)


def start(
    command: Sequence[str],
    cwd: Path | None = None,
    ends_by: signal.Signals = signal.SIGKILL,
    own_group: bool = True,
    stdin: int = subprocess.DEVNULL,
    **options: Any,
) -> ChildProcess:
    """Start a program, again after a pause where that failed for a reason that passes.

    `ends_by` is the signal that it gets when this process is gone. One that asks on the terminal has no `own_group`.
    `options` are those of `subprocess.Popen`.
    """
    for pause in (*_PAUSES_S, None):
        try:
            return _started(command, ends_by, own_group, {"cwd": cwd, "stdin": stdin, **options})
        except (OSError, ValueError, TypeError) as error:
            if pause is None or getattr(error, "errno", 0) not in _PASSING:
                raise StartError(str(command[0]), error, cwd) from None
            time.sleep(pause)
    raise AssertionError("the last attempt has raised")


def _started(command: Sequence[str], ends_by: signal.Signals, own_group: bool, options: dict[str, Any]) -> ChildProcess:
    with _interrupted_later() as received:
        _watcher.begin()
        process = ChildProcess(command, start_new_session=own_group, **options)
        process.number = -process.pid if own_group else process.pid
        _watcher.tell(process.number, ends_by)
    try:
        for number in received:
            signal.raise_signal(number)
    except BaseException:
        process.end_all()
        raise
    return process


def run_program(
    command: Sequence[str], cwd: Path | None = None, timeout_s: float | None = None, *, doing: str, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, with all that it starts: compilers, pip, `--version`.

    `doing` is what people are told who wait for it; '' where they are told otherwise, or it answers at once.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with start(command, cwd, **options) as process, long_step(doing):
        try:
            said = process.communicate(timeout=timeout_s)
        except BaseException as error:
            process.end_all()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimedOutError(str(command[0]), error.timeout) from None
            raise
    # It may print names that are no text in this locale.
    texts = ((part or b"").decode(errors="replace") for part in said)
    return subprocess.CompletedProcess(command, process.returncode, *texts)


def is_ready(pipe: IO[bytes] | None, within_s: float, event: int = selectors.EVENT_READ) -> bool:
    """Wait until a pipe from a process, or to it, can be read or written; return whether it can within that time."""
    assert pipe is not None
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, event)
        return bool(selector.select(max(0.0, within_s)))


@contextlib.contextmanager
def _interrupted_later() -> Iterator[list[int]]:
    """Keep signals that ask us to end: in the middle of a start nobody would know what was started."""
    received: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    # What is ignored stays so, for the program, too; and only a handler of Python's can be put back.
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if main}
    kept = {number: handler for number, handler in kept.items() if callable(handler)}
    for number in kept:
        signal.signal(number, lambda found, _frame: received.append(found))
    try:
        yield received
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
