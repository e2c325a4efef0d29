"""Programs that are asked something and answer with text: compilers, pip, `--version`."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


def run_program(
    command: Sequence[str], cwd: Path | None = None, timeout_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end. Interrupted, it ends with all that it started: a compiler's own processes, too."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # It may print names that are no text in this locale.
        errors="replace",
        cwd=cwd,
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, *said)
