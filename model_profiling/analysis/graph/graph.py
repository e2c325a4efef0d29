"""Which operator of a trace is which node of the .pte's graph, and which one feeds which.

Time tells the order of operators and nothing else; what feeds what is in the .pte. Portable operators are found there
by their instruction, delegated ones by the node of XNNPACK's graph that they are aligned with. What cannot be found has
no place in the graph, and nothing is said of it.

XNNPACK fuses and inserts operators (clamps, conversions), so a trace cannot be counted along its graph. But operators
of one family keep their order: where a delegate shows as many of a family as its graph has nodes, none was fused or
inserted, and the n-th is the n-th. Where it does not, the same holds between two operators that were found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.profile import Instance
from model_profiling.base.dtypes import FP32
from model_profiling.base.errors import KitError
from model_profiling.base.records import by_key
from model_profiling.formats import pte
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC
from model_profiling.formats.pte import xnnpack_graph
from model_profiling.formats.pte.borders import is_inserted
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, data_flow
from model_profiling.formats.pte.sequence import set_token_sizes, token_bound
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


@dataclass(frozen=True)
class ModelGraph:
    """`steps` leads from a row of the profile to its step of the data flow, `rows` back."""

    flow: DataFlow
    steps: dict[int, int]
    rows: dict[int, int]

    @property
    def placed(self) -> list[tuple[int, FlowStep]]:
        """The rows that have a step, each with it."""
        return [(row, self.flow.steps[position]) for row, position in self.steps.items()]

    def step(self, row: int) -> FlowStep | None:
        return self.flow.steps[self.steps[row]] if row in self.steps else None

    def feeding(self, region: set[int]) -> set[int]:
        """Return the inserted changes to NCHW that only these steps read."""
        sources = {tensor.source for position in region for tensor in self.flow.steps[position].inputs}
        return {
            source
            for source in sources - region
            if source >= 0
            and is_inserted(self.flow, source, TO_NCHW)
            and source not in self.flow.returned
            and set(self.flow.readers(source)) <= region
        }

    def taking(self, region: set[int]) -> set[int]:
        """Return the inserted changes to NHWC that read what these steps make."""
        readers = {reader for position in region for reader in self.flow.readers(position)}
        return {reader for reader in readers - region if is_inserted(self.flow, reader, TO_NHWC)}

    def round_trip(self, region: set[int], reduces: bool) -> set[int]:
        """Return the rows of inserted layout changes that would go if these steps were done inside the delegate.

        It works in NHWC. Out of it and back into it again is a detour if everything that comes out of the steps goes
        back; if the steps leave nothing of the image (a mean over its pixels), nothing has to come back.
        """
        before, after = self.feeding(region), self.taking(region)
        exits = {position for position in region if not set(self.flow.readers(position)) <= region}
        leaves = bool(region & self.flow.returned) or any(
            not set(self.flow.readers(position)) <= region | after for position in exits
        )
        if not before or (leaves and not reduces):
            return set()
        return {self.rows[position] for position in before | after if position in self.rows}


def why_unreadable(model: Path | None) -> str:
    """Return why a program that is there cannot be read; '' if it can, or if there is none."""
    try:
        if model is not None:
            pte.read(model)
    except KitError as error:
        return error.message
    return ""


def read_graph(
    operators: Sequence[Operator], model: Path, method: str = "forward", tokens: int | None = None
) -> ModelGraph | None:
    """Put operators onto the graph of their .pte; None if the file is not there, not readable, or branches.

    A program that takes any number of tokens has the sizes of an execution on `tokens` of them.
    """
    try:
        program = pte.read(model)
        chosen = program.method(method)
        flow = data_flow(program, chosen) if chosen is not None else None
        bound = token_bound(chosen) if chosen is not None and tokens is not None else None
        if flow is not None and bound is not None and tokens is not None:
            flow = set_token_sizes(flow, bound, tokens)
    except KitError:
        return None
    return _placed(operators, flow) if flow is not None else None


def _placed(operators: Sequence[Operator], flow: DataFlow) -> ModelGraph:
    portable = {step.instruction: position for position, step in enumerate(flow.steps) if step.node is None}
    nodes: dict[int, list[XnnpackNode]] = {}
    places: dict[tuple[int, int], int] = {}
    for position, step in enumerate(flow.steps):
        if step.node is not None:
            nodes.setdefault(step.instruction, []).append(step.node)
            places[step.instruction, step.node.index] = position
    steps = {row: places[operators[row].instruction, node.index] for row, node in aligned(operators, nodes).items()}
    for row, operator in enumerate(operators):
        if operator.where == "portable" and operator.instruction in portable:
            position = portable[operator.instruction]
            # A dump leaves the namespace out: `_to_dim_order_copy.out` is `dim_order_ops::_to_dim_order_copy.out`.
            if flow.steps[position].op.split("::")[-1] == operator.operator.split("::")[-1]:
                steps[row] = position
    return ModelGraph(flow, steps, {position: row for row, position in steps.items()})
