"""The interactive graph: what the page's scripts need of it, and a page that shows nothing else.

Numbers are written here, as everywhere in a report; the scripts lay out, draw and let one walk through. Layered layout
is dagre's (`page/vendor/`, MIT), run in the browser for what is unfolded.
"""

from collections.abc import Iterable
from typing import Any

from model_profiling.analysis.run.operator_graph import GraphNode, KernelUse, OperatorGraph
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import file_line
from model_profiling.analysis.timing.profile import RUNTIME
from model_profiling.report import numbers

# A report has its graph in it up to so many operators in all experiments: beyond, one is asked for it.
MOST_IN_REPORT = 6000

_INSERTED = "no line of the model: XNNPACK or a pass of the export inserted it, or it could not be matched"


class Strings:
    """Texts by number: shapes, kernels and files of one model repeat all the time."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> list[str]:
        return list(self._numbers)


def graph_data(run: RunView) -> dict[str, Any]:
    """Return all graphs of a run as the scripts take them."""
    strings = Strings()
    graphs = [_graph(graph, run, strings) for graph in run.graphs]
    return {"graphs": graphs, "strings": strings.all}


def fits_report(run: RunView) -> bool:
    """Return whether the graph is small enough to be a part of every report."""
    from model_profiling.analysis.run.run_graphs import graph_experiments

    graphed = [run.summary.experiments[name].breakdown for name in graph_experiments(run)]
    return sum(len(breakdown.instances) for breakdown in graphed) <= MOST_IN_REPORT


def _graph(graph: OperatorGraph, run: RunView, strings: Strings) -> dict[str, Any]:
    sides = run.sides(graph.before, graph.after) if graph.before else ("", "")
    return {
        "experiment": graph.experiment,
        "label": graph.title,
        "execute_ms": graph.execute_ms,
        "sides": sides,
        "notes": graph.notes,
        "nodes": [node_data(node, facts(node, sides), strings) for node in graph.nodes],
        "edges": [[edge.source, edge.target, strings.number(edge.tensor), int(edge.order)] for edge in graph.edges],
    }


def node_data(node: GraphNode, said: Iterable[tuple[str, str]], strings: Strings) -> dict[str, Any]:
    """Return one node as the scripts take it, with what to say of it when it is chosen."""
    texts = [strings.number(text) for pair in said for text in pair]
    best = node.emulated or node.kernels
    found = {
        "id": node.id,
        "node": node.node,
        "name": node.name,
        "title": title(node),
        "category": node.category,
        "where": node.where,
        "instruction": node.instruction,
        "ms": node.ms,
        "share": node.share,
        "module": node.module,
        # What tells operators of one name apart that stand in no module.
        "line": strings.number(file_line(node.source.file, node.source.line))
        if node.source and not node.module
        else None,
        "shape": strings.number(node.writes[0]) if node.writes else None,
        "transpose": node.kind == "transpose" or None,
        "placed": node.placed or None,
        "before_ms": node.change.before_ms if node.change else None,
        "after_ms": node.change.after_ms if node.change else None,
        "sme2": None if best is None else "unknown" if best.on_sme2 is None else "yes" if best.on_sme2 else "no",
        "sqnr": node.sqnr_db,
        "facts": texts,
    }
    return {key: value for key, value in found.items() if value is not None}


def title(node: GraphNode) -> str:
    """Return the operator without its number, types and layout: `Convolution`, `mean`."""
    name = node.operator.split(" (")[0]
    return name.split("::")[-1].split(".")[0] if node.where == "portable" else name


def facts(node: GraphNode, sides: tuple[str, str]) -> Iterable[tuple[str, str]]:
    """Yield what to say of a chosen node, in order; what is not known is left out unless it has a reason."""
    if node.ms is not None and node.share is not None:
        yield "time", f"{numbers.ms(node.ms)}, {numbers.share(node.share)} of Method::execute"
    if node.change is not None:
        yield "compared", _compared(node, sides)
    if node.node == "operator":
        yield "operator", node.operator
        kind = f" ({node.kind})" if node.kind and node.kind.lower() != node.category.lower() else ""
        yield "category", f"{node.category}{kind}"
        yield "runs", _where(node)
    if node.kernels is not None:
        yield "SME2", _sme2(node.kernels)
    if node.emulated is not None:
        yield "with SME2, emulated", _sme2(node.emulated)
    for label, tensors in (("reads", node.reads), ("writes", node.writes)):
        if tensors:
            yield label, ", ".join(tensors)
    if node.work is not None and node.work.multiply_accumulates:
        yield "work", f"{node.work.multiply_accumulates:,} multiply-accumulates, {node.work.bytes:,} bytes"
    elif node.work is not None:
        yield "work", f"{node.work.bytes:,} bytes"
    if node.roof is not None:
        rates = f"{numbers.rate(node.roof.rate)} of {numbers.rate(node.roof.roof)} {node.roof.unit}"
        yield "roof", f"{numbers.of_roof(node.roof.of_roof)} ({rates}, {node.roof.bound}-bound)"
    if node.sqnr_db is not None:
        yield "SQNR", f"{node.sqnr_db:.1f} dB"
    yield from _source(node)


def _compared(node: GraphNode, sides: tuple[str, str]) -> str:
    change = node.change
    assert change is not None
    times = f"{numbers.ms(change.before_ms)} with {sides[0]}, {numbers.ms(change.after_ms)} with {sides[1]}"
    faster = numbers.bounded_speedup(change.ratio, change.low, change.high)
    return f"{'~ (the interval includes 1)' if faster == '~' else faster}: {times}" if faster != "-" else times


def _where(node: GraphNode) -> str:
    kernel = " ".join(part for part in (node.dtype, node.algorithm) if part)
    place = {
        "delegated": f"in the delegate called at instruction {node.instruction}",
        "portable": f"outside every delegate, at instruction {node.instruction}",
        "runtime": f"another backend's delegate, at instruction {node.instruction}: its operators are not told",
    }[node.where]
    return f"{place}{f' ({kernel})' if kernel else ''}"


def _sme2(use: KernelUse) -> str:
    said = {True: "yes", False: "no", None: "unknown"}[use.on_sme2]
    level = f", {use.level}" if use.level and use.level not in ("SME2", "unknown") else ""
    why = f": {use.why_not}" if use.why_not else ""
    return f"{said}{level}{why}" + (f"; {', '.join(use.kernels)}" if use.kernels else "")


def _source(node: GraphNode) -> Iterable[tuple[str, str]]:
    source = node.source
    if source is None:
        if node.node == "operator" and node.category != RUNTIME:
            drawn = f"; drawn in {node.module}, where what it reads and what reads it are" if node.placed else ""
            yield "source", f"{_INSERTED}{drawn}"
        return
    if source.file:
        yield "source", file_line(source.file, source.line)
    if source.code:
        yield "code", source.code
    if source.module:
        yield "module", source.module
    if source.op:
        yield "PyTorch", source.op if source.origin in ("", source.op) else f"{source.op}, of {source.origin}"
