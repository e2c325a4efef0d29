"""Hashes of files that hardly ever change, such as installed libraries, kept from one command to the next.

A file counts as unchanged while its path, device, inode, size, mtime and ctime are what they were. Of these a program
can set back all but ctime, which the system moves on whenever content or state of a file changes: to go unnoticed, a
replacement needs the system's clock turned back, or a disk that changes bytes by itself. A file that changed within the
last seconds is not kept, as some file systems count in whole seconds.
"""

import contextlib
import time
from pathlib import Path

import msgspec

from model_profiling.base import cache, files
from model_profiling.base.directories import cache_directory
from model_profiling.base.errors import KitError
from model_profiling.base.file_memo import FileMemo, Key, file_key

_NAME = "hashes"
_MOST = 400
_YOUNG_NS = 5_000_000_000


def _sha256(path: Path) -> str:
    try:
        before, place, now = file_key(path), cache_directory() / _NAME, time.time_ns()
    except (OSError, ValueError, KitError):
        return files.sha256(path)  # which says what is wrong with it
    if (known := _read(place).get(_text(before))) is not None:
        return known
    found = files.sha256(path)
    if max(before[-2:]) < now - _YOUNG_NS and file_key(path) == before:
        # What another process adds meanwhile may go: it is then computed again.
        kept = dict([*list(_read(place).items())[1 - _MOST :], (_text(before), found)])
        with contextlib.suppress(OSError, KitError):
            place.parent.mkdir(parents=True, exist_ok=True)
            cache.write_sealed(place, msgspec.msgpack.encode(kept))
    return found


def _text(key: Key) -> str:
    """Return a file in one state, wherever it was named from."""
    return "\0".join(map(str, key[1:]))


def _read(place: Path) -> dict[str, str]:
    """Return what is kept; nothing if it is damaged."""
    data = cache.read_sealed(place)
    if data is not None:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(data, type=dict[str, str])
    return {}


kept_sha256 = FileMemo(_sha256, most=_MOST)
