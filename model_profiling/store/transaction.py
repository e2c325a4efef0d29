"""Several files of a directory that change together: whatever kills the writer, all of them are new or none is.

They are written into a hidden folder. When all are there a note says where they go, in one step; from then on each
step can be repeated, so whoever finds such a note, after whatever killed its writer, carries it out. A folder without a
note whose writer is gone is left over, and removed.
"""

import contextlib
import errno
import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.file_locks import folder_held, hold_for_life, is_abandoned
from model_profiling.store.artifacts import MANIFEST

_FOLDER = ".change-"
_NOTE = "change.json"
# What cannot be made again.
_DURABLE = (MANIFEST,)
# What the system says where one may read and not write.
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to happen, in this order: `removed` go, and the folder's file of each number goes to its place."""

    removed: list[str]
    written: list[str]


class FileTransaction:
    """A change of files in `root`, by their names there. Nothing happens to them before the end of `committing`."""

    def __init__(self, root: Path) -> None:
        self._root, self._written, self._removed = root, dict[str, int](), list[str]()
        self._folder = root / f"{_FOLDER}{os.urandom(8).hex()}"
        with folder_held(root):
            self._folder.mkdir()
            # Held as long as we live, which tells the folder from one that is left over.
            handle = hold_for_life(self._folder)
        self._end = weakref.finalize(self, _abandon, self._folder, handle)

    def write(self, name: str, data: bytes) -> None:
        """Have `data` at `name`; the last of several counts."""
        path = files.inside(self._root, self._root / name)
        if path.is_dir():
            raise cannot_write(path, errno.EISDIR)
        if path.parent.exists() and not os.access(path.parent, os.W_OK):
            raise cannot_write(path, errno.EACCES)
        number = self._written.setdefault(name, len(self._written))
        # Thousands of files would wait for the disk one after the other, and all of them can be made again.
        files.write_bytes(self._folder / str(number), data, durable=name in _DURABLE)

    def remove(self, name: str) -> None:
        self._removed.append(name)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Carry it out at the end of this, in which no other change of the directory happens.

        Killed at any point, `recover` does the rest, or everything is as it was.
        """
        with folder_held(self._root):
            _settle(self._root)
            yield
            removed = [name for name in self._removed if name not in self._written]
            files.write_json(self._folder / _NOTE, _Note(removed, list(self._written)))
            _carry_out(self._root, self._folder)
        self._end()


def begin(root: Path) -> FileTransaction | None:
    """Begin a change of files in `root`; None where one may read and not write."""
    try:
        return FileTransaction(root)
    except OSError as error:
        if error.errno in _READ_ONLY:
            return None
        raise cannot_write(root, error.errno or 0) from None


def cannot_write(path: Path, number: int) -> SetupError:
    return SetupError(
        f"{path} cannot be written: {os.strerror(number)}",
        "Choose another place (--out), or copy the run directory to one.",
    )


def recover(root: Path) -> None:
    """Carry out what a killed writer had decided, and remove what others left; where one may not write, nothing."""
    with contextlib.suppress(OSError):
        if next(root.glob(f"{_FOLDER}*"), None) is not None:
            with folder_held(root):
                _settle(root)


def _settle(root: Path) -> None:
    for folder in sorted(root.glob(f"{_FOLDER}*")):
        # A directory may come from anywhere: a link in it is not followed, and a note that no kit writes is left alone.
        with contextlib.suppress(KitError, OSError, ValueError):
            if folder.is_symlink():
                continue
            if files.is_file(folder / _NOTE):
                _carry_out(root, folder)
            elif is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _carry_out(root: Path, folder: Path) -> None:
    note = files.read_json(folder / _NOTE, _Note, "note of a change")
    for name in (*note.removed, *note.written):
        files.inside(root, root / name)
    for path in (root / name for name in note.removed):
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: other files lie there
            path.parent.rmdir()
    for number, name in enumerate(note.written):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it is in its place already
            (folder / str(number)).replace(root / name)
    shutil.rmtree(folder, ignore_errors=True)


def _abandon(folder: Path, handle: int) -> None:
    os.close(handle)
    shutil.rmtree(folder, ignore_errors=True)
