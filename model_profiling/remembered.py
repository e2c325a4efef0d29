"""What was computed of a file, kept until the file changes: one command reads and hashes a program once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from model_profiling import files

T = TypeVar("T")
# Two changes within one tick of a file system's clock leave the same times; what is younger is not kept.
_TICK_NS = 100_000_000


class Remembered(Generic[T]):
    """A function of a file that is called again only when the file is another one, for the last `most` files."""

    def __init__(self, compute: Callable[[Path], T], most: int = 2) -> None:
        self._compute = compute
        self._most = most
        self._known: dict[tuple[object, ...], T] = {}

    def __call__(self, path: Path) -> T:
        try:
            state = path.stat()
        except (OSError, ValueError):
            return self._compute(path)  # which says what is wrong with it
        changed = (state.st_mtime_ns, state.st_ctime_ns)
        # As it was written as well: what was computed may hold the path, and the working directory may change.
        key = (str(path), str(path.absolute()), state.st_dev, state.st_ino, state.st_size, *changed)
        known = self._known
        if key in known:
            return known[key]
        settled = time.time_ns() - max(changed) > _TICK_NS
        found = self._compute(path)
        if settled:
            # Another dictionary each time: other threads may be reading the one before.
            kept = list(known.items())[-(self._most - 1) :]
            self._known = dict([*kept, (key, found)])
        return found


# The hash of a .pte: they are large, and several parts of one command ask for it.
program_sha256 = Remembered(files.sha256)
