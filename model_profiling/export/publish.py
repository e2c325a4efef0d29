"""The files of an export: written, and put in place: all of them, or none and the older ones stay."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_profiling.base import files
from model_profiling.base.directories import LIMITS
from model_profiling.base.errors import SetupError
from model_profiling.export.beside import beside
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.preparation import Prepared
from model_profiling.store.artifacts import ExportPaths

# How a hidden directory beside the destination begins; who has one holds the destination's lock.
STAGING = ".export-"


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


@contextlib.contextmanager
def writable(directory: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden directory into an error that names it."""
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"the export could not be written to {directory}: {error.strerror or error}",
            LIMITS.get(error.errno or 0, "Check the directory's permissions and free space, or choose another --out."),
        ) from error


def write_program(program: Any, paths: ExportPaths) -> None:
    """Write the .pte, and the ETRecord beside it."""
    files.write_bytes(paths.pte, program.buffer)
    with beside("there is no ETRecord, and so no operator has a line"):
        record = program.get_etrecord()
        # The captured program would be all weights once more, and the lines are those of the edge program.
        record.exported_program = None
        try:
            record.save(str(paths.etrecord))
        except BaseException:
            paths.etrecord.unlink(missing_ok=True)
            raise


def write_samples(prepared: Prepared, paths: ExportPaths) -> None:
    """Write the inputs of the model and what it answers to them."""
    paths.inputs.mkdir()
    paths.expected.mkdir()
    for index, tensor in enumerate(prepared.inputs):
        files.write_bytes(paths.inputs / f"input_{index}.npy", samples.npy_bytes(tensor))
    for index, tensor in enumerate(prepared.outputs):
        files.write_bytes(paths.expected / f"output_{index}.npy", samples.npy_bytes(tensor))
