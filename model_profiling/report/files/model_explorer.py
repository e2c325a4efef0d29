"""Google's Model Explorer: graphs of a run or of two programs in its own format, overlays on them, and its command.

An overlay gives numbers to nodes by the ids they have in a graph, and one file may do so for several graphs. Ours know
three: the run's own (`…_graph.json`, which Model Explorer opens without an extension and whose nodes sum to
`Method::execute`), the .pte and the ETRecord as Arm's adapters draw them. In the .pte a delegate's call has the time of
all its operators, which have their own in the delegate's graph.

What is one in both of two programs has one id in both graphs, which is how Model Explorer goes to the same node on both
sides of a split pane (sync navigation, "match node id"), and shows which nodes the other does not have.
"""

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.run.operator_graph import GraphNode, OperatorGraph
from model_profiling.analysis.run.program_pair import EdgeSide, PairGraph, ProgramPair, pair_graph
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base import files
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.programs import start
from model_profiling.base.records import by_key
from model_profiling.formats import etrecord
from model_profiling.report.graph_page import facts, pair_facts
from model_profiling.store.artifacts import EXPLORER_GRAPH, MODEL_EXPLORER, OVERLAY

Metric = Literal["time", "share", "speedup", "sme2", "sqnr"]
# A graph, a node or an overlay as Model Explorer reads it.
Json = dict[str, Any]
_PACKAGE, _EXECUTABLE = "model_explorer", "model-explorer"
# Arm's extension, which draws .pte files; it needs a Python before 3.13.
_PTE_ADAPTER = "pte_adapter_model_explorer"


def _gradient(low: str, high: str) -> list[Json]:
    return [{"stop": 0, "bgColor": low}, {"stop": 1, "bgColor": high}]


def _coloured(text: str, colour: str) -> Json:
    return {"value": text, "bgColor": colour}


_HOT, _RATIO, _LOSS = _gradient("#fff3e0", "#b32900"), _gradient("#ececef", "#007a59"), _gradient("#b32900", "#e3f2e9")
_SME2 = {
    True: _coloured("SME2", "#0072b2"),
    False: _coloured("not SME2", "#e69f00"),
    None: _coloured("SME2 unknown", "#8a8d96"),
}
# As on the page: light where a difference is small.
_LIGHT, _FASTER, _SLOWER = (0xEC, 0xEC, 0xEF), (0x00, 0x72, 0xB2), (0xC2, 0x4E, 0x00)
_SIDES: tuple[EdgeSide, EdgeSide] = ("before", "after")


class _Measure(NamedTuple):
    """How a metric is called, what it is of one operator, whether those of several add up, and its colours."""

    name: str
    value: Callable[[GraphNode], Json | None]
    adds_up: bool = False
    gradient: Sequence[Json] = ()


def _number(value: float | None, digits: int) -> Json | None:
    """Round a value: Model Explorer shows all digits there are, and nine of a millisecond add up to what they did."""
    return {"value": round(value, digits)} if value is not None else None


_MEASURES: dict[Metric, _Measure] = {
    "time": _Measure("ms", lambda node: _number(node.ms, 9), True, _HOT),
    "share": _Measure("share (%)", lambda node: _number(node.share and node.share * 100, 6), True, _HOT),
    "speedup": _Measure("times faster", lambda n: _number(n.change.ratio if n.change else None, 3), False, _RATIO),
    "sme2": _Measure("SME2", lambda node: _SME2[use.on_sme2] if (use := node.emulated or node.kernels) else None),
    "sqnr": _Measure("SQNR (dB)", lambda node: _number(node.sqnr_db, 2), False, _LOSS),
}


def _overlay(name: str, results: Json, gradient: Sequence[Json]) -> Json:
    return {"name": name, "results": results, **({"gradient": gradient} if gradient else {})}


