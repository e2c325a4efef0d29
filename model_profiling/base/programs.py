"""Programs that are asked something and answer with text: compilers, pip, `--version`."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path


def run_program(
    command: Sequence[str], cwd: Path | None = None, timeout_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end. Interrupted, it ends with all that it started: a compiler's own processes, too."""
    with _interrupted_later() as received:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # It may print names that are no text in this locale.
            errors="replace",
            cwd=cwd,
            start_new_session=True,
        )
    with process:
        try:
            for number in received:
                signal.raise_signal(number)
            said = process.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, *said)


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
