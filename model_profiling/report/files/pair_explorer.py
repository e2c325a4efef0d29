"""Two programs for Google's Model Explorer: both graphs as one model, and overlays of their times and differences.

What is one in both programs has one id in both graphs, which is how Model Explorer goes to the same node on both sides
of a split pane (sync navigation, "match node id"), and shows which nodes the other does not have.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling.analysis.run.pair_graph import EdgeSide, PairGraph, pair_graph
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.base import files
from model_profiling.report.files.model_explorer import (
    HOT,
    ExplorerEdge,
    ExplorerGraph,
    ExplorerGraphs,
    ExplorerNode,
    ExplorerValue,
    Overlay,
    explorer_node,
)
from model_profiling.report.pair_graph import pair_facts
from model_profiling.store.artifacts import EXPLORER_GRAPH, OVERLAY

# As on the page: light where a difference is small.
_LIGHT, _FASTER, _SLOWER = (0xEC, 0xEC, 0xEF), (0x00, 0x72, 0xB2), (0xC2, 0x4E, 0x00)
_SIDES: tuple[EdgeSide, EdgeSide] = ("before", "after")


def pair_explorer_files(pairs: Sequence[ProgramPair], directory: Path) -> list[Path]:
    """Write both graphs of each pair and their overlays into a directory; returns the files, graphs first.

    Nodes have a difference only where it can be told from noise.
    """
    made: dict[str, bytes] = {}
    for number, pair in enumerate(pairs, 1):
        merged = pair_graph(pair)
        if merged is None:
            continue
        stem = f"pair_{number}" if len(pairs) > 1 else "pair"
        names = pair.before.name, pair.after.name
        graphs = [ExplorerGraph(name, _nodes(merged, side)) for name, side in zip(names, _SIDES, strict=True)]
        label = f"{names[0]} before, {names[1]} now"
        made[f"{stem}{EXPLORER_GRAPH}"] = files.json_bytes(ExplorerGraphs(label, graphs), indent=0)
        made[f"{stem}_time{OVERLAY}"] = files.json_bytes(
            {name: Overlay("ms", _times(merged, side), HOT) for name, side in zip(names, _SIDES, strict=True)}, indent=0
        )
        told = {name: _differences(merged, side) for name, side in zip(names, _SIDES, strict=True)}
        if any(told.values()):
            overlays = {name: Overlay("difference (ms)", results) for name, results in told.items()}
            made[f"{stem}_difference{OVERLAY}"] = files.json_bytes(overlays, indent=0)
    for name, data in made.items():
        files.write_bytes(directory / name, data)
    return sorted((directory / name for name in made), key=lambda path: not path.name.endswith(EXPLORER_GRAPH))


def _nodes(merged: PairGraph, side: EdgeSide) -> list[ExplorerNode]:
    incoming: dict[int, list[ExplorerEdge]] = {}
    for edge in merged.edges:
        if edge.side in ("both", side):
            incoming.setdefault(edge.target, []).append(ExplorerEdge(str(edge.source)))
    alone = merged.whole_parts
    found = []
    for node in merged.nodes:
        own = node.before if side == "before" else node.after
        if own is not None:
            drawn = msgspec.structs.replace(own, id=node.id, module=node.module)
            found.append(explorer_node(drawn, pair_facts(node, node.id in alone), incoming.get(node.id, [])))
    return found


def _times(merged: PairGraph, side: EdgeSide) -> dict[str, ExplorerValue]:
    own = {node.id: node.before if side == "before" else node.after for node in merged.nodes if node.part is not None}
    return {str(id_): ExplorerValue(round(node.ms or 0.0, 9)) for id_, node in own.items() if node is not None}


def _differences(merged: PairGraph, side: EdgeSide) -> dict[str, ExplorerValue]:
    told = [node for node in merged.nodes if node.told]
    most = max((abs(node.difference_ms) for node in told), default=0.0)
    return {
        str(node.id): ExplorerValue(round(node.difference_ms, 6), _colour(node.difference_ms, most))
        for node in told
        if node.side in ("both", side)
    }


def _colour(difference: float, most: float) -> str:
    """Return the colour of a difference: each gradient of an overlay begins at its lowest value, and not at none."""
    amount = 0.2 + 0.8 * (abs(difference) / most) ** 0.5 if most else 0.0
    end = _FASTER if difference < 0 else _SLOWER
    return "#" + "".join(f"{round(a + (b - a) * amount):02x}" for a, b in zip(_LIGHT, end, strict=True))
