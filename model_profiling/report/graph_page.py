"""What the page's scripts need of graphs and timelines, of one program or of two.

Numbers are written here, as everywhere in a report; the scripts lay out, draw and let one walk through. Layered layout
is dagre's (`page/vendor/`, MIT), run in the browser for what is unfolded.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from model_profiling.analysis.compare.program_changes import PartChange
from model_profiling.analysis.run.operator_graph import GraphNode, KernelUse, OperatorGraph, graph_experiments
from model_profiling.analysis.run.program_pair import PairNode, ProgramPair, pair_graph
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import InstanceTime, file_line
from model_profiling.analysis.timing.profile import RUNTIME
from model_profiling.analysis.timing.spans import Timeline, typical_timeline
from model_profiling.report import change_words, numbers
from model_profiling.report.words import unique_labels

# A report has its graph in it up to so many operators in all experiments: beyond, one is asked for it.
MOST_IN_REPORT = 6000

_INSERTED = "no line of the model: XNNPACK or a pass of the export inserted it, or it could not be matched"

# Texts by number: shapes, kernels and files of one model repeat all the time.
Strings = defaultdict[str, int]


def graph_data(run: RunView) -> dict[str, Any]:
    """Return all graphs of a run as the scripts take them."""
    strings: Strings = defaultdict(lambda: len(strings))
    graphs = [_graph(graph, run, strings) for graph in run.graphs]
    return {"graphs": graphs, "strings": list(strings)}


def fits_report(run: RunView) -> bool:
    """Return whether the graph is small enough to be a part of every report."""
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
        "edges": [[edge.source, edge.target, strings[edge.tensor], int(edge.order)] for edge in graph.edges],
    }


def node_data(node: GraphNode, said: Iterable[tuple[str, str]], strings: Strings) -> dict[str, Any]:
    """Return one node as the scripts take it, with what to say of it when it is chosen."""
    texts = [strings[text] for pair in said for text in pair]
    best = node.emulated or node.kernels
    # What tells operators of one name apart that stand in no module.
    line = file_line(node.source.file, node.source.line) if node.source and not node.module else None
    same = ("id", "node", "name", "category", "where", "instruction", "ms", "share", "module")
    found = {name: getattr(node, name) for name in same} | {
        "title": title(node),
        "line": strings[line] if line is not None else None,
        "shape": strings[node.writes[0]] if node.writes else None,
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
        kernel = " ".join(part for part in (node.dtype, node.algorithm) if part)
        place = {
            "delegated": f"in the delegate called at instruction {node.instruction}",
            "portable": f"outside every delegate, at instruction {node.instruction}",
            "runtime": f"another backend's delegate, at instruction {node.instruction}: its operators are not told",
        }[node.where]
        yield "runs", f"{place}{f' ({kernel})' if kernel else ''}"
    kernels = {"SME2": node.kernels, "with SME2, emulated": node.emulated}
    yield from ((label, _sme2(use)) for label, use in kernels.items() if use is not None)
    yield from ((label, ", ".join(each)) for label, each in (("reads", node.reads), ("writes", node.writes)) if each)
    if node.work is not None:
        multiplies = node.work.multiply_accumulates
        yield "work", f"{f'{multiplies:,} multiply-accumulates, ' if multiplies else ''}{node.work.bytes:,} bytes"
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


def _sme2(use: KernelUse) -> str:
    said = {True: "yes", False: "no", None: "unknown"}[use.on_sme2]
    level = f", {use.level}" if use.level and use.level not in ("SME2", "unknown") else ""
    why = f": {use.why_not}" if use.why_not else ""
    return f"{said}{level}{why}" + (f"; {', '.join(use.kernels)}" if use.kernels else "")


def _source(node: GraphNode) -> Iterable[tuple[str, str]]:
    source = node.source
    if source is None:
        drawn = f"; drawn in {node.module}, where what it reads and what reads it are" if node.placed else ""
        return [("source", f"{_INSERTED}{drawn}")] if node.node == "operator" and node.category != RUNTIME else []
    operator = source.op if source.origin in ("", source.op) or not source.op else f"{source.op}, of {source.origin}"
    line = file_line(source.file, source.line) if source.file else ""
    known = {"source": line, "code": source.code, "module": source.module, "PyTorch": operator}
    return [(name, value) for name, value in known.items() if value]


# The evidence that the two sides of a box are one.
_MATCHED = {
    "line": "the same line of the same module",
    "module": "the same module",
    "work": "the same kind of work and size",
    "place": "the same place among its neighbours",
    "runtime": "ExecuTorch's own time",
}
_ONLY = {"before": "only before", "after": "only now"}
_SIDES = {"both": 0, "before": 1, "after": 2}


def pair_graph_data(*pairs: ProgramPair) -> dict[str, Any]:
    """Return the graphs of pairs of programs in the form of `graph_page.graph_data`, one for each pair."""
    strings: Strings = defaultdict(lambda: len(strings))
    return {"graphs": [graph for pair in pairs for graph in _pair_graph(pair, strings)], "strings": list(strings)}


def _pair_graph(pair: ProgramPair, strings: Strings) -> Iterator[dict[str, Any]]:
    merged, changes = pair_graph(pair), pair.compared.changes
    if merged is None or changes is None:
        return
    whole, alone = max(changes.before_ms, changes.after_ms), merged.whole_parts
    yield {
        "experiment": f"{changes.before}_{changes.after}",
        "label": f"{changes.before} -> {changes.after}",
        "execute_ms": whole,
        "sides": (changes.before, changes.after),
        "pair": {
            "before_ms": changes.before_ms,
            "after_ms": changes.after_ms,
            "difference": change_words.difference_text(changes),
            "known": changes.low_ms is not None,
        },
        "notes": merged.notes,
        "nodes": [_pair_node(node, whole, node.id in alone, strings) for node in merged.nodes],
        "edges": [
            [edge.source, edge.target, strings[edge.tensor], int(edge.order), _SIDES[edge.side]]
            for edge in merged.edges
        ],
    }


def _pair_node(node: PairNode, whole: float, alone: bool, strings: Strings) -> dict[str, Any]:
    """Return a box as large as the longer of its two times; `alone` means that it is all of its part."""
    longer = max(node.before_ms, node.after_ms)
    size = {"ms": longer, "share": longer / whole if whole else 0.0}
    shown = msgspec.structs.replace(node.shown, id=node.id, module=node.module, change=None, **size)
    found = node_data(shown, pair_facts(node, alone), strings)
    flags = {"told": node.told, "changed": node.changed, "side": node.side if node.side != "both" else ""}
    times = {"before_ms": node.before_ms, "after_ms": node.after_ms}
    return found | times | {name: value for name, value in flags.items() if value}


def pair_facts(node: PairNode, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield what to say of both sides of a box; what is the same on both is said once."""
    if node.part is not None:
        for name, own in (("time before", node.before), ("time now", node.after)):
            if own is not None and own.ms is not None and own.share is not None:
                yield name, f"{numbers.ms(own.ms)}, {numbers.share(own.share)} of Method::execute"
        yield "difference", _difference(node, node.part, alone)
        yield "what changed", _what(node, node.part, alone)
        if node.side == "both":
            yield "matched by", _MATCHED[node.part.matched]
    elif node.side != "both":
        yield "what changed", _ONLY[node.side]
    was, now = (dict(facts(own, ("", ""))) if own is not None else {} for own in (node.before, node.after))
    for name in dict.fromkeys([*now, *was]):
        sides = {f"{name} before": was.get(name), f"{name} now": now.get(name)}
        if node.side != "both" or was.get(name) == now.get(name):
            sides = {name: now.get(name) or was.get(name)}
        if name != "time":
            yield from ((said, value) for said, value in sides.items() if value)


