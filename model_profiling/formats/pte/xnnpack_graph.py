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

BACKEND = "XnnpackBackend"
TRANSPOSE = "StaticTranspose"

_HEADER = 30
_MAX_GRAPH = 256 << 20
_NO_VALUE = 0xFFFFFFFF  # XNN_INVALID_VALUE_ID: a convolution without bias has this for one

_EXTERNAL = 1 | 2  # XNN_VALUE_FLAG_EXTERNAL_INPUT and XNN_VALUE_FLAG_EXTERNAL_OUTPUT

_PER_GROUP = 4  # PerChannelGroupQuant in the union XNNQuantParams

_NO_HANDLE = 0xFFFF  # what ExecuTorch 1.5.1 writes for a node its passes inserted, such as a layout's transpose
# Twice as many as XNNPACK allows (XNN_MAX_TENSOR_DIMS).
_MOST_DIMS = 12

_DTYPES = (
    *("invalid", "fp32", "fp16", "qint8", "quint8", "qint32", "qcint8", "qcint32", "qcint4", "qdint8", "qbint4"),
    *("qpint8", "int32", "pfp32", "bf16"),
)

# Which fields of a node are its inputs and which its outputs, by the schema's tables.
_Fields = tuple[tuple[int, ...], tuple[int, ...]]
_UNARY: _Fields = ((0,), (1,))
_BINARY: _Fields = ((0, 1), (2,))
_CONV: _Fields = ((15, 16, 17), (18,))
_POOL: _Fields = ((10,), (11,))
_SHAPED: _Fields = ((2,), (3,))
_PARAMETER: _Fields = ((1,), (2,))
_WINDOW: _Fields = ((3,), (4,))

