"""Where results go when nobody names a place: a directory that lives as long as the process."""

import atexit
import os
import sys
from pathlib import Path

from model_profiling.base import files


def temporary_directory(name: str) -> Path:
    """Return a new directory, removed when the process that asked for it ends."""
    home = files.make_scratch(f"sme2_kit_{name}_")
    atexit.register(_remove, home, os.getpid())
    return home


def _remove(home: Path, owner: int) -> None:
    if os.getpid() == owner:  # a child that was forked ends before us
        # What ended the process, if anything did, may name a log.
        files.remove_scratch(home, getattr(sys, "last_value", None))