def _difference(node: PairNode, part: PartChange, alone: bool) -> str:
    if alone or part.low_ms is None:
        text = change_words.difference_text(part)
        return "unknown: too few launches, or times that cannot be relied on" if text == "-" else text
    of_part = f"all of {change_words.part_place(part)}: {change_words.difference_text(part)}"
    return f"{f'{numbers.difference(node.difference_ms)} ms' if node.told else '~'}; {of_part}"


def _what(node: PairNode, part: PartChange, alone: bool) -> str:
    own = _ONLY.get(node.side, "") or "; ".join(map(change_words.aspect_text, node.aspects))
    of_part = "; ".join(map(change_words.aspect_text, part.aspects))
    if alone and node.side == "both":
        own = of_part
    elif of_part and part.matched not in ("only before", "only after") and of_part != own:
        return f"{own or 'nothing of its own'}; of its line: {of_part}"
    return own or ("only the time" if node.told else "nothing")


# Links between parts that are drawn before a reader chooses one.
_MOST_LINKS = 30


def timeline_data(
    timeline: Timeline, instances: Sequence[InstanceTime], parts: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """Return one execution; of two that are linked, spans end with the number of the part that their row is in."""
    labels = unique_labels(instances)
    spans = []
    for span in timeline.spans:
        times = (round(span.start_us, 3), round(span.duration_us, 3))
        part = () if parts is None else (parts.get(span.row, -1),)
        spans.append([labels[span.row], span.category, span.where, *times, span.depth, span.row, *part])
    return {"execution": timeline.execution, "spans": spans}


def linked_timelines(pair: ProgramPair) -> dict[str, Any]:
    """Return both executions of a compared pair, and its parts with what changed."""
    parts = pair.compared.changes.parts if pair.compared.changes is not None else []
    told = [number for number, part in enumerate(parts) if part.told and part.matched != "runtime"]
    timelines = {}
    for which, side in (("before", pair.before), ("after", pair.after)):
        rows = {row: number for number, part in enumerate(parts) for row in getattr(part, f"{which}_rows")}
        timelines[which] = timeline_data(typical_timeline(side.profile), side.breakdown.instances, rows)
    return {
        "labels": {"before": f"before: {pair.before.name}", "after": f"now: {pair.after.name}"},
        "timelines": timelines,
        "parts": [_part(part) for part in parts],
        "linked": told[:_MOST_LINKS],
    }


def _part(part: PartChange) -> list[str]:
    """Return the name of a part, its times with their difference, what changed, and which way it went."""
    difference = change_words.difference_text(part)
    times = f"{numbers.ms(part.before_ms)} before, {numbers.ms(part.after_ms)} now"
    whole = f"{times}, difference {difference if difference != '-' else 'not known'}"
    way = "" if not part.told else "faster" if part.difference_ms < 0 else "slower"
    return [change_words.part_name(part), whole, change_words.what_changed(part), way]
