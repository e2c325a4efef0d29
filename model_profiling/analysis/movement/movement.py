"""Data movement: which transposes, copies, packs, pads and converts there are, in which chains, and what each costs."""

from typing import TYPE_CHECKING

import msgspec

from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.base.records import sum_by_key
from model_profiling.formats.graph_terms import CONSTANT, ELSEWHERE, INPUT, packet, unique
from model_profiling.store.artifacts import ExportRecord

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph

# Kinds of operators that write the values they were given in another order or to another place, all of them. What
# chooses values (gather, embedding, slice), joins them (concat, pad) or makes them (fill) changes no layout.
LAYOUT_KINDS = ("transpose", "reshape", "copy", "pack", "shuffle")

_MOVEMENT = "Data Movement"
_UNKNOWN = "not known"


class Chain(msgspec.Struct, frozen=True):
    """Data movement operators that feed each other. `before` and `after` are what it lies between ('' at an end)."""

    operators: list[str]
    ms: float
    share: float
    before: str
    after: str
    # Whether it lies at the edge of a delegate, where XNNPACK and the portable operators want different layouts.
    at_boundary: bool


class InversePair(msgspec.Struct, frozen=True):
    """Two transposes of which the second undoes the first, with only what does not mind the layout between them.

    `ms` is what goes if they go: the second's time, and the first's if nothing else needs its layout.
    """

    first: str
    second: str
    between: list[str]
    ms: float
    share: float
    # Where in PyTorch the two come from (nothing where XNNPACK put one in itself).
    at: list[str] = []
    # The rows of the breakdown's instances that would go.
    instances: list[int] = []


class DataMovement(msgspec.Struct, frozen=True):
    """`note` says why chains and pairs are missing, if they are: without the .pte it is not known what feeds what."""

    ms: float
    share: float
    by_kind: dict[str, float]
    chains: list[Chain]
    inverse_pairs: list[InversePair]
    note: str = ""


def data_movement(breakdown: Breakdown, graph: "ModelGraph | None" = None) -> DataMovement:
    """Find the chains and pairs of a breakdown, costliest first; removing one would save its `ms`."""
    by_kind = sum_by_key((entry.kind, entry.ms) for entry in breakdown.instances if entry.category == _MOVEMENT)
    total = breakdown.category(_MOVEMENT)
    note = "" if graph else "without the model's .pte it is not known which operator feeds which"
    return DataMovement(
        ms=total.ms,
        share=total.share,
        by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        chains=sorted(_chains(breakdown, graph), key=lambda chain: -chain.ms) if graph else [],
        inverse_pairs=sorted(_inverse_pairs(breakdown, graph), key=lambda pair: -pair.ms) if graph else [],
        note=note if total.instances else "",
    )


def _chains(breakdown: Breakdown, graph: "ModelGraph") -> list[Chain]:
    """Return operators that move data, joined where one reads what another made."""
    moving = [row for row, entry in enumerate(breakdown.instances) if entry.category == _MOVEMENT]
    group = {row: {row} for row in moving}
    for row in moving:
        step = graph.step(row)
        for tensor in step.inputs if step else ():
            other = graph.rows.get(tensor.source)
            if other in group and group[other] is not group[row]:
                # The smaller joins the larger, so that no row is moved more often than the sizes double.
                small, large = sorted((group[row], group[other]), key=len)
                large |= small
                for member in small:
                    group[member] = large
    distinct = {id(members): sorted(members) for members in group.values()}
    return [_chain(breakdown, graph, members) for members in distinct.values()]


def _chain(breakdown: Breakdown, graph: "ModelGraph", members: list[int]) -> Chain:
    entries = [breakdown.instances[row] for row in members]
    ms, whole = sum(entry.ms for entry in entries), breakdown.execute_ms
    before, after = _UNKNOWN, _UNKNOWN
    boundary = False
    if all(row in graph.steps for row in members):
        inside = {graph.steps[row] for row in members}
        sources = {t.source for p in inside for t in graph.flow.steps[p].inputs} - inside - {CONSTANT, ELSEWHERE}
        readers = {reader for position in inside for reader in graph.flow.readers(position)} - inside
        before, after = (_named(breakdown, graph, places) for places in (sources, readers))
        calls = {entry.instruction for entry in entries}
        around = {graph.flow.steps[p].instruction if p != INPUT else None for p in sources | readers}
        boundary = len(calls) > 1 or bool(around - calls) or bool(inside & graph.flow.returned)
    return Chain([entry.name for entry in entries], ms, ms / whole if whole else 0.0, before, after, boundary)


def _named(breakdown: Breakdown, graph: "ModelGraph", places: set[int]) -> str:
    """Return what the trace calls these steps, or XNNPACK's graph where the trace shows none for it."""
    names = unique(_name(breakdown, graph, place) for place in sorted(places) if place != INPUT)
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _name(breakdown: Breakdown, graph: "ModelGraph", place: int) -> str:
    row = graph.rows.get(place)
    return breakdown.instances[row].name if row is not None else graph.flow.steps[place].op


def _inverse_pairs(breakdown: Breakdown, graph: "ModelGraph") -> list[InversePair]:
    """Return the pairs of which the trace shows both transposes."""
    from model_profiling.analysis.movement.inverse_transposes import cancelling_transposes

    found = []
    counted: set[int] = set()
    for pair in cancelling_transposes(graph.flow):
        if pair.first not in graph.rows or pair.second not in graph.rows:
            continue
        rows = [graph.rows[pair.second]]
        if pair.all_undone and pair.first not in counted:
            counted.add(pair.first)
            rows.insert(0, graph.rows[pair.first])
        first, second = (breakdown.instances[graph.rows[place]] for place in (pair.first, pair.second))
        ms = sum(breakdown.instances[row].ms for row in rows)
        # Transposes of two delegates may have one name.
        alike = first.name == second.name
        found.append(
            InversePair(
                first=f"{first.name} (instruction {first.instruction})" if alike else first.name,
                second=f"{second.name} (instruction {second.instruction})" if alike else second.name,
                between=[_name(breakdown, graph, place) for place in pair.between],
                ms=ms,
                share=ms / breakdown.execute_ms if breakdown.execute_ms else 0.0,
                at=[at for at in (place_of(first), place_of(second)) if at],
                instances=rows,
            )
        )
    return found


def place_of(entry: InstanceTime) -> str:
    """Return the line of PyTorch an operator comes from, '' if it is not known."""
    return f"{entry.source.file}:{entry.source.line}" if entry.source and entry.source.file else ""


def origin_of(entry: InstanceTime) -> str:
    """Return the model's own operator, without its overload; else the trace's name for it."""
    if entry.source is not None and entry.source.origin:
        return packet(entry.source.origin)
    return packet(entry.operator if "::" in entry.operator else f"aten::{entry.operator}")


def is_changed_by(export: ExportRecord | None, entry: InstanceTime, rewrite: str) -> bool:
    """Return whether the export saw that the rewrite changes this operator."""
    places = (export.rewrites or {}).get(rewrite, []) if export is not None else []
    line = place_of(entry)
    return any(not place or not line or line == place or line.endswith(f"/{place}") for place in places)


def was_applied(export: ExportRecord | None, rewrite: str) -> bool:
    """Return whether the export was asked for the rewrite."""
    return export is not None and rewrite in export.request.rewrites
