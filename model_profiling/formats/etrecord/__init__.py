"""Reads an ETRecord, what ExecuTorch's exporter remembers of a model, without torch or executorch.

An ETRecord is a zip. `debug_handle_map` leads from an instruction to debug handles, `delegate_map` names the backend of
those that are delegate calls, and `edge_dialect_exported_program/<method>` is the graph before delegation, whose nodes
carry a debug handle, a stack trace and the stack of modules they stand in. What real records (ExecuTorch 1.5.1) hold:

Instructions. The number in an ETDump's event, the key in `debug_handle_map` and the index in the .pte's chain are the
same. Without an entry are instructions that later passes insert (`executorch_prim::et_view`, `aten::copy_` that writes
a buffer back, moves and jumps) and all that stand in a branch of `torch.cond`.

Handles are not unique. What quantization and decompositions put around an operator has the operator's handle, and may
lie in another instruction: the delegate after a portable `mean` lists the `mean` too, for the quantize it took over.
`source(..., operator=)` tells them apart where the operator is known. Inspector lists all, so do we.

Stack traces hold the `forward` frames only (helpers they call are left out), outermost first, with the first line of a
statement; the frameworks' own modules are among them. Paths are those of the machine that exported. In a quantized
model, what quantization inserted for a weight or an activation has a line but no module.

`delegate_map` has no map inside for XNNPACK; its graph in the .pte (`pte.xnnpack_graph`) keeps a debug handle per node,
which `nodes` looks up. `export_graph_id` is an address in the exporter's memory, not an identity.

JSON as Python writes it: `-Infinity` occurs, in attention masks.
"""

from model_profiling.formats.etrecord.archive import EtrecordError
from model_profiling.formats.etrecord.match import matches
from model_profiling.formats.etrecord.reader import Etrecord, EtrecordGraph, InputTensor, InstructionSource, read
from model_profiling.formats.etrecord.source import SourceNode

__all__ = [
    "Etrecord",
    "EtrecordError",
    "EtrecordGraph",
    "InputTensor",
    "InstructionSource",
    "SourceNode",
    "matches",
    "read",
]
