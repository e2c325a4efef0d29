"""Two programs that were compared, with what a page shows of them besides: their operators, graphs and timelines."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from model_profiling.analysis.compare.aspects import Aspect, aspects_of, base_name, kind_of_work
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.compare.matching import MOST_MODULES, Pair, pair_in_order
from model_profiling.analysis.compare.program_changes import PartChange, ProfiledProgram, ProgramChanges
from model_profiling.analysis.graph.graph import read_graph
from model_profiling.analysis.run.operator_graph import (
    GraphEdge,
    GraphNode,
    OperatorFacts,
    OperatorGraph,
    graph_of,
    why_in_order,
)
from model_profiling.analysis.timing.breakdown import InstanceTime


@dataclass(frozen=True)
class ProgramPair:
    """Rows of `compared.changes` are those of the breakdowns of the two sides."""

    compared: PairComparison
    before: ProfiledProgram
    after: ProfiledProgram


def program_graph(program: ProfiledProgram) -> OperatorGraph:
    """Return what feeds what; in execution order, with a note, where the .pte is not there to tell."""
    origin, rows, model = program.origin, program.breakdown.instances, None
    file = origin.model if origin is not None else None
    if origin is not None and file is not None:
        model = read_graph(program.profile.instances, file, origin.method, origin.tokens)
    nodes, edges = graph_of(rows, OperatorFacts(graph=model), timed=True)
    return OperatorGraph(
        model=file.stem if file is not None else program.name,
        experiment=program.name,
        title=program.name,
        execute_ms=program.breakdown.execute_ms,
        nodes=nodes,
        edges=edges,
        notes=why_in_order(model, rows, file, origin is None),
    )


EdgeSide = Literal["both", "before", "after"]
_Rows = Sequence[InstanceTime]
# What makes operators of one part the same, the surest first; None is no key.
_SAME: tuple[Callable[[InstanceTime], Hashable | None], ...] = (
    lambda entry: (base_name(entry), entry.where, kind_of_work(entry)),
    kind_of_work,
    base_name,
    lambda entry: kind_of_work(entry)[0],
    # What computes and has taken the place of another; what moves data was inserted.
    lambda entry: entry.category if entry.where != "runtime" and entry.category != "Data Movement" else None,
)


class PairNode(msgspec.Struct, frozen=True):
    """An operator of one or both programs, with its part of the comparison; inputs and outputs of the program are of
    none. `module` is where it is drawn: where it is in the program after, or would be. `aspects` are its own."""

    id: int
    before: GraphNode | None
    after: GraphNode | None
    part: PartChange | None
    module: str
    aspects: list[Aspect] = []

    @property
    def shown(self) -> GraphNode:
        """What it is called: by the program after where that has it."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def side(self) -> EdgeSide:
        return "both" if self.before and self.after else "before" if self.before else "after"

    @property
    def before_ms(self) -> float:
        return (self.before.ms or 0.0) if self.before else 0.0

    @property
    def after_ms(self) -> float:
        return (self.after.ms or 0.0) if self.after else 0.0

    @property
    def difference_ms(self) -> float:
        return self.after_ms - self.before_ms

    @property
    def told(self) -> bool:
        """Whether the difference of its part can be told from noise."""
        return self.part is not None and self.part.told

    @property
    def changed(self) -> bool:
        """Whether anything but noise is different about it."""
        traced = self.part is not None and any(aspect.what == "kernels" for aspect in self.part.aspects)
        return self.told or self.side != "both" or bool(self.aspects) or traced


class PairEdge(msgspec.Struct, frozen=True):
    """`tensor` is what goes along it, in the program after where that has it."""

    source: int
    target: int
    tensor: str
    order: bool
    side: EdgeSide


class PairGraph(msgspec.Struct, frozen=True):
    """Nodes are in the order in which they run: that of the program after, with those of the one before between."""

    nodes: list[PairNode]
    edges: list[PairEdge]
    notes: list[str]

    @property
    def whole_parts(self) -> set[int]:
        """The nodes that are all of their part: its difference is theirs."""
        count = Counter(id(node.part) for node in self.nodes)
        return {node.id for node in self.nodes if count[id(node.part)] == 1}


def pair_graph(pair: ProgramPair) -> PairGraph | None:
    """Return the graph of two programs that were compared; None where their parts are not known."""
    changes = pair.compared.changes
    if changes is None:
        return None
    rows = pair.before.breakdown.instances, pair.after.breakdown.instances
    return merge_graphs(changes, rows, (program_graph(pair.before), program_graph(pair.after)))


