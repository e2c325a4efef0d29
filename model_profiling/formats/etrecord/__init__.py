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

from pathlib import Path

from model_profiling.formats import pte as pte_format
from model_profiling.formats.etrecord.reader import (
    Etrecord,
    EtrecordError,
    EtrecordGraph,
    InstructionSource,
    SourceNode,
    read,
)
from model_profiling.formats.graph_terms import packet
from model_profiling.formats.pte import DELEGATE, KERNEL, Instruction, Method, Program
from model_profiling.formats.pte.xnnpack_graph import XnnpackGraph, graphs

Sources = dict[int, InstructionSource]

# Passes after the ETRecord's graph was taken put these in: views, arithmetic on sizes, and writing a buffer back.
_INSERTED = ("executorch_prim::", "aten::copy_")
# Operators of other families may be the product of a pass that fuses several.
_NEVER_FUSED = ("aten::", "dim_order_ops::")
_FLOATS = ("float16", "float32", "float64", "bfloat16")

# What in the model an XNNPACK node with weights comes from.
_CONVOLUTIONS = ("Conv2d", "DepthwiseConv2d", "ConvTranspose2d")
_CONVOLUTION = "aten.convolution"


def matches(etrecord: Etrecord, pte: Path) -> str | None:
    """Say why the ETRecord was made for another export than the .pte; None if nothing speaks for that.

    Compared are methods, inputs, the kind, backend and operator of each instruction, and the debug handles inside
    XNNPACK's delegates. Two exports that differ in weights alone look the same; the SHA-256 of both files in
    export_meta.json tells them apart.
    """
    program = pte_format.read(pte)
    for name, sources in etrecord.sources.items():
        method = program.method(name)
        if method is None:
            return f"the ETRecord has a method {name!r}, the .pte does not"
        graph = etrecord.graphs[name]
        reason = _inputs(method, graph) or _instructions(method, sources, graph) or _xnnpack(program, method, sources)
        if reason:
            return f"in method {name!r}, {reason}"
    unknown = [method.name for method in program.methods if method.instructions and method.name not in etrecord.sources]
    return f"the .pte has a method {unknown[0]!r}, the ETRecord does not" if unknown else None


def _inputs(method: Method, graph: EtrecordGraph) -> str | None:
    """Compare the tensors the method takes, where both sides fix them."""
    ours = [tensor for tensor in method.inputs if tensor is not None]
    if len(ours) != len(graph.inputs):
        return f"the .pte takes {len(ours)} tensors, the ETRecord's model {len(graph.inputs)}"
    for index, (there, here) in enumerate(zip(ours, graph.inputs, strict=True)):
        fixed = [size if other is not None else None for size, other in zip(there.sizes, here.sizes, strict=False)]
        if len(there.sizes) != len(here.sizes) or fixed != list(here.sizes):
            return f"input {index} is {list(there.sizes)} in the .pte and {list(here.sizes)} in the ETRecord"
        # A pass may let the program take quantized inputs, but none turns one float into another.
        if there.dtype != here.dtype and there.dtype in _FLOATS and here.dtype in _FLOATS:
            return f"input {index} is {there.dtype} in the .pte and {here.dtype} in the ETRecord"
    return None


def _instructions(method: Method, sources: Sources, graph: EtrecordGraph) -> str | None:
    """Compare what each instruction calls."""
    steps = {step.index: step for step in method.instructions if step.chain == 0}
    beyond = next((index for index in sources if index not in steps), None)
    if beyond is not None:
        return f"the ETRecord has an instruction {beyond}, the .pte has {len(steps)}"
    # Instructions inside the branches of a condition have no place in an ETRecord.
    branches = any(step.kind == "JumpFalseCall" for step in steps.values())
    packets = {packet(op) for op in graph.operators}
    for step in steps.values():
        source = sources.get(step.index)
        reason = _unknown(step, branches) if source is None else _other(step, source, packets)
        if reason:
            return f"instruction {step.index} {reason}"
    return None


def _unknown(step: Instruction, branches: bool) -> str | None:
    """Judge an instruction the ETRecord does not have."""
    if branches or step.kind not in (KERNEL, DELEGATE) or step.name.startswith(_INSERTED):
        return None
    # An operator of a library that writes to its arguments (`llama::update_cache`) is wrapped in another while the
    # graph is taken, and the wrapper has no debug handle.
    if step.kind == KERNEL and not step.name.startswith(_NEVER_FUSED):
        return None
    return f"calls {step.name} in the .pte and is unknown to the ETRecord"


def _other(step: Instruction, source: InstructionSource, packets: set[str]) -> str | None:
    """Judge an instruction both have."""
    called = step.name if step.kind == DELEGATE else None
    if called != source.delegate or step.kind not in (KERNEL, DELEGATE):
        return f"is {step.name or step.kind} in the .pte and {source.delegate or 'a kernel call'} in the ETRecord"
    if called is not None or step.name.startswith(_INSERTED) or not source.nodes:
        return None
    named = {packet(node.op) for node in source.nodes}
    known = packet(step.name) in packets or step.name.startswith(_NEVER_FUSED)
    if known and packet(step.name) not in named:
        return f"calls {step.name} in the .pte and is {' or '.join(sorted(named))} in the ETRecord"
    return None


def _xnnpack(program: Program, method: Method, sources: Sources) -> str | None:
    """Compare the debug handles inside XNNPACK's delegates with those the ETRecord lists for each."""
    for index, graph in graphs(program, method).items():
        if index in sources and (reason := _handles(graph, sources[index])):
            return f"the XNNPACK delegate of instruction {index} {reason}"
    return None


def _handles(graph: XnnpackGraph, source: InstructionSource) -> str | None:
    packets: dict[int, set[str]] = {}
    for node in source.nodes:
        packets.setdefault(node.debug_handle, set()).add(packet(node.op))
    for step in graph.nodes:
        if not step.debug_handle:
            continue
        named = packets.get(step.debug_handle)
        if named is None:
            return f"has a {step.op} of debug handle {step.debug_handle}, which the ETRecord does not list for it"
        if step.op in _CONVOLUTIONS and _CONVOLUTION not in named:
            return f"has a {step.op} where the ETRecord has {' and '.join(sorted(named))}"
    return None


__all__ = ["Etrecord", "EtrecordError", "InstructionSource", "SourceNode", "matches", "read"]
