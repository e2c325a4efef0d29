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

Memory. Allocators belong to a block and are numbered from 1; `allocator_id` is that number. Stock runners profile no
allocators, so most dumps have none.

Debug events. Tensors a debugging runner recorded: a delegate's inputs and outputs come before its `DELEGATE_CALL`, an
operator's before its `native_call_`, and the method's own outputs (`output`) after `Method::execute` with chain -1.
"""

from model_profiling.formats.etdump.columns import Allocations, Blocks, DebugEvents, Etdump, Events
from model_profiling.formats.etdump.flatbuffer import EtdumpError
from model_profiling.formats.etdump.merging import merged
from model_profiling.formats.etdump.nesting import Nesting, nest
from model_profiling.formats.etdump.reader import parse, read
from model_profiling.upstream.event_names import CALLS, EXECUTE

__all__ = [
    "CALLS",
    "EXECUTE",
    "Allocations",
    "Blocks",
    "DebugEvents",
    "Etdump",
    "EtdumpError",
    "Events",
    "Nesting",
    "merged",
    "nest",
    "parse",
    "read",
]
