"""The program as a graph of the operators that ran, with what is known of each: time, kernels, roof, shapes, source.

Its nodes are the rows of a breakdown, ExecuTorch's own time among them, so that they sum to `Method::execute`. Edges
are the data flow of the .pte; what XNNPACK fused is not a node, and edges lead through it. An operator whose place in
the graph cannot be told, and every operator where there is no .pte, is joined to its neighbours in execution order by
edges that say so.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.compare.comparison import Change
from model_profiling.analysis.graph.graph import ModelGraph
from model_profiling.analysis.roofs.roofline import OperatorRoof
from model_profiling.analysis.sme2.coverage import Level
from model_profiling.analysis.timing.breakdown import InstanceTime, SourceLine
from model_profiling.analysis.timing.profile import RUNTIME, Part, Where
from model_profiling.analysis.timing.work import Work
from model_profiling.formats.pte.dataflow import FlowTensor

NodeKind = Literal["operator", "runtime", "input", "output"]
# No network is nested deeper than this; a damaged file may say so.
_MOST_MODULES = 30
_MOST_NEIGHBOURS = 8
_DELEGATE_CALL = "delegate call"


class KernelUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether one CONV or GEMM operator runs on SME2 (None: not known), its kernels, and if it does not, why."""

    on_sme2: bool | None
    level: Literal[Level, ""] = ""
    kernels: list[str] = []
    why_not: str = ""


class GraphNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operator at one place of the program. `id` is its row in the breakdown; inputs and outputs of the program
    come after the rows and take no time.

    `ms` and `share` are None where times mean nothing. `module` is where it is drawn: its own, or, if `placed`, the one
    that what it reads and what reads it have in common. `kernels` is what a CONV or GEMM operator ran on here, and
    `emulated` what it runs on in an emulated run of the same model, if one was given.
    """

    id: int
    node: NodeKind
    name: str
    operator: str
    category: Part
    kind: str = ""
    where: Where = "runtime"
    dtype: str = ""
    algorithm: str = ""
    instruction: int = -1
    # Its number in XNNPACK's graph of the .pte.
    program_node: int | None = None
    ms: float | None = None
    share: float | None = None
    module: str = ""
    placed: bool = False
    source: SourceLine | None = None
    # Of the tensors it reads and writes; constants are not among them.
    reads: list[str] = []
    writes: list[str] = []
    work: Work | None = None
    roof: OperatorRoof | None = None
    # Against the other side of the comparison that the graph names.
    change: Change | None = None
    kernels: KernelUse | None = None
    emulated: KernelUse | None = None
    sqnr_db: float | None = None


class GraphEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """`tensor` is what goes from one node to the other; with `order`, it is only known that the one ran before."""

    source: int
    target: int
    tensor: str = ""
    order: bool = False


class OperatorGraph(msgspec.Struct, frozen=True, tag="operator_graph", tag_field="kind"):
    """One experiment. `before` and `after` are the comparison that `change` of its nodes is of; '' if there is none.

    `notes` say what could not be told. Shapes are in the order of memory: NHWC inside XNNPACK.
    """

    model: str
    experiment: str
    # What reports call the experiment.
    title: str
    execute_ms: float | None
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    before: str = ""
    after: str = ""
    notes: list[str] = []
    schema: int = 1


class OperatorFacts(msgspec.Struct, frozen=True):
    """What is known of operators beyond their times, by row; where the .pte is not, `graph` is None."""

    graph: ModelGraph | None = None
    roofs: Mapping[int, OperatorRoof] = {}
    changes: Mapping[int, Change] = {}
    kernels: Mapping[int, KernelUse] = {}
    emulated: Mapping[int, KernelUse] = {}
    sqnr: Mapping[int, float] = {}


def graph_of(
    rows: Sequence[InstanceTime], known: OperatorFacts, timed: bool
) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return the nodes and edges of one experiment."""
    steps = _steps(rows, known.graph)
    edges = [*_data_edges(known.graph, steps, len(rows)), *_order_edges(rows, steps)]
    modules = _modules(rows, edges)
    nodes = [_node(row, entry, known, steps, modules, timed) for row, entry in enumerate(rows)]
    return [*nodes, *_ends(known.graph, len(rows))], edges


