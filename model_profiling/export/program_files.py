"""The files of an export as they are made: the program and the samples that it is checked with."""

from typing import Any

from model_profiling.base import files
from model_profiling.export.beside import beside
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.preparation import Prepared
from model_profiling.store.artifacts import ExportPaths


def write_program(program: Any, paths: ExportPaths) -> None:
    """Write the .pte, and the ETRecord beside it."""
    files.write_bytes(paths.pte, program.buffer)
    with beside("there is no ETRecord, and so no operator has a line"):
        try:
            program.get_etrecord().save(str(paths.etrecord))
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
