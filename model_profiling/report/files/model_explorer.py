"""Overlays for Google's Model Explorer, and the graph of a run in its own format.

An overlay gives numbers to nodes by the ids they have in a graph, and one file may do so for several graphs. Ours know
three: the run's own (`…_graph.json`, which Model Explorer opens without an extension and whose nodes sum to
`Method::execute`), the .pte and the ETRecord as Arm's adapters draw them. In the .pte a delegate's call has the time of
all its operators, which have their own in the delegate's graph.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.run.operator_graph import GraphNode, OperatorGraph
from model_profiling.analysis.run.run_view import RunView
from model_profiling.formats import etrecord
from model_profiling.report.graph_page import facts
from model_profiling.store.artifacts import EXPLORER_GRAPH, OVERLAY

Metric = Literal["time", "share", "speedup", "sme2", "sqnr"]
_RUNTIME = "ExecuTorch runtime"


class Attribute(msgspec.Struct, frozen=True):
    key: str
    value: str


class ExplorerEdge(msgspec.Struct, frozen=True, rename="camel"):
    source_node_id: str
    source_node_output_id: str = "0"
    target_node_input_id: str = "0"


class ExplorerOutput(msgspec.Struct, frozen=True):
    id: str
    attrs: list[Attribute]


class ExplorerNode(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    label: str
    namespace: str
    attrs: list[Attribute]
    incoming_edges: list[ExplorerEdge]
    outputs_metadata: list[ExplorerOutput]


class ExplorerGraph(msgspec.Struct, frozen=True):
    id: str
    nodes: list[ExplorerNode]


class ExplorerGraphs(msgspec.Struct, frozen=True):
    """What Model Explorer takes as a model in a .json file. Of several files it shows the first."""

    label: str
    graphs: list[ExplorerGraph]


class ExplorerValue(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    value: float | str
    bg_color: str = ""


class Stop(msgspec.Struct, frozen=True, rename="camel"):
    stop: float
    bg_color: str


class Overlay(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of one graph's nodes, and the colours from the lowest to the highest."""

    name: str
    results: dict[str, ExplorerValue]
    gradient: list[Stop] = []


HOT = [Stop(0, "#fff3e0"), Stop(1, "#b32900")]
_FASTER = [Stop(0, "#ececef"), Stop(1, "#007a59")]
_LOSS = [Stop(0, "#b32900"), Stop(1, "#e3f2e9")]
_SME2 = {
    True: ExplorerValue("SME2", "#0072b2"),
    False: ExplorerValue("not SME2", "#e69f00"),
    None: ExplorerValue("SME2 unknown", "#8a8d96"),
}


class _Measure(msgspec.Struct, frozen=True):
    """How a metric is called, what it is of one operator, whether those of several add up, and its colours."""

    name: str
    value: Callable[[GraphNode], ExplorerValue | None]
    adds_up: bool = False
    gradient: list[Stop] = []


def _number(value: float | None, digits: int) -> ExplorerValue | None:
    """Round a value: Model Explorer shows all digits there are, and nine of a millisecond add up to what they did."""
    return ExplorerValue(round(value, digits)) if value is not None else None


_MEASURES: dict[Metric, _Measure] = {
    "time": _Measure("ms", lambda node: _number(node.ms, 9), True, HOT),
    "share": _Measure(
        "share (%)", lambda node: _number(None if node.share is None else node.share * 100, 6), True, HOT
    ),
    "speedup": _Measure(
        "times faster", lambda node: _number(node.change.ratio if node.change else None, 3), False, _FASTER
    ),
    "sme2": _Measure("SME2", lambda node: _SME2[use.on_sme2] if (use := node.emulated or node.kernels) else None),
    "sqnr": _Measure("SQNR (dB)", lambda node: _number(node.sqnr_db, 2), False, _LOSS),
}


def graphs(run: RunView) -> dict[str, ExplorerGraphs]:
    """Return the graphs of a run by file: nodes in modules, facts as attributes, shapes on edges."""
    return {
        f"{graph.experiment}{EXPLORER_GRAPH}": ExplorerGraphs(
            f"{run.summary.model}, {graph.title}", [ExplorerGraph(graph.title, list(_nodes(graph, run)))]
        )
        for graph in run.graphs
    }


def _nodes(graph: OperatorGraph, run: RunView) -> Iterator[ExplorerNode]:
    incoming: dict[int, list[ExplorerEdge]] = {}
    for edge in graph.edges:
        incoming.setdefault(edge.target, []).append(ExplorerEdge(str(edge.source)))
    sides = run.sides(graph.before, graph.after) if graph.before else ("", "")
    for node in graph.nodes:
        yield explorer_node(node, facts(node, sides), incoming.get(node.id, []))


