"""What a .pte says by itself of the memory it will take: planned arenas, constants, and what delegates bring along."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from model_profiling.base.errors import InputError

if TYPE_CHECKING:
    from model_profiling.formats.pte import Delegate, Program

# The method that the kit's runner executes.
_METHOD = "forward"


class Arena(msgspec.Struct, frozen=True):
    """Memory that was planned at export for values outside delegates, shared by values that do not live together."""

    memory_id: int
    bytes: int


class DelegateData(msgspec.Struct, frozen=True):
    """What the delegates of one backend bring along. `constant_bytes`, a part of it, are weights in XNNPACK's blobs;
    None where the blobs do not say."""

    backend: str
    delegates: int
    blob_bytes: int
    constant_bytes: int | None = None


class ProgramMemory(msgspec.Struct, frozen=True):
    """Bytes that follow from the file. `named_bytes` are weights that delegates look up by name, so as to share them;
    `constant_bytes` are tensors that no delegate has taken."""

    method: str
    arenas: list[Arena]
    constant_bytes: int
    named_bytes: int
    delegates: list[DelegateData]
    # What a language model keeps between executions, keys and values above all; a part of the arenas.
    cache_bytes: int = 0

    @property
    def planned_bytes(self) -> int:
        return sum(arena.bytes for arena in self.arenas)

    @property
    def all_constant_bytes(self) -> int:
        """All weights in the file; of a delegate that does not say, its blob, which is weights above all."""
        inside = [each.blob_bytes if each.constant_bytes is None else each.constant_bytes for each in self.delegates]
        return self.constant_bytes + self.named_bytes + sum(inside)


def program_memory(model: Path | None) -> ProgramMemory | None:
    """Return what the .pte says; None if it is gone or cannot be read."""
    if model is None:
        return None
    from model_profiling.formats import pte
    from model_profiling.formats.pte.sequence import sequence_program

    try:
        program = pte.read(model)
        method = program.method(_METHOD) or next(iter(program.methods), None)
        if method is None:
            return None
        backends: dict[str, set[Delegate]] = {}
        for delegate in method.delegates:
            backends.setdefault(delegate.backend, set()).add(delegate)
        delegates = [_data(program, backend, blobs) for backend, blobs in backends.items()]
    except InputError:
        return None
    arenas = [Arena(number, size) for number, size in enumerate(method.planned, 1)]
    sequence = sequence_program(program)
    kept = sequence.cache_bytes if sequence is not None else 0
    return ProgramMemory(method.name, arenas, program.constant_bytes, program.named_bytes, delegates, kept)


def _data(program: "Program", backend: str, blobs: "set[Delegate]") -> DelegateData:
    from model_profiling.formats.pte import xnnpack_graph

    sizes: list[int | None] = [None]
    if backend == xnnpack_graph.BACKEND:
        sizes = [xnnpack_graph.constant_bytes(program, blob) for blob in blobs]
    known = [size for size in sizes if size is not None]
    constants = sum(known) if len(known) == len(sizes) else None
    return DelegateData(backend, len(blobs), sum(blob.size for blob in blobs), constants)
