"""XNNPACK's own graph, from the head of a delegate's blob: nodes in order, their shapes, and each one's debug handle.

A blob has `XH00` at byte 4, then where its flatbuffer (`XN01`, schema in the wheel:
`executorch/backends/xnnpack/serialization/schema.fbs`) and its constants are; the constants are not read.
At run time XNNPACK fuses nodes and inserts others (clamps, transposes): what a trace shows must be aligned with this
graph, not counted along it.
"""

from dataclasses import dataclass
from math import prod

from model_profiling.formats.pte import Delegate, Method, Program, PteError
from model_profiling.formats.pte.flatbuffer import Buffer, FlatTable
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
    root = buffer.root(schema.GRAPH, "the graph")
    values = {value.number: value for value in map(_value, root.tables("xvalues", schema.VALUE))}
    nodes = enumerate(root.tables("xnodes", schema.NODE))
    return XnnpackGraph(tuple(_node(entry, index, values) for index, entry in nodes))


def _value(entry: FlatTable) -> XnnpackValue:
    """Read a tensor; a quantized one holds the plain one."""
    quantized, group = entry.number("xvalue_union_type", "B") == schema.IS_QUANTIZED, 0
    tensor = entry.table("xvalue_union", schema.QUANTIZED if quantized else schema.TENSOR)
    if tensor is not None and quantized:
        if tensor.number("quant_params_type", "B") == schema.IS_PER_GROUP:
            parameters = tensor.table("quant_params", schema.PER_GROUP)
            group = max(0, parameters.number("group_size", "i")) if parameters is not None else 0
        tensor = tensor.table("tensor_value", schema.TENSOR)
    if tensor is None:
        raise entry.buffer.fail("a value is not a tensor", entry.at)
    kind = tensor.number("datatype", "H")
    dtype = schema.DTYPES[kind] if kind < len(schema.DTYPES) else f"datatype {kind}"
    external = tensor.number("external_id") if tensor.number("flags") & schema.EXTERNAL else None
    constant = tensor.number("constant_buffer_idx") != 0
    return XnnpackValue(dtype, tensor.numbers("dims", "I"), constant, tensor.number("id_out"), external, group)


def _node(entry: FlatTable, index: int, values: dict[int, XnnpackValue]) -> XnnpackNode:
    number = entry.number("xnode_union_type", "B")
    # A newer ExecuTorch adds kinds at the end; such a node keeps its place and its handle.
    known = 0 < number <= len(schema.NODES)
    kind = schema.NODES[number - 1] if known else schema.NodeKind(f"kind {number}", {}, (), ())
    table = entry.table("xnode_union", kind.fields)
    if table is None or not number:
        raise entry.buffer.fail(f"node {index} is empty", entry.at)
    handle = entry.number("debug_handle")
    permutation = table.numbers("perm", "I") if "perm" in kind.fields else ()
    if len(permutation) > schema.MOST_DIMS or sorted(permutation) != list(range(len(permutation))):
        raise entry.buffer.fail(f"node {index} transposes by {permutation[:8]}, which is no permutation", entry.at)
    # What looks at each position alone: 1x1, every position, nothing around, one group.
    ones = (*kind.window, "subsampling_height", "subsampling_width", "groups")
    around = (field for field in kind.fields if field.startswith("padding_"))
    return XnnpackNode(
        index,
        kind.name,
        0 if handle == schema.NO_HANDLE else handle,
        tuple(_look_up(table, field, values) for field in kind.inputs if table.number(field) != schema.NO_VALUE),
        tuple(_look_up(table, field, values) for field in kind.outputs),
        tuple(map(table.number, kind.window)),
        table.number("groups") if "groups" in kind.fields else 1,
        permutation,
        kind.name == "Conv2d" and all(table.number(f) == 1 for f in ones) and not any(map(table.number, around)),
    )


def _look_up(table: FlatTable, field: str, values: dict[int, XnnpackValue]) -> XnnpackValue:
    number = table.number(field)
    if number not in values:
        raise table.buffer.fail(f"a node uses value {number}, which is not there", table.at)
    return values[number]
