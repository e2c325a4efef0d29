"""What was computed of a file, kept until the file changes: one command reads and hashes a program once."""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from model_profiling.base import files

T = TypeVar("T")
# The path as it was written and in full, device, inode, size, and when content and state were last changed.
Key = tuple[str, str, int, int, int, int, int]
# Two changes within one tick of a file system's clock leave the same times; what is younger is not kept.
_TICK_NS = 100_000_000


class FileMemo(Generic[T]):
    """A function of a file that is called again only when the file is another one, for the last `most` files."""

    def __init__(self, compute: Callable[[Path], T], most: int = 2) -> None:
        self._compute = compute
        self._most = most
        self._known: dict[Key, T] = {}
        _every.add(self)

    def __call__(self, path: Path) -> T:
        try:
            key = file_key(path)
        except (OSError, ValueError):
            return self._compute(path)  # which says what is wrong with it
        known = self._known
        if key in known:
            return known[key]
        settled = time.time_ns() - max(key[-2:]) > _TICK_NS
        found = self._compute(path)
        if settled:
            self._add(key, found)
        return found

    def carry(self, before: Key, after: Key) -> None:
        """Know of a file in its state `after` what was known of it before."""
        if before in self._known:
            self._add(after, self._known[before])

    def _add(self, key: Key, found: T) -> None:
        # Another dictionary each time: other threads may be reading the one before.
        kept = list(self._known.items())[-(self._most - 1) :]
        self._known = dict([*kept, (key, found)])


_every: "weakref.WeakSet[FileMemo[Any]]" = weakref.WeakSet()


def file_key(path: Path) -> Key:
    """Return a file in one state. As it was written as well: what was computed may hold the path, and the working
    directory may change."""
    state = path.stat()
    places = (str(path), str(path.absolute()))
    return (*places, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@contextlib.contextmanager
def same_content(path: Path) -> Iterator[None]:
    """Give a file a second name in here: that counts as a change of the file, but what is known of it still holds."""
    before = file_key(path)
    yield
    after = file_key(path)
    if before[:-1] == after[:-1]:
        for each in list(_every):
            each.carry(before, after)


# The hash of a .pte: they are large, and several parts of one command ask for it.
program_sha256 = FileMemo(files.sha256)
