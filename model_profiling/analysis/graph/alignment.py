"""Which node of XNNPACK's graph in the .pte each operator of a trace is.

XNNPACK fuses and inserts operators (clamps, conversions), so a trace cannot be counted along the graph. But operators
of one family keep their order: where a delegate shows as many of a family as its graph has nodes, none was fused or
inserted, and the n-th is the n-th. Where it does not, the same holds between two operators that were found.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.profile import Instance
from model_profiling.base.dtypes import FP32
from model_profiling.base.errors import KitError
from model_profiling.base.records import by_key
from model_profiling.formats import pte
from model_profiling.formats.pte import xnnpack_graph
from model_profiling.formats.pte.xnnpack_graph import TRANSPOSE, XnnpackNode
from model_profiling.upstream.names_in_files import OPERATORS
from model_profiling.upstream.reliance import holds

_MATRIX_NODES = ("Conv2d", "DepthwiseConv2d", "ConvTranspose2d", "FullyConnected")
_KINDS = {
    **{"StaticTranspose": "transpose", "StaticReshape": "reshape", "Convert": "convert"},
    "BatchMatrixMultiply": "batch matmul",
}
# What XNNPACK calls the same when it runs and in the graph.
_SAME = (
    *("Abs", "Add", "Ceiling", "Clamp", "ELU", "Exp", "Floor", "LeakyReLU", "Log", "Maximum", "Minimum", "Multiply"),
    *("Negate", "PReLU", "Sigmoid", "Softmax", "Square", "Subtract"),
)
# What it calls an operator when it runs, and its nodes in the graph. A concatenation runs as one copy.
_NAMES = {
    **{name: (name,) for name in _SAME},
    "ArgMax Pooling": ("ArgMaxPooling2d",),
    "Average Pooling": ("AvgPooling2d",),
    "Constant Pad": ("StaticConstantPad",),
    "Copy": ("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5", "Copy"),
    "Cosine": ("Cos",),
    "Divide": ("Div",),
    "GELU": ("Gelu",),
    "HardSwish": ("Hardswish",),
    "Max Pooling": ("MaxPooling2d",),
    "Mean": ("GlobalAvgPooling2d",),
    "Reciprocal Square Root": ("ReciprocalSquareRoot",),
    "Resize Bilinear": ("StaticResizeBilinear2D",),
    "Sine": ("Sin",),
    "Slice": ("StaticSlice",),
    "Square Root": ("SquareRoot",),
    "TanH": ("Tanh",),
}
# Functions of one value. What has no kernel in its dtype, as most have none in int8, is looked up in a table, and has
# no name when it runs.
_LOOKED_UP = "Invalid Unary Op"
_UNARY = {
    *("Abs", "Ceiling", "Clamp", "Cosine", "ELU", "Exp", "Floor", "GELU", "HardSwish", "LeakyReLU", "Log", "Negate"),
    *("Reciprocal Square Root", "Sigmoid", "Sine", "Square", "Square Root", "TanH", _LOOKED_UP),
}
_FAMILIES = {
    **dict.fromkeys(_MATRIX_NODES, "matrix"),
    **_KINDS,
    **{node: name for name, nodes in _NAMES.items() for node in nodes},
}

# An operator of a trace.
Operator = Instance | InstanceTime


def aligned_nodes(operators: Sequence[Operator], model: Path, method: str = "forward") -> dict[int, XnnpackNode]:
    """Return the node of each delegated operator that fits one of its family, by the operator's position."""
    if not holds(OPERATORS):
        return {}
    try:
        program = pte.read(model)
        chosen = program.method(method)
        graphs = xnnpack_graph.graphs(program, chosen) if chosen is not None else {}
    except KitError:
        return {}
    return aligned(operators, {instruction: graph.nodes for instruction, graph in graphs.items()})


def aligned(operators: Sequence[Operator], graphs: Mapping[int, Sequence[XnnpackNode]]) -> dict[int, XnnpackNode]:
    """Return the same from the nodes themselves, by the instruction that calls them."""
    known = ((operator.instruction, _family(operator)) for operator in operators)
    places = by_key((key, position) for position, key in enumerate(known) if key[1])
    found: dict[int, XnnpackNode] = {}
    families: dict[int, dict[int, str]] = {}
    for (instruction, family), positions in places.items():
        families.setdefault(instruction, {}).update(dict.fromkeys(positions, family))
    for instruction, every in graphs.items():
        sure: dict[int, XnnpackNode] = {}
        for family in dict.fromkeys(_FAMILIES.values()):
            positions = places.get((instruction, family), [])
            nodes = _that_ran([node for node in every if _FAMILIES.get(node.op) == family], every, len(positions))
            for some, their_nodes in _parts(operators, positions, nodes):
                if len(their_nodes) == len(some):
                    sure |= dict(zip(some, their_nodes, strict=True))
        found |= sure | _between(sure, families.get(instruction, {}), every)
    return found