def merge_graphs(
    changes: ProgramChanges, rows: tuple[_Rows, _Rows], graphs: tuple[OperatorGraph, OperatorGraph]
) -> PairGraph:
    """Return two graphs as one. The rows of `changes` are those of `rows`, and the first nodes of the graphs."""
    part_of: dict[Pair, PartChange] = {pair: part for part in changes.parts for pair in _pairs(part, rows)}
    before, after = ({node.id: node for node in graph.nodes} for graph in graphs)
    sure = sorted(part_of.items(), key=lambda item: item[1].matched not in ("line", "module"))
    renamed = _modules([(before[one], after[two]) for (one, two), _ in sure if one is not None and two is not None])
    nodes: list[PairNode] = []
    for pair in [*_in_order(list(part_of)), *_ends(before, after, (len(rows[0]), len(rows[1])))]:
        old, new = before[pair[0]] if pair[0] is not None else None, after[pair[1]] if pair[1] is not None else None
        part, module = part_of.get(pair), new.module if new else _renamed(old.module, renamed) if old else ""
        nodes.append(PairNode(len(nodes), old, new, part, module, _aspects(part, rows, pair)))
    shared = [note for note in graphs[0].notes if note in graphs[1].notes]
    notes = [f"{graph.title}: {note}" for graph in graphs for note in graph.notes if note not in shared]
    return PairGraph(nodes, _edges(nodes, graphs), [*shared, *notes, *changes.notes])


def _pairs(part: PartChange, rows: tuple[_Rows, _Rows]) -> Iterator[Pair]:
    """Yield every row of a part once, with the row of the other side that is the same operator if there is one."""
    old, new = sorted(part.before_rows), sorted(part.after_rows)
    for one, other in pair_in_order([rows[0][row] for row in old], [rows[1][row] for row in new], *_SAME):
        yield old[one] if one is not None else None, new[other] if other is not None else None


def _aspects(part: PartChange | None, rows: tuple[_Rows, _Rows], pair: Pair) -> list[Aspect]:
    """Return what differs about an operator that both programs have."""
    if part is None or pair[0] is None or pair[1] is None or part.matched == "runtime":
        return []
    if len(part.before_rows) == len(part.after_rows) == 1:
        return part.aspects
    return aspects_of([rows[0][pair[0]]], [rows[1][pair[1]]])


def _in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs as they run; what only the first program has comes after what it follows there."""
    place: dict[Pair, tuple[int, int, int]] = {}
    last = -1
    for one, other in sorted((pair for pair in pairs if pair[0] is not None), key=lambda pair: pair[0] or 0):
        last = last if other is None else other
        place[one, other] = (last, int(other is None), one or 0)
    return sorted(pairs, key=lambda pair: place.get(pair) or (pair[1] or 0, 0, 0))


def _ends(before: Mapping[int, GraphNode], after: Mapping[int, GraphNode], counts: tuple[int, int]) -> Iterator[Pair]:
    """Yield the inputs and then the outputs of the programs; those of one name are one."""
    named: dict[str, list[int | None]] = {}
    for side, nodes in enumerate((before, after)):
        for node in nodes.values():
            if node.id >= counts[side]:
                named.setdefault(node.name, [None, None])[side] = node.id
    yield from ((pair[0], pair[1]) for _, pair in sorted(named.items(), key=lambda item: item[0].startswith("output")))


def _modules(pairs: Sequence[tuple[GraphNode, GraphNode]]) -> dict[str, str]:
    """Return how modules of the program before are called after, by what is one in both; most are called the same."""
    found: dict[str, str] = {}
    for same in (True, False):
        for one, other in pairs:
            if one.placed or other.placed or (one.module == other.module) is not same:
                continue
            old, new = one.module.split("."), other.module.split(".")
            for _ in range(MOST_MODULES):
                known = found.setdefault(".".join(old), ".".join(new))
                if known != ".".join(new) or not old or not new or old[-1] != new[-1]:
                    break
                old, new = old[:-1], new[:-1]
    return found


def _renamed(module: str, names: Mapping[str, str]) -> str:
    """Return where a module of the program before would be: in what the nearest around it has become."""
    parts = module.split(".") if module else []
    for depth in range(len(parts), -1, -1):
        around = names.get(".".join(parts[:depth]))
        if around is not None:
            return ".".join([*filter(None, [around]), *parts[depth:]])
    return module


def _edges(nodes: Sequence[PairNode], graphs: tuple[OperatorGraph, OperatorGraph]) -> list[PairEdge]:
    """Return the edges of both, equal ones once; one that is known to carry data is not one of order alone."""
    found: dict[tuple[int, int], list[GraphEdge | None]] = {}
    for side, graph in enumerate(graphs):
        known = ((node.before, node.after)[side] for node in nodes)
        node_of = {own.id: place for place, own in enumerate(known) if own is not None}
        for edge in graph.edges:
            # An edge from or to what is no node of its graph is none.
            if edge.source in node_of and edge.target in node_of:
                both = found.setdefault((node_of[edge.source], node_of[edge.target]), [None, None])
                if both[side] is None or not edge.order:
                    both[side] = edge
    edges = []
    for (source, target), both in found.items():
        there = [edge for edge in both if edge is not None]
        tensor = " -> ".join(dict.fromkeys(edge.tensor for edge in there if edge.tensor))
        which: EdgeSide = "both" if all(both) else "before" if both[0] else "after"
        edges.append(PairEdge(source, target, tensor, all(edge.order for edge in there), which))
    return edges
