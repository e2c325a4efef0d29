"""Put the files of an export in place: all of them, or none and the older ones stay."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import SetupError

STAGING = ".export-"


@contextlib.contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """Give a hidden directory beside the destination, gone afterwards; the caller holds the destination's lock."""
    # The caller holds the lock, so this is what a killed export left.
    files.remove_abandoned(directory, f"{STAGING}*")
    with files.scratch_directory(STAGING, directory) as path:
        yield path


def publish(staged: Path, directory: Path, names: list[str]) -> None:
    """Move `names` from `staged` to `directory` in order, none for none; when it fails, put back what was there."""
    replaced = staged / "replaced"
    replaced.mkdir()
    done: list[str] = []
    try:
        for name in names:
            done.append(name)
            if os.path.lexists(directory / name):
                (directory / name).rename(replaced / name)
            if os.path.lexists(staged / name):
                (staged / name).rename(directory / name)
    except BaseException:
        for name in reversed(done):
            if os.path.lexists(replaced / name):
                _remove(directory / name)
                (replaced / name).rename(directory / name)
            elif not os.path.lexists(staged / name):
                _remove(directory / name)
        raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refuse_unwritable(directory: Path) -> None:
    """Find out before the work whether its results can be written there; nothing is left behind."""
    nearest = next((place for place in (directory, *directory.parents) if os.path.lexists(place)), Path())
    with writable(directory):
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is not a directory")
        with tempfile.TemporaryFile(dir=nearest):
            pass


@contextlib.contextmanager
def writable(directory: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden directory into an error that names it."""
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"the export could not be written to {directory}: {error.strerror or error}",
            "Check the directory's permissions and the free space, or choose another --out.",
        ) from error
