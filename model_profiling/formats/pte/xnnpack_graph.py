"""XNNPACK's own graph, from the head of a delegate's blob: nodes in order, their shapes, and each one's debug handle.

A blob has `XH00` at byte 4, then where its flatbuffer (`XN01`, schema in the wheel:
`executorch/backends/xnnpack/serialization/schema.fbs`) and its constants are; the constants are not read.
At run time XNNPACK fuses nodes and inserts others (clamps, transposes): what a trace shows must be aligned with this
graph, not counted along it.
"""

from dataclasses import dataclass
from math import prod

from model_profiling.formats.pte.flatbuffer import Buffer, FlatTable
from model_profiling.formats.pte.program import Delegate, Method, Program, PteError
from model_profiling.upstream import xnnpack_schema as schema
from model_profiling.upstream.reliance import why_not

BACKEND, TRANSPOSE = schema.BACKEND, schema.TRANSPOSE

_HEADER = 30
_MAX_GRAPH = 256 << 20


@dataclass(frozen=True, slots=True)
class XnnpackValue:
    """A tensor as XNNPACK sees it: 4-D activations are NHWC; sizes are upper bounds if the model's are dynamic.

    `number` is what nodes of its graph know it by. One that enters or leaves the delegate is the `external`-th
    argument of the delegate call; None for all others. `group` is how many weights share a scale where they are
    quantized in groups, and 0 where they are not.
    """

    dtype: str
    shape: tuple[int, ...]
    constant: bool
    number: int = 0
    external: int | None = None
    group: int = 0


@dataclass(frozen=True, slots=True)
class XnnpackNode:
    """`debug_handle` leads to the ETRecord's nodes; 0 is none. An absent bias is left out of `inputs`.

    `kernel` is the height and width of a convolution's or pooling's window, and `groups` a convolution's groups;
    otherwise () and 1. `permutation` is a
    transpose's: dimension i of its output is dimension permutation[i] of its input. `pointwise` is a convolution that
    multiplies each position alone: XNNPACK runs it as a fully connected layer.
    """

    index: int
    op: str
    debug_handle: int
    inputs: tuple[XnnpackValue, ...]
    outputs: tuple[XnnpackValue, ...]
    kernel: tuple[int, ...] = ()
    groups: int = 1
    permutation: tuple[int, ...] = ()
    pointwise: bool = False

    @property
    def multiply_accumulates(self) -> int:
        """Count the multiply-accumulates of a matrix-like operator; 0 for all others."""
        if not self.outputs or len(self.inputs) < 2:
            return 0
        source, other, out = self.inputs[0].shape, self.inputs[1].shape, self.outputs[0].shape
        if self.op in ("Conv2d", "DepthwiseConv2d", "ConvTranspose2d", "FullyConnected") and source and out:
            # Each weight meets each position once: of the output, or, transposed, of the input.
            positions = self.positions if self.op == "ConvTranspose2d" else prod(out[:-1])
            return positions * prod(other)
        if self.op == "BatchMatrixMultiply" and source:
            return prod(out) * source[-1]
        return 0

    @property
    def positions(self) -> int:
        """The positions of a transposed convolution's input: all its numbers by its channels, which the weights tell,
        as inputs that are quantized when it runs are not NHWC."""
        channels = self.inputs[1].shape[-1] * self.groups
        return prod(self.inputs[0].shape) // channels if channels else 0


@dataclass(frozen=True, slots=True)
class XnnpackGraph:
    nodes: tuple[XnnpackNode, ...]


def graphs(program: Program, method: Method) -> dict[int, XnnpackGraph]:
    """Read the graphs behind a method's XNNPACK calls, by the instruction that calls them."""
    known: dict[Delegate, XnnpackGraph] = {}
    found = {}
    for step in method.instructions:
        if step.delegate is not None and step.name == BACKEND:
            delegate = method.delegates[step.delegate]
            if delegate not in known:
                known[delegate] = read_graph(program, delegate)
            found[step.index] = known[delegate]
    return found


def constant_bytes(program: Program, delegate: Delegate) -> int | None:
    """Return the bytes of constants behind a delegate's graph; None for an old blob without a header."""
    head = _head(program, delegate)
    if head[4:8] != b"XH00":
        return None
    size = int.from_bytes(head[22:30], "little")
    if size > delegate.size:
        raise PteError(program.path, f"an XNNPACK delegate has {size} bytes of constants in {delegate.size}")
    return size


def _head(program: Program, delegate: Delegate) -> bytes:
    return program.blob(delegate, 0, min(_HEADER, delegate.size)).ljust(_HEADER, b"\0")