def _between(
    sure: Mapping[int, XnnpackNode], families: Mapping[int, str], every: Sequence[XnnpackNode]
) -> dict[int, XnnpackNode]:
    """Return operators of a family that has fewer of them than nodes, where those between two that are sure have as
    many; none if what is sure did not run in the order of the graph."""
    positions = sorted(families)
    place_of = {node.index: place for place, node in enumerate(every)}
    places = [place_of[sure[position].index] for position in positions if position in sure]
    if not places or places != sorted(places):
        return {}
    ran: dict[int, list[int]] = {}
    gap = 0
    for position in positions:
        gap += position in sure
        if position not in sure:
            ran.setdefault(gap, []).append(position)
    nodes: dict[int, list[XnnpackNode]] = {}
    taken, gap = set(places), 0
    for place, node in enumerate(every):
        gap += place in taken
        if place not in taken:
            nodes.setdefault(gap, []).append(node)
    found: dict[int, XnnpackNode] = {}
    for gap, some in ran.items():
        found |= _alike({position: families[position] for position in some}, nodes.get(gap, []))
    return found


def _alike(families: Mapping[int, str], nodes: Sequence[XnnpackNode]) -> dict[int, XnnpackNode]:
    """Return operators with the nodes of their family, if they are as many; what was looked up, with any function of
    one value."""
    found: dict[int, XnnpackNode] = {}
    for family in dict.fromkeys(families.values()):
        mine = [position for position, own in families.items() if own == family]
        theirs = [node for node in nodes if _FAMILIES.get(node.op) == family]
        found |= dict(zip(mine, theirs, strict=True)) if len(mine) == len(theirs) else {}
    mine = [position for position, own in families.items() if own in _UNARY]
    theirs = [node for node in nodes if _FAMILIES.get(node.op) in _UNARY]
    if len(theirs) > len(mine):
        # Most clamps are a part of the operator before them.
        theirs = [node for node in theirs if node.op != "Clamp"]
    pairs = list(zip(mine, theirs, strict=False))
    fits = all(families[position] in (_LOOKED_UP, _FAMILIES[node.op]) for position, node in pairs)
    return found | dict(pairs) if len(mine) == len(theirs) and fits else found


def _that_ran(nodes: list[XnnpackNode], every: Sequence[XnnpackNode], ran: int) -> list[XnnpackNode]:
    """Return the nodes of a family that ran, without those that became a part of another operator.

    A transpose whose result only a batch matrix multiplication takes, as its second input, becomes a flag of that.
    """
    if len(nodes) <= ran:
        return nodes
    readers = by_key((value.number, (node.op, place)) for node in every for place, value in enumerate(node.inputs))
    kept = [node for node in nodes if not (node.op == TRANSPOSE and _becomes_flag(node, readers))]
    return kept if len(kept) == ran else nodes


def _becomes_flag(node: XnnpackNode, readers: Mapping[int, Sequence[tuple[str, int]]]) -> bool:
    out, axes = node.outputs[0], len(node.permutation)
    swaps_last = axes >= 2 and node.permutation == (*range(axes - 2), axes - 1, axes - 2)
    return swaps_last and out.external is None and readers.get(out.number) == [("BatchMatrixMultiply", 1)]


def _parts(
    operators: Sequence[Operator], positions: list[int], nodes: list[XnnpackNode]
) -> list[tuple[list[int], list[XnnpackNode]]]:
    """Return operators of a family and their nodes, in parts that keep their order.

    Where fp16 is computed in fp32, XNNPACK moves what enters the delegate as it is, before it widens it, and does so
    before all else. What is bf16 it moves as it is unless it widens it; if it does, the numbers do not match.
    """
    narrow = [position for position in positions if "(ND, X16)" in operators[position].operator]
    if not narrow or len(narrow) == len(positions):
        return [(positions, nodes)]
    first = [(node, value) for node in nodes for value in node.inputs[:1]]
    entering = [n for n, v in first if v.dtype == "bf16" or (v.external is not None and v.dtype != FP32)]
    wide = [position for position in positions if position not in set(narrow)]
    return [(narrow, entering), (wide, [node for node in nodes if node not in entering])]


def _family(operator: Operator) -> str:
    if operator.where != "delegated":
        return ""
    if operator.kind in _KINDS.values():
        return operator.kind
    if operator.category in ("CONV", "GEMM"):
        return "matrix"
    name = operator.operator.partition(" (")[0]
    return name if name in _NAMES or name == _LOOKED_UP else ""