def explorer_node(node: GraphNode, said: Iterable[tuple[str, str]], incoming: list[ExplorerEdge]) -> ExplorerNode:
    """Return a node in its module, with what is said of it as attributes and its shape on what leaves it."""
    return ExplorerNode(
        id=str(node.id),
        label=node.operator,
        namespace=_RUNTIME if node.node == "runtime" else node.module.replace("/", "_").replace(".", "/"),
        attrs=[Attribute(key, value) for key, value in said],
        incoming_edges=incoming,
        outputs_metadata=[ExplorerOutput("0", [Attribute("tensor_shape", node.writes[0])])] if node.writes else [],
    )


def overlays(run: RunView) -> dict[str, dict[str, Overlay]]:
    """Return every overlay by its file, each with the graphs it is for; none of what nothing is known.

    Those of the ETRecord's graph are apart: both it and the .pte's call a graph by its method.
    """
    found: dict[str, dict[str, Overlay]] = {}
    for graph in run.graphs:
        places = _Places(run, graph)
        for metric, measure in _MEASURES.items():
            if metric == "speedup" and graph.experiment == graph.before:
                continue  # the other side has it
            values = {node.id: value for node in graph.nodes if (value := measure.value(node)) is not None}
            for folder, of in (("", places.of_program), ("etrecord/", places.of_record)):
                results = _results(graph, values, of, measure.adds_up)
                if results:
                    name = f"{measure.name}, {graph.title}"
                    found[f"{folder}{graph.experiment}_{metric}{OVERLAY}"] = {
                        each: Overlay(name, result, measure.gradient) for each, result in results.items()
                    }
    return found


def _results(
    graph: OperatorGraph,
    values: Mapping[int, ExplorerValue],
    places: Callable[[GraphNode, bool], Iterator[tuple[str, str]]],
    adds_up: bool,
) -> dict[str, dict[str, ExplorerValue]]:
    """Return values by graph and node: of several operators in one node the sum, or the first if none adds up."""
    found: dict[str, dict[str, list[ExplorerValue]]] = {}
    for node in graph.nodes:
        if node.id in values:
            for id_, place in places(node, adds_up):
                found.setdefault(id_, {}).setdefault(place, []).append(values[node.id])
    return {id_: {place: _joined(several, adds_up) for place, several in at.items()} for id_, at in found.items()}


class _Places:
    """Where each operator of a graph is found: by graph and node."""

    def __init__(self, run: RunView, graph: OperatorGraph) -> None:
        self._id = graph.title
        self._method = run.manifest.experiments[graph.experiment].method or "forward"
        model = Path(run.manifest.model.path)
        self._file = model.name
        record = read_sources(model).record
        self._names = {node.id: name for node in graph.nodes if (name := _name(record, node, self._method))}

    def of_program(self, node: GraphNode, adds_up: bool) -> Iterator[tuple[str, str]]:
        """Yield where it is in the run's own graph, and in the .pte as Arm's adapter draws it: instructions of the
        method, and nodes of each delegate in a graph of its own."""
        yield self._id, str(node.id)
        if node.instruction < 0 or node.name == "method":
            return
        call = f"{self._method}_0_{node.instruction}"
        if adds_up or node.where == "portable":
            yield self._method, call
        if node.program_node is not None:
            yield f"{self._file}::{call}", str(node.program_node)

    def of_record(self, node: GraphNode, adds_up: bool) -> Iterator[tuple[str, str]]:
        """Yield where it is in the exported program that the ETRecord holds, as Arm's adapter draws it."""
        if node.id in self._names:
            yield self._method, self._names[node.id]


def _joined(several: list[ExplorerValue], adds_up: bool) -> ExplorerValue:
    numbers = [each.value for each in several if not isinstance(each.value, str)]
    return ExplorerValue(round(sum(numbers), 9)) if adds_up and len(several) > 1 else several[0]


def _name(record: etrecord.Etrecord | None, node: GraphNode, method: str) -> str:
    """Return what the ETRecord's adapter calls the node that an operator was made from; '' if it is not known."""
    source = node.source
    if record is None or source is None or not source.debug_handle:
        return ""
    behind = [each for each in record.nodes(source.debug_handle, method) if each.name]
    same = next((each for each in behind if (each.op, each.line) == (source.op, source.line)), None)
    return f"{same.name}_" if same is not None else ""