def _steps(rows: Sequence[InstanceTime], graph: ModelGraph | None) -> dict[int, int]:
    """Return the step of the data flow that each row is; another backend's call is one step."""
    if graph is None:
        return {}
    steps = dict(graph.steps)
    detailed = {entry.instruction for entry in rows if entry.where == "delegated"}
    opaque = {step.instruction: at for at, step in enumerate(graph.flow.steps) if step.node is None}
    for row, entry in enumerate(rows):
        if entry.name == _DELEGATE_CALL and entry.where == "runtime" and entry.instruction not in detailed:
            at = opaque.get(entry.instruction)
            if at is not None and at not in graph.rows:
                steps[row] = at
    return steps


def _data_edges(graph: ModelGraph | None, steps: Mapping[int, int], rows: int) -> list[GraphEdge]:
    """Return which operator reads which, through what did not run on its own; the program's ends are nodes."""
    if graph is None:
        return []
    row_of = {step: row for row, step in steps.items()}
    # What a step that did not run on its own hands on: the nodes that its values come from, each with the tensor it
    # left them as.
    passed: dict[int, dict[int, str]] = {}

    def read(tensor: FlowTensor) -> dict[int, str]:
        if tensor.entered is not None:
            return {rows + tensor.entered: describe_tensor(tensor)}
        if tensor.source in row_of:
            return {row_of[tensor.source]: describe_tensor(tensor)}
        return passed.get(tensor.source, {})

    edges: list[GraphEdge] = []
    for position, step in enumerate(graph.flow.steps):
        reads = {source: text for tensor in step.inputs for source, text in read(tensor).items()}
        if position in row_of:
            edges += [GraphEdge(source, row_of[position], text) for source, text in reads.items()]
        else:
            passed[position] = reads
    first = rows + len(_entering(graph))
    for place, result in enumerate(graph.flow.results):
        if result is not None:
            edges += [GraphEdge(source, first + place, text) for source, text in read(result).items()]
    return edges


def _order_edges(rows: Sequence[InstanceTime], steps: Mapping[int, int]) -> list[GraphEdge]:
    """Return operators that have no place in the data flow, between those that ran before and after them.

    Where there is a data flow, within their delegate call: what ran before that may be far away in it.
    """
    ran = [row for row, entry in enumerate(rows) if entry.where != "runtime" or row in steps]
    pairs = [pair for pair in itertools.pairwise(ran) if pair[0] not in steps or pair[1] not in steps]
    near = (
        [(one, other) for one, other in pairs if rows[one].instruction == rows[other].instruction] if steps else pairs
    )
    joined = {row for pair in near for row in pair}
    alone = [pair for pair in pairs if any(row not in steps and row not in joined for row in pair)]
    return [GraphEdge(one, other, order=True) for one, other in sorted({*near, *alone})]


def _modules(rows: Sequence[InstanceTime], edges: Sequence[GraphEdge]) -> list[str]:
    """Return the module to draw each row in. One that has none of its own lies where what it reads and feeds are: in
    the innermost module that holds one of each."""
    count = len(rows)
    own = [entry.source.module if entry.source is not None and entry.where != "runtime" else None for entry in rows]
    reads: list[list[int]] = [[] for _ in rows]
    feeds: list[list[int]] = [[] for _ in rows]
    # Data first: of what ran just before, it may have read nothing.
    for edge in sorted(edges, key=lambda edge: edge.order):
        if edge.source < count and edge.target < count:
            reads[edge.target].append(edge.source)
            feeds[edge.source].append(edge.target)
    before = _reached(own, reads, range(count))
    after = _reached(own, feeds, reversed(range(count)))
    found = []
    for row, mine in enumerate(own):
        shared = (_common(one, other) for one in before[row] for other in after[row]) if mine is None else ()
        parts = mine.split(".") if mine is not None else max(shared, key=len, default=[])
        found.append(".".join(parts[:_MOST_MODULES]))
    return found


