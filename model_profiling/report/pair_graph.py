"""The graph of two programs as one, as the page's scripts take it: both sides of every box, and what may be claimed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from model_profiling.analysis.compare.program_changes import PartChange
from model_profiling.analysis.run.operator_graph import GraphNode
from model_profiling.analysis.run.pair_graph import PairNode, pair_graph
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.report import change_words, numbers
from model_profiling.report.graph_page import Strings, facts, node_data

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
    strings = Strings()
    return {"graphs": [graph for pair in pairs for graph in _graph(pair, strings)], "strings": strings.all}


def _graph(pair: ProgramPair, strings: Strings) -> Iterator[dict[str, Any]]:
    merged, changes = pair_graph(pair), pair.compared.changes
    if merged is None or changes is None:
        return
    whole = max(changes.before_ms, changes.after_ms)
    alone = merged.whole_parts
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
        "nodes": [_node(node, whole, node.id in alone, strings) for node in merged.nodes],
        "edges": [
            [edge.source, edge.target, strings.number(edge.tensor), int(edge.order), _SIDES[edge.side]]
            for edge in merged.edges
        ],
    }


def _node(node: PairNode, whole: float, alone: bool, strings: Strings) -> dict[str, Any]:
    """Return a box as large as the longer of its two times; `alone` means that it is all of its part."""
    longer = max(node.before_ms, node.after_ms)
    shown = msgspec.structs.replace(
        node.shown, id=node.id, module=node.module, ms=longer, share=longer / whole if whole else 0.0, change=None
    )
    found = node_data(shown, pair_facts(node, alone), strings)
    found |= {"before_ms": node.before_ms, "after_ms": node.after_ms}
    flags = {"told": node.told, "changed": node.changed, "side": node.side if node.side != "both" else ""}
    return found | {name: value for name, value in flags.items() if value}


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
    sides = [dict(_own_facts(own)) if own is not None else None for own in (node.before, node.after)]
    if sides[0] is None or sides[1] is None:
        yield from (sides[0] or sides[1] or {}).items()
        return
    for name in dict.fromkeys([*sides[1], *sides[0]]):
        before, after = sides[0].get(name), sides[1].get(name)
        if before == after:
            yield name, before or ""
            continue
        yield from ((said, value) for said, value in ((f"{name} before", before), (f"{name} now", after)) if value)


def _own_facts(node: GraphNode) -> Iterator[tuple[str, str]]:
    return (fact for fact in facts(node, ("", "")) if fact[0] != "time")


def _difference(node: PairNode, part: PartChange, alone: bool) -> str:
    if alone or part.low_ms is None:
        text = change_words.difference_text(part)
        return "unknown: too few launches, or times that cannot be relied on" if text == "-" else text
    of_part = f"all of {change_words.part_place(part)}: {change_words.difference_text(part)}"
    return f"{f'{node.difference_ms:+.3f} ms' if node.told else '~'}; {of_part}"


def _what(node: PairNode, part: PartChange, alone: bool) -> str:
    own = _ONLY.get(node.side, "") or "; ".join(map(change_words.aspect_text, node.aspects))
    of_part = "; ".join(map(change_words.aspect_text, part.aspects))
    if alone and node.side == "both":
        own = of_part
    elif of_part and part.matched not in ("only before", "only after") and of_part != own:
        return f"{own or 'nothing of its own'}; of its line: {of_part}"
    return own or ("nothing but the time" if node.told else "nothing")
