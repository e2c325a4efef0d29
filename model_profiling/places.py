"""Places: where the kit keeps what it can make again, and where it was called."""

import os
import sys
from pathlib import Path

from model_profiling.errors import SetupError

CACHE_VARIABLE = "SME2_KIT_CACHE"


def cache_directory() -> Path:
    """`$SME2_KIT_CACHE`, else the user's cache directory by the platform's custom."""
    try:
        if chosen := os.environ.get(CACHE_VARIABLE):
            return Path(chosen).expanduser().absolute()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "sme2-kit"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sme2-kit"
    except (OSError, RuntimeError):  # a user without a home, as in containers, or relative to a folder that is gone
        raise SetupError("there is no folder for the cache", f"Set {CACHE_VARIABLE} to one.") from None


def roofs_directory() -> Path:
    """`$SME2_KIT_ROOFS`, which machines may share, else in the cache."""
    chosen = os.environ.get("SME2_KIT_ROOFS")
    return Path(chosen).expanduser() if chosen else cache_directory() / "roofs"


def working_directory() -> str:
    """Where relative paths were meant from; '' if that directory is gone."""
    try:
        return str(Path.cwd().resolve())
    except OSError:
        return ""
