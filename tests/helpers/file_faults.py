"""What can happen to a file that somebody wrote whole: each fault is a function of its path."""

import os
from collections.abc import Callable
from pathlib import Path


def _flip(path: Path) -> None:
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(byte ^ 1 for byte in whole[middle : middle + 1]) + whole[middle + 1 :])


def _instead(put: Callable[[Path], object]) -> Callable[[Path], object]:
    def fault(path: Path) -> None:
        path.unlink()
        put(path)

    return fault


# Its bytes are others, or fewer.
CHANGED: dict[str, Callable[[Path], object]] = {
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "a flipped bit": _flip,
}
# Something else is there.
REPLACED: dict[str, Callable[[Path], object]] = {
    "removed": _instead(lambda path: None),
    "a directory": _instead(lambda path: (path / "in" / "it").mkdir(parents=True)),
    "a dangling link": _instead(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _instead(lambda path: path.symlink_to(path.name)),
    "a link to its folder": _instead(lambda path: path.symlink_to(path.parent)),
    "a pipe": _instead(os.mkfifo),
}
# It may not be used.
CLOSED: dict[str, Callable[[Path], object]] = {
    "unreadable": lambda path: path.chmod(0),
    "not executable": lambda path: path.chmod(0o644),
}
FAULTS = CHANGED | REPLACED | CLOSED