def _reached(own: Sequence[str | None], neighbours: Sequence[list[int]], order: Iterable[int]) -> list[list[str]]:
    """Return the nearest modules that each row is joined with in one direction, a few at most."""
    found: list[list[str]] = [[] for _ in own]
    for row in order:
        mine = own[row]
        near = (name for other in neighbours[row] for name in found[other]) if mine is None else (mine,)
        found[row] = list(dict.fromkeys(itertools.islice(near, _MOST_NEIGHBOURS)))
    return found


def _common(one: str, other: str) -> list[str]:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one.split("."), other.split("."), strict=False))
    return [name for name, _ in pairs]


def _node(
    row: int, entry: InstanceTime, known: OperatorFacts, steps: Mapping[int, int], modules: Sequence[str], timed: bool
) -> GraphNode:
    step = known.graph.flow.steps[steps[row]] if known.graph is not None and row in steps else None
    bound = known.graph is not None and entry.instruction in known.graph.flow.unfixed
    runs = entry.where != "runtime"
    return GraphNode(
        id=row,
        node="operator" if runs or step is not None else "runtime",
        name=entry.name,
        operator=entry.operator,
        category=entry.category,
        kind=entry.kind,
        where=entry.where,
        dtype=entry.dtype,
        algorithm=entry.algorithm,
        instruction=entry.instruction,
        program_node=step.node.index if step is not None and step.node is not None else None,
        ms=entry.ms if timed else None,
        share=entry.share if timed else None,
        module=modules[row] if runs else "",
        placed=runs and entry.source is None and bool(modules[row]),
        source=entry.source if runs else None,
        reads=[describe_tensor(tensor, bound) for tensor in step.inputs if not _constant(tensor)] if step else [],
        writes=[describe_tensor(tensor, bound) for tensor in step.outputs] if step else [],
        work=entry.work,
        roof=known.roofs.get(row),
        change=known.changes.get(row),
        kernels=known.kernels.get(row),
        emulated=known.emulated.get(row),
        sqnr_db=known.sqnr.get(row),
    )


def _ends(graph: ModelGraph | None, rows: int) -> list[GraphNode]:
    """Return what enters the program, as far as something reads it, and what leaves it."""
    if graph is None:
        return []
    entering = _entering(graph)
    nodes = [
        GraphNode(rows + place, "input", f"input {place}", "input", RUNTIME, writes=[text])
        for place, text in enumerate(entering)
        if text
    ]
    for place, result in enumerate(graph.flow.results, rows + len(entering)):
        if result is not None:
            name = f"output {place - rows - len(entering)}"
            nodes.append(GraphNode(place, "output", name, "output", RUNTIME, reads=[describe_tensor(result)]))
    return nodes


def _entering(graph: ModelGraph) -> list[str]:
    """Return the inputs of the program up to the last that something reads; '' for one that nothing does."""
    read = [tensor for step in graph.flow.steps for tensor in step.inputs]
    tensors = {
        t.entered: describe_tensor(t) for t in (*read, *graph.flow.results) if t is not None and t.entered is not None
    }
    return [tensors.get(place, "") for place in range(max(tensors, default=-1) + 1)]


def _constant(tensor: FlowTensor) -> bool:
    return tensor.source < 0 and tensor.entered is None


def describe_tensor(tensor: FlowTensor, bound: bool = False) -> str:
    """Return `1 x 32 x 32 x 16 fp16`; of sizes that are set when it runs, what they are at most, if that is known."""
    if not tensor.shape:
        return f"scalar or of no fixed size, {tensor.dtype}"
    return f"{'up to ' if bound else ''}{' x '.join(map(str, tensor.shape))} {tensor.dtype}"
