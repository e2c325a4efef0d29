"""Runs one `sme2-kit` command that ends when the process that started it ends, however that ended.

    python -m model_profiling.fleet.sweep.child_lifetime PARENT WORD…

It is asked to end (SIGTERM), not killed: it then ends its runners, puts a device's settings back, and keeps what is
measured.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
import time

from model_profiling.platforms.locks import process_exists

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.5


def tie(parent: int) -> None:
    """Ask for SIGTERM when the parent ends: from the kernel, else, where that is not Linux or something stands between
    us and the parent (a launcher), by a thread that looks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if sys.platform != "linux" or os.getppid() != parent:
        if not process_exists(parent):  # it ended before we asked
            sys.exit(1)
        threading.Thread(target=_look, args=(parent,), daemon=True).start()


def _look(parent: int) -> None:
    while process_exists(parent):
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    sys.argv = ["sme2-kit", *sys.argv[2:]]
    runpy.run_module("model_profiling", run_name="__main__", alter_sys=True)