def graphs(run: RunView) -> dict[str, Json]:
    """Return the graphs of a run by file: nodes in modules, facts as attributes, shapes on edges."""
    found = {}
    for graph in run.graphs:
        incoming = _incoming((edge.source, edge.target) for edge in graph.edges)
        sides = run.sides(graph.before, graph.after) if graph.before else ("", "")
        nodes = [_node(node, facts(node, sides), incoming) for node in graph.nodes]
        label = f"{run.summary.model}, {graph.title}"
        found[f"{graph.experiment}{EXPLORER_GRAPH}"] = {"label": label, "graphs": [{"id": graph.title, "nodes": nodes}]}
    return found


def _incoming(edges: Iterable[tuple[int, int]]) -> dict[int, list[Json]]:
    link = {"sourceNodeOutputId": "0", "targetNodeInputId": "0"}
    return by_key((target, {"sourceNodeId": str(source), **link}) for source, target in edges)


def _node(node: GraphNode, said: Iterable[tuple[str, str]], incoming: Mapping[int, list[Json]]) -> Json:
    """Return a node in its module, with what is said of it as attributes and its shape on what leaves it."""
    namespace = "ExecuTorch runtime" if node.node == "runtime" else node.module.replace("/", "_").replace(".", "/")
    shapes = [{"key": "tensor_shape", "value": shape} for shape in node.writes[:1]]
    return {
        "id": str(node.id),
        "label": node.operator,
        "namespace": namespace,
        "attrs": [{"key": key, "value": value} for key, value in said],
        "incomingEdges": incoming.get(node.id, []),
        "outputsMetadata": [{"id": "0", "attrs": shapes}] if shapes else [],
    }


def overlays(run: RunView) -> dict[str, dict[str, Json]]:
    """Return every overlay by its file, each with the graphs it is for; none of what nothing is known.

    Those of the ETRecord's graph are apart: both it and the .pte's call a graph by its method.
    """
    found: dict[str, dict[str, Json]] = {}
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
                        each: _overlay(name, result, measure.gradient) for each, result in results.items()
                    }
    return found


def _results(
    graph: OperatorGraph,
    values: Mapping[int, Json],
    places: Callable[[GraphNode, bool], Iterator[tuple[str, str]]],
    adds_up: bool,
) -> dict[str, dict[str, Json]]:
    """Return values by graph and node: of several operators in one node the sum, or the first if none adds up."""
    found: dict[str, dict[str, list[Json]]] = {}
    for node in graph.nodes:
        if node.id in values:
            for id_, place in places(node, adds_up):
                found.setdefault(id_, {}).setdefault(place, []).append(values[node.id])

    def joined(several: list[Json]) -> Json:
        total = {"value": round(sum(each["value"] for each in several), 9)} if adds_up else {}
        return total if total and len(several) > 1 else several[0]

    return {id_: {place: joined(several) for place, several in at.items()} for id_, at in found.items()}


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


def _name(record: etrecord.Etrecord | None, node: GraphNode, method: str) -> str:
    """Return what the ETRecord's adapter calls the node that an operator was made from; '' if it is not known."""
    source = node.source
    if record is None or source is None or not source.debug_handle:
        return ""
    behind = [each for each in record.nodes(source.debug_handle, method) if each.name]
    same = next((each for each in behind if (each.op, each.line) == (source.op, source.line)), None)
    return f"{same.name}_" if same is not None else ""


def pair_explorer_files(pairs: Sequence[ProgramPair], directory: Path) -> list[Path]:
    """Write both graphs of each pair as one model, and overlays of their times and differences, into a directory;
    returns the files, graphs first. Nodes have a difference only where it can be told from noise."""
    made: dict[str, object] = {}
    for number, pair in enumerate(pairs, 1):
        merged = pair_graph(pair)
        if merged is None:
            continue
        stem = f"pair_{number}" if len(pairs) > 1 else "pair"
        sides = dict(zip(_SIDES, (pair.before.name, pair.after.name), strict=True))
        both = [{"id": name, "nodes": _pair_nodes(merged, side)} for side, name in sides.items()]
        label = f"{pair.before.name} before, {pair.after.name} now"
        made[f"{stem}{EXPLORER_GRAPH}"] = {"label": label, "graphs": both}
        times = {name: _overlay("ms", _times(merged, side), _HOT) for side, name in sides.items()}
        made[f"{stem}_time{OVERLAY}"] = times
        told = {name: _differences(merged, side) for side, name in sides.items()}
        differences = {name: _overlay("difference (ms)", results, []) for name, results in told.items()}
        made |= {f"{stem}_difference{OVERLAY}": differences} if any(told.values()) else {}
    for name, data in made.items():
        files.write_bytes(directory / name, files.json_bytes(data, indent=0))
    return sorted((directory / name for name in made), key=lambda path: not path.name.endswith(EXPLORER_GRAPH))


