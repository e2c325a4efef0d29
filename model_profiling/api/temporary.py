"""Where results go when nobody names a place: a directory that lives as long as the process."""

import atexit
import os
import sys
import tempfile
import threading
from pathlib import Path

from model_profiling.base import files

_lock = threading.Lock()
_home: list[Path] = []


def temporary_directory(name: str) -> Path:
    """Return a new directory, removed when the process that asked for it ends."""
    with _lock:
        if not _home:
            _home.append(files.make_scratch("sme2_kit_"))
            atexit.register(_remove, _home[0], os.getpid())
    return Path(tempfile.mkdtemp(prefix=f"{name}_", dir=_home[0]))


def _remove(home: Path, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked ends before us
        # What ended the process, if anything did, may name a log.
        files.remove_scratch(home, getattr(sys, "last_value", None))
