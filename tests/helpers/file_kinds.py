"""What may lie where a file is expected: each kind by its name, and how to make it."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

_HUGE = 1 << 40
_MOST_GROWTH = 16 << 20


def clear(path: Path) -> None:
    """Remove what an earlier case left."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _linked_outside(path: Path, data: bytes) -> None:
    other = path.parent.parent / f"outside_{path.name}"
    other.write_bytes(data)
    path.symlink_to(other)


def _unreadable(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0)


def _sparse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.truncate(path, _HUGE)


def _growing(path: Path, data: bytes) -> None:
    """A thread appends to it as fast as it can, up to a size."""
    path.write_bytes(data)
    # Opened here: the case may be over before the thread begins, and its folder must stay empty.
    file = path.open("ab")

    def grow() -> None:
        with contextlib.suppress(OSError), file:
            for _ in range(_MOST_GROWTH >> 16):
                file.write(b" " * (1 << 16))

    threading.Thread(target=grow, daemon=True).start()


KINDS: dict[str, Callable[[Path, bytes], object]] = {
    "regular": lambda path, data: path.write_bytes(data),
    "empty": lambda path, data: path.write_bytes(b""),
    "link to a file outside": _linked_outside,
    "dangling link": lambda path, data: path.symlink_to("nowhere"),
    "link to itself": lambda path, data: path.symlink_to(path.name),
    "FIFO": lambda path, data: os.mkfifo(path),
    "link to /dev/zero": lambda path, data: path.symlink_to("/dev/zero"),
    "link to /dev/full": lambda path, data: path.symlink_to("/dev/full"),
    "link to /proc": lambda path, data: path.symlink_to("/proc/self/maps"),
    "directory": lambda path, data: path.mkdir(),
    "unreadable": _unreadable,
    "sparse": _sparse,
    "growing": _growing,
}