def _pair_nodes(merged: PairGraph, side: EdgeSide) -> list[Json]:
    incoming = _incoming((edge.source, edge.target) for edge in merged.edges if edge.side in ("both", side))
    alone = merged.whole_parts
    found = []
    for node in (each for each in merged.nodes if each.side in ("both", side)):
        drawn = msgspec.structs.replace(getattr(node, side), id=node.id, module=node.module)
        found.append(_node(drawn, pair_facts(node, node.id in alone), incoming))
    return found


def _times(merged: PairGraph, side: EdgeSide) -> Json:
    nodes = [node for node in merged.nodes if node.part is not None and node.side in ("both", side)]
    return {str(node.id): _number(getattr(node, side).ms or 0.0, 9) for node in nodes}


def _differences(merged: PairGraph, side: EdgeSide) -> Json:
    told = [node for node in merged.nodes if node.told]
    most = max((abs(node.difference_ms) for node in told), default=0.0)
    return {
        str(node.id): {"value": round(node.difference_ms, 6), "bgColor": _colour(node.difference_ms, most)}
        for node in told
        if node.side in ("both", side)
    }


def _colour(difference: float, most: float) -> str:
    """Return the colour of a difference: each gradient of an overlay begins at its lowest value, and not at none."""
    amount = 0.2 + 0.8 * (abs(difference) / most) ** 0.5 if most else 0.0
    end = _FASTER if difference < 0 else _SLOWER
    return "#" + "".join(f"{round(a + (b - a) * amount):02x}" for a, b in zip(_LIGHT, end, strict=True))


def explorer_command(run: RunView, written: list[Path]) -> list[str]:
    """Return what to type, for files that were written for it; with Arm's adapter beside it, it shows the .pte, too."""
    home = run.path / MODEL_EXPLORER
    # Overlays of the ETRecord belong to a graph that is not opened here. It shows the first model, and of it the last
    # overlay that was read.
    overlays = [path for path in written if path.name.endswith(OVERLAY) and path.parent == home][::-1]
    overlays.sort(key=lambda path: path.name.endswith(f"_time{OVERLAY}"))
    command = pair_command([*(path for path in written if path.name.endswith(EXPLORER_GRAPH)), *overlays])
    program = run.manifest.model.file()
    if program is None or importlib.util.find_spec(_PTE_ADAPTER) is None:
        return command
    return [*command[:-1], str(program), command[-1], f"--extensions={_PTE_ADAPTER}"]


def pair_command(written: list[Path]) -> list[str]:
    """Return what to type for graphs and overlays; the overlay that is given last is shown first."""
    overlays = [str(path) for path in written if path.name.endswith(OVERLAY)]
    models = [str(path) for path in written if path.name.endswith(EXPLORER_GRAPH)]
    return [_EXECUTABLE, *models, f"--node_data_paths={','.join(overlays)}"]


def open_explorer(command: list[str]) -> None:
    """Start Model Explorer with such a command and wait until it is stopped (Ctrl-C)."""
    # It takes lists apart at commas.
    if "," in command[1]:
        what = f"Model Explorer cannot open a path with a comma in it: {command[1]}"
        raise InputError(what, "Move the run directory.")
    if importlib.util.find_spec(_PACKAGE) is not None:
        words = python_command(_PACKAGE)
    elif (found := shutil.which(_EXECUTABLE)) is not None:
        words = [found]
    else:
        raise SetupError("Google's Model Explorer is not installed", f"Run `{install_command('explorer')}`.")
    with start([*words, *command[1:]]) as process:
        try:
            process.wait()
        finally:
            process.end_all()
