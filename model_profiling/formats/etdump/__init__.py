"""Reads an ETDump, the trace ExecuTorch's tracer writes, straight into numpy columns. Needs numpy and nothing else.

What real dumps (ExecuTorch 1.5.1) look like, which the schema does not say:

Blocks. Each `Program::load_method` opens a block named `Default` and each `Method::execute` one named `Execute`, so a
program with two methods alternates between the two. The name of the method is written nowhere; two methods can only
be told apart by their operators.

Order. An event is written when it ends: children come before their parent. A delegated operator comes before its
`DELEGATE_CALL`, `native_call_<operator>` before its `OPERATOR_CALL`, all of them before `Method::execute`, the last
profiling event of the block. `nest` turns that order into columns.

Instructions. The children of a call carry its `chain` and `instruction` (the index into the method's chain in the
.pte). `Method::init`, `Program::load_method` and `Method::execute` have chain -1.

Delegates. A delegated event has no name; its identifier (a string for XNNPACK, `Transpose (ND, X32) #1`, an integer
for others) stands in its place, and Inspector prints that. Which *backend* ran it is not in the dump: only the .pte
knows, through the instruction. XNNPACK's `#1` counts within one delegate, so an operator is named by instruction and
identifier together.

Time. Start and end are ticks of the runtime's clock: nanoseconds on every host and phone, from an arbitrary zero.
Inspector only divides them by 1e6 to print milliseconds. XNNPACK's operators are whole microseconds laid end to end
from the moment the delegate starts to compute, so a 0.4 us operator reads 0, and the first operator of the first
execution starts well after its `DELEGATE_CALL`: XNNPACK allocates and reshapes in between.

Allocations, and tensors that a debugging runner recorded, are events, too. They are not read.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.base import files
from model_profiling.formats.etdump.flatbuffer import IDENTIFIER, EtdumpError, Words
from model_profiling.formats.etdump.reader import Etdump, Events, parse, read, root_table, run_tables
from model_profiling.upstream.names_in_files import CALLS, EXECUTE

__all__ = ["CALLS", "EXECUTE", "Etdump", "EtdumpError", "Events", "Nesting", "merged", "nest", "parse", "read"]

# What a dump's 64-bit fields are aligned to, counted from the size prefix; copies start at multiples of it.
_ALIGNMENT = 16
_LARGEST = 1 << 32
# Size prefix, root offset, identifier; a vtable of two fields; the table: its vtable's distance, version, vector.
_HEAD = struct.Struct("<II4s4HiII")


def merged(dumps: Sequence[Path]) -> bytes:
    """Return one dump with the blocks of all `dumps`, in their order."""
    bodies = [files.read_bytes(path, "ETDump", _LARGEST) for path in dumps]
    words = [Words(body, path) for body, path in zip(bodies, dumps, strict=True)]
    roots = [root_table(each) for each in words]
    runs = [run_tables(each, root).at * 4 for each, root in zip(words, roots, strict=True)]
    count = sum(map(len, runs))
    start = _aligned(_HEAD.size + 4 + 4 * count)
    starts = start + np.concatenate(([0], np.cumsum([_aligned(len(body)) for body in bodies])))
    if int(starts[-1]) > _LARGEST:
        problem = "with those of the other launches it is larger than a flatbuffer can be"
        raise EtdumpError(dumps[0], problem, hint="Trace fewer runs.")
    # An offset counts from where it is stored.
    targets = np.concatenate([at + begin for at, begin in zip(runs, starts[:-1].tolist(), strict=True)])
    offsets = targets - (_HEAD.size + 4 + 4 * np.arange(count))
    head = _HEAD.pack(int(starts[-1]) - 4, 16, IDENTIFIER, 8, 12, 4, 8, 8, int(roots[0].int32(0, 0)[0]), 4)
    vector = struct.pack("<I", count) + offsets.astype("<u4").tobytes()
    padded = [body.ljust(_aligned(len(body)), b"\0") for body in bodies]
    return b"".join([(head + vector).ljust(start, b"\0"), *padded])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


Indices = npt.NDArray[np.int64]


class Nesting(msgspec.Struct, frozen=True, eq=False):
    """Executions in order, and for each profiling event the one it is in and the call around it (-1: none)."""

    # The event `Method::execute` of each execution.
    executions: Indices
    execution: Indices
    # The event of the call around each event: a DELEGATE_CALL for a delegated operator. A call has none itself.
    call: Indices

    def __len__(self) -> int:
        return len(self.executions)


def nest(dump: Etdump) -> Nesting:
    """Attach each event to the next `Method::execute` and the next call of its block, since parents end last."""
    events = dump.events
    is_execute = (events.name == dump.code(EXECUTE)) & ~events.delegated
    is_call = np.isin(events.name, [code for code in map(dump.code, CALLS) if code >= 0]) & ~events.delegated
    # Loading has chain -1. Times would not do as a test: a delegate may count with a clock of its own.
    in_method = events.chain >= 0
    execute = _next(is_execute, events.block)
    execute[~(in_method | is_execute)] = -1
    executions = np.flatnonzero(is_execute)
    execution = np.where(execute < 0, -1, np.searchsorted(executions, execute))
    call = _next(is_call, events.block)
    if len(call):
        same_instruction = events.instruction == events.instruction[call]
        call[is_call | ~in_method | ~same_instruction | (events.chain != events.chain[call])] = -1
    return Nesting(executions, execution, call)


def _next(marked: npt.NDArray[np.bool_], block: npt.NDArray[np.int32]) -> Indices:
    """Return, for each event, the first marked one at or after it in its block, or -1."""
    markers = np.append(np.flatnonzero(marked), -1)
    following = markers[np.cumsum(marked) - marked]
    following[block != block[following]] = -1
    return following
