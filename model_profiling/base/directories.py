"""Places: where the kit keeps what it can make again, and where it was called."""

import contextlib
import errno
import os
import sys
from pathlib import Path

from model_profiling.base.errors import SetupError

LIMITS = {
    errno.EMFILE: "Allow more open files: ulimit -n 1024.",
    errno.ENFILE: "Close other programs: the system has too many open files.",
    errno.EFBIG: "Allow larger files: ulimit -f unlimited.",
    errno.EPIPE: "The program at the other end has ended; start it again.",
    errno.EBADF: "Check where standard input and output are redirected to.",
    errno.ENAMETOOLONG: "Use a shorter name.",
    errno.ENODEV: "Give a file in another folder.",
    errno.EISDIR: "Give the name of a file in it.",
    errno.EAGAIN: "Allow more processes (ulimit -u), or close other programs.",
    errno.ENOMEM: "Close other programs, or allow more memory (ulimit -v).",
}
CACHE_VARIABLE = "SME2_KIT_CACHE"


def cache_directory() -> Path:
    """Return `$SME2_KIT_CACHE`, else the user's cache directory by the platform's custom."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return from_home(chosen)
    if sys.platform == "darwin":
        return from_home("~/Library/Caches/sme2-kit")
    return from_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "sme2-kit"


def roofs_directory() -> Path:
    """Return `$SME2_KIT_ROOFS`, which machines may share, else in the cache."""
    chosen = os.environ.get("SME2_KIT_ROOFS")
    return from_home(chosen) if chosen else cache_directory() / "roofs"


def state_directory() -> Path:
    """Return where what cannot be made again is kept for a user: `$XDG_STATE_HOME`, else by the platform's custom."""
    if chosen := os.environ.get("XDG_STATE_HOME"):
        return from_home(chosen) / "sme2-kit"
    return from_home("~/Library/Application Support" if sys.platform == "darwin" else "~/.local/state") / "sme2-kit"


def from_home(path: str) -> Path:
    """Return a path that may begin with ~."""
    try:
        return Path(path).expanduser().absolute()
    except (OSError, RuntimeError):
        what = f"{path} cannot be found: there is no such home directory, or the working directory is gone"
        raise SetupError(what, "Set HOME, or SME2_KIT_CACHE to a directory for what the kit can make again.") from None


def remedy(error: OSError, path: "str | os.PathLike[str]" = "") -> str:
    """Return what to do about a file that could not be opened, written or started."""
    if error.errno in LIMITS:
        return LIMITS[error.errno]
    if not Path(path).is_absolute() and not working_directory():
        return "The working directory is gone: change to one that is there."
    with contextlib.suppress(SetupError):
        cache = cache_directory()
        # One of its parents, where it cannot be made.
        if path and (Path(path).is_relative_to(cache) or cache.is_relative_to(path)):
            return "Check free space and permissions there, or set SME2_KIT_CACHE to another directory."
    return "Check free space and permissions there."


def working_directory() -> str:
    """Return where relative paths were meant from; '' if that directory is gone."""
    try:
        return str(Path.cwd().resolve())
    except OSError:
        return ""