def read_graph(program: Program, delegate: Delegate) -> XnnpackGraph:
    """Read the graph of one XNNPACK delegate."""
    if problem := why_not(schema.XNNPACK_SCHEMA):
        raise PteError(program.path, problem, hint="Use a version of ExecuTorch that the kit knows.")
    head = _head(program, delegate)
    if head[4:8] == b"XH00":
        offset, size = int.from_bytes(head[10:14], "little"), int.from_bytes(head[14:18], "little")
    elif head[4:6] == b"XN":  # before there was a header, a blob was the flatbuffer, weights and all
        offset, size = 0, delegate.size
    else:
        raise PteError(program.path, "an XNNPACK delegate has no XH00 header", delegate.offset + 4)
    if size > _MAX_GRAPH:
        raise PteError(program.path, f"an XNNPACK graph has {size} bytes", delegate.offset)
    start = delegate.offset + offset
    buffer = Buffer(
        program.blob(delegate, offset, size),
        lambda problem, at: PteError(program.path, f"in an XNNPACK graph, {problem}", start + at),
    )
    root = buffer.root("the graph")
    values = dict(_value(entry) for entry in root.tables(schema.GRAPH["xvalues"], "value"))
    nodes = tuple(
        _node(entry, index, values) for index, entry in enumerate(root.tables(schema.GRAPH["xnodes"], "node"))
    )
    return XnnpackGraph(nodes)


def _value(entry: FlatTable) -> tuple[int, XnnpackValue]:
    """Read a tensor and the number nodes know it by; a quantized one holds the plain one."""
    tensor, group = entry.table(schema.VALUE["xvalue_union"], "tensor"), 0
    if tensor is not None and entry.u8(schema.VALUE["xvalue_union_type"]) == schema.IS_QUANTIZED:
        group = _group(tensor)
        tensor = tensor.table(schema.QUANTIZED["tensor_value"], "tensor")
    if tensor is None:
        raise entry.buffer.fail("a value is not a tensor", entry.at)
    slots = schema.TENSOR
    kind = tensor.u16(slots["datatype"])
    dtype = schema.DTYPES[kind] if kind < len(schema.DTYPES) else f"datatype {kind}"
    number = tensor.u32(slots["id_out"])
    external = tensor.u32(slots["external_id"]) if tensor.u32(slots["flags"]) & schema.EXTERNAL else None
    constant = tensor.u32(slots["constant_buffer_idx"]) != 0
    return number, XnnpackValue(dtype, tensor.u32s(slots["dims"], "dims"), constant, number, external, group)


def _group(quantized: FlatTable) -> int:
    if quantized.u8(schema.QUANTIZED["quant_params_type"]) != schema.IS_PER_GROUP:
        return 0
    parameters = quantized.table(schema.QUANTIZED["quant_params"], "quantization")
    return max(0, parameters.i32(schema.PER_GROUP["group_size"])) if parameters is not None else 0


def _node(entry: FlatTable, index: int, values: dict[int, XnnpackValue]) -> XnnpackNode:
    number = entry.u8(schema.NODE["xnode_union_type"])
    table = entry.table(schema.NODE["xnode_union"], "node")
    if table is None or not number:
        raise entry.buffer.fail(f"node {index} is empty", entry.at)
    # A newer ExecuTorch adds kinds at the end; such a node keeps its place and its handle.
    known = number <= len(schema.NODES)
    kind = schema.NODES[number - 1] if known else schema.NodeKind(f"kind {number}", (), ())
    handle = entry.u32(schema.NODE["debug_handle"])
    permutation = table.u32s(kind.permutation, "permutation") if kind.permutation is not None else ()
    if len(permutation) > schema.MOST_DIMS or sorted(permutation) != list(range(len(permutation))):
        raise entry.buffer.fail(f"node {index} transposes by {permutation[:8]}, which is no permutation", entry.at)
    return XnnpackNode(
        index,
        kind.name,
        0 if handle == schema.NO_HANDLE else handle,
        tuple(_look_up(table, field, values) for field in kind.inputs if table.u32(field) != schema.NO_VALUE),
        tuple(_look_up(table, field, values) for field in kind.outputs),
        tuple(table.u32(field) for field in kind.window),
        table.u32(kind.groups) if kind.groups is not None else 1,
        permutation,
        _is_pointwise(kind, table),
    )


def _is_pointwise(kind: schema.NodeKind, table: FlatTable) -> bool:
    """Return whether a convolution looks at each position alone: 1x1, every position, nothing around, one group."""
    if kind.name != "Conv2d" or kind.groups is None:
        return False
    ones = (*kind.window, *kind.strides, kind.groups)
    return all(table.u32(slot) == 1 for slot in ones) and not any(table.u32(slot) for slot in kind.padding)


def _look_up(table: FlatTable, field: int, values: dict[int, XnnpackValue]) -> XnnpackValue:
    number = table.u32(field)
    if number not in values:
        raise table.buffer.fail(f"a node uses value {number}, which is not there", table.at)
    return values[number]