# The union XNodeUnion, whose numbers count from 1.
_NODES: tuple[tuple[str, _Fields], ...] = (
    ("Add", _BINARY),
    ("FullyConnected", ((0, 1, 2), (3,))),
    ("Softmax", _UNARY),
    ("Sigmoid", _UNARY),
    (TRANSPOSE, _SHAPED),
    ("Clamp", _UNARY),
    ("Conv2d", _CONV),
    ("Div", _BINARY),
    ("StaticResizeBilinear2D", _SHAPED),
    ("StaticConstantPad", _WINDOW),
    ("AvgPooling2d", _POOL),
    ("Minimum", _BINARY),
    ("DepthwiseConv2d", _CONV),
    ("MaxPooling2d", _POOL),
    ("Multiply", _BINARY),
    ("Subtract", _BINARY),
    ("Floor", _UNARY),
    ("Convert", _UNARY),
    ("GlobalAvgPooling2d", _UNARY),
    ("StaticReshape", _SHAPED),
    ("ArgMaxPooling2d", ((6,), (7, 8))),
    ("SquareRoot", _UNARY),
    ("Ceiling", _UNARY),
    ("Hardswish", _UNARY),
    ("LeakyReLU", _PARAMETER),
    ("Maximum", _BINARY),
    ("Negate", _UNARY),
    ("Square", _UNARY),
    ("ELU", _PARAMETER),
    ("Abs", _UNARY),
    ("PReLU", _BINARY),
    ("Concatenate2", ((1, 2), (5,))),
    ("Concatenate3", ((1, 2, 3), (5,))),
    ("Concatenate4", ((1, 2, 3, 4), (5,))),
    ("StaticSlice", _WINDOW),
    ("ScaledDotProductAttention", ((0, 1, 2, 3, 4), (5,))),
    ("BatchMatrixMultiply", _BINARY),
    ("Concatenate5", ((1, 2, 3, 4, 7), (5,))),
    ("ConvTranspose2d", _CONV),
    ("ReciprocalSquareRoot", _UNARY),
    ("Log", _UNARY),
    ("Gelu", _UNARY),
    ("Tanh", _UNARY),
    ("Exp", _UNARY),
    ("Sin", _UNARY),
    ("Copy", _UNARY),
    ("Cos", _UNARY),
)


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
    transpose's: dimension i of its output is dimension permutation[i] of its input.
    """

    index: int
    op: str
    debug_handle: int
    inputs: tuple[XnnpackValue, ...]
    outputs: tuple[XnnpackValue, ...]
    kernel: tuple[int, ...] = ()
    groups: int = 1
    permutation: tuple[int, ...] = ()

    @property
    def multiply_accumulates(self) -> int:
        """Count the multiply-accumulates of a matrix-like operator; 0 for all others."""
        if not self.outputs or len(self.inputs) < 2:
            return 0
        source, other, out = self.inputs[0].shape, self.inputs[1].shape, self.outputs[0].shape
        if self.op in ("Conv2d", "DepthwiseConv2d", "ConvTranspose2d", "FullyConnected") and source and out:
            # Each weight meets each position once: of the output, or, transposed, of the input.
            positions = source[:-1] if self.op == "ConvTranspose2d" else out[:-1]
            return prod(positions) * prod(other)
        if self.op == "BatchMatrixMultiply" and source:
            return prod(out) * source[-1]
        return 0


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
    values = dict(_value(entry) for entry in root.tables(2, "value"))
    nodes = tuple(_node(entry, index, values) for index, entry in enumerate(root.tables(1, "node")))
    return XnnpackGraph(nodes)


def _value(entry: FlatTable) -> tuple[int, XnnpackValue]:
    """Read a tensor and the number nodes know it by; a quantized one holds the plain one."""
    tensor, group = entry.table(1, "tensor"), 0
    if tensor is not None and entry.u8(0) == 2:
        group = _group(tensor)
        tensor = tensor.table(0, "tensor")
    if tensor is None:
        raise entry.buffer.fail("a value is not a tensor", entry.at)
    kind = tensor.u16(0)
    dtype = _DTYPES[kind] if kind < len(_DTYPES) else f"datatype {kind}"
    number, external = tensor.u32(6), tensor.u32(4) if tensor.u32(5) & _EXTERNAL else None
    return number, XnnpackValue(dtype, tensor.u32s(2, "dims"), tensor.u32(3) != 0, number, external, group)


def _group(quantized: FlatTable) -> int:
    parameters = quantized.table(2, "quantization") if quantized.u8(1) == _PER_GROUP else None
    return max(0, parameters.i32(2)) if parameters is not None else 0


def _node(entry: FlatTable, index: int, values: dict[int, XnnpackValue]) -> XnnpackNode:
    number = entry.u8(0)
    table = entry.table(1, "node")
    if table is None or not number:
        raise entry.buffer.fail(f"node {index} is empty", entry.at)
    # A newer ExecuTorch adds kinds at the end; such a node keeps its place and its handle.
    op, (inputs, outputs) = _NODES[number - 1] if number <= len(_NODES) else (f"kind {number}", ((), ()))
    handle = entry.u32(2)
    kernel = (table.u32(4), table.u32(5)) if inputs in (_CONV[0], _POOL[0]) else ()
    groups = table.u32(12) if inputs == _CONV[0] else 1
    permutation = table.u32s(1, "permutation") if op == TRANSPOSE else ()
    if len(permutation) > _MOST_DIMS or sorted(permutation) != list(range(len(permutation))):
        raise entry.buffer.fail(f"node {index} transposes by {permutation[:8]}, which is no permutation", entry.at)
    return XnnpackNode(
        index,
        op,
        0 if handle == _NO_HANDLE else handle,
        tuple(_look_up(table, field, values) for field in inputs if table.u32(field) != _NO_VALUE),
        tuple(_look_up(table, field, values) for field in outputs),
        kernel,
        groups,
        permutation,
    )


def _look_up(table: FlatTable, field: int, values: dict[int, XnnpackValue]) -> XnnpackValue:
    number = table.u32(field)
    if number not in values:
        raise table.buffer.fail(f"a node uses value {number}, which is not there", table.at)
    return values[number]
