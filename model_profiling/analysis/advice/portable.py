"""Findings about what runs outside the delegate (conversions between dtypes, operators XNNPACK did not take), and about
what a `--rewrite` would change of it: those that the export saw to find something in this graph.

What a rewrite would gain is not predicted: `tune` and `profile` measure it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.movement.movement import LAYOUT_KINDS, is_changed_by, origin_of, place_of, was_applied
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.categories import is_custom
from model_profiling.base.records import by_key
from model_profiling.base.rewrites import AUTO, LAYOUT, REWRITES, rewrites_for
from model_profiling.base.units import counted
from model_profiling.formats.graph_terms import CONSTANT, base_name, packet, unique
from model_profiling.store.artifacts import ExportRecord

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph

# What a conversion comes from that the model's own code asks for; all others are parts of another operator.
_ASKED_FOR = ("aten.to", "aten._to_copy", "aten.type_as", "aten.type", "dim_order_ops._to_dim_order_copy")
_CONVERTING = ("_to_copy", "_to_dim_order_copy", "to")
_LOOKUPS = ("gather", "embedding")
_ELSEWHERE = "Rewrite it with operators XNNPACK delegates, or move it to an end of the model."


def no_delegate(e: Evidence) -> Iterator[Finding]:
    """Yield findings about a model exported without a delegate: that is the finding, and not each of its operators."""
    if e.export is None or e.export.backend != "portable":
        return
    rows = e.free(lambda entry: entry.where == "portable")
    what = "the model was exported without a delegate, and runs portable kernels"
    yield e.finding(FindingKind.NO_DELEGATE, what, rows, "Export with --backend xnnpack.")


def conversions(e: Evidence) -> Iterator[Finding]:
    """Yield findings about conversions between dtypes, by the operator of the model that they come from."""
    if e.graph is None:
        return
    groups: dict[tuple[str, str], list[int]] = {}
    for row in e.free(lambda entry: entry.where == "portable"):
        source = e.breakdown.instances[row].source
        if dtypes := " and ".join(sorted(_conversion(e, row))):
            origin = packet(source.origin) if source is not None and source.origin else ""
            groups.setdefault((origin, dtypes), []).append(row)
    for (origin, dtypes), rows in groups.items():
        if origin and origin not in _ASKED_FOR:
            yield _decomposed(e, rows, dtypes, origin)
        else:
            yield _converted(e, rows, dtypes, asked_for=bool(origin))


def _converted(e: Evidence, rows: list[int], dtypes: str, asked_for: bool) -> Finding:
    """Return conversions that the model's code asks for, or whose origin is not known."""
    where = " in the model's code" if asked_for else ""
    what = f"{counted(len(rows), 'conversion')} between {dtypes}{where}"
    entries = [entry for row in rows if place_of(entry := e.breakdown.instances[row])]
    places = unique(f"{place_of(entry)} ({entry.source.code})" for entry in entries if entry.source)
    more = f" and {len(places) - 2} more" if len(places) > 2 else ""
    step = f"Avoid the change of dtype inside forward: {', '.join(places[:2]) or 'source line unknown'}{more}."
    if not asked_for:
        step = "Keep the ETRecord of the export next to the .pte: it shows which operator of the model they come from."
    return e.finding(FindingKind.CONVERSIONS, what, rows, step)


def _decomposed(e: Evidence, rows: list[int], dtypes: str, origin: str) -> Finding:
    """Return conversions that an operator of the model brings with it, and the layout changes around them."""
    around = _edges(e, rows, parts=True)
    claims = [*rows, *around]
    name = base_name(origin).rstrip("_")
    beside = f" and {counted(len(around), 'layout change')}" if around else ""
    what = f"{name} computed through {dtypes}, with {counted(len(rows), 'conversion')}{beside}"
    step = _not_known(e.export, origin) or f"Write {name} with operators that XNNPACK delegates in the model's dtype."
    return e.finding(FindingKind.CONVERSIONS, what, claims, step, origin=name)


def portable_operators(e: Evidence) -> Iterator[Finding]:
    """Yield findings about portable operators: unaccelerated, they split the graph and may cost layout changes."""
    instances = e.breakdown.instances
    # ExecuTorch's own operators for language models are fused by hand: delegated operators in their place are slower.
    portable = e.free(lambda entry: entry.where == "portable" and not is_custom(entry.operator))
    groups = by_key(((instances[row].operator, origin_of(instances[row])), row) for row in portable)
    for (operator, origin), members in groups.items():
        rows = [row for row in members if row not in e.claimed]
        if not rows:
            continue
        first = instances[rows[0]]
        around = _edges(e, rows, reduces=first.kind == "reduction")
        name = base_name(origin).rstrip("_") if _plain(operator) == _plain(origin) else operator
        times = f" {len(rows)} times" if len(rows) > 1 else ""
        beside = f", with {counted(len(around), 'transpose')}" if around else ""
        what = f"{name} runs{times} outside the delegate{beside}"
        reason = e.export.delegation.why_not(operator) if e.export is not None else ""
        remarks = [f"not delegated because: {reason}"] if reason else []
        remarks += [f"part of {origin.removeprefix('aten.')}"] if _plain(operator) != _plain(origin) else []
        step = _remedy(e, first, origin)
        kind, claims = FindingKind.PORTABLE_OPERATOR, [*rows, *around]
        yield e.finding(kind, what, claims, step, remarks, origin=name, causes=rows)


def _remedy(e: Evidence, entry: InstanceTime, origin: str) -> str:
    if _plain(entry.operator) == _plain(origin) and (question := _not_known(e.export, origin)):
        return question
    if entry.kind in _LOOKUPS:
        return (
            "XNNPACK has no gather operator: look up fewer values, or precompute the result if it is always the same."
        )
    if entry.kind == "copy" and origin in ("aten.clone", "aten.contiguous"):
        return f"Avoid .clone() and .contiguous() where the layout is already right{_at(entry)}."
    if entry.kind == "transpose" and base_name(entry.operator).split("_")[0] == base_name(origin):
        moved = f"move the {base_name(origin)} to where it cancels another{_at(entry)}"
        return f"Keep one layout through the model, or {moved}."
    return _ELSEWHERE


def _not_known(export: ExportRecord | None, origin: str) -> str:
    """Return what to say of a rewrite that exists for an operator and that nobody tried on this graph."""
    rewrites = rewrites_for(origin)
    # The .pte is not the kit's, or its export did not look.
    if not rewrites or (export is not None and export.rewrites is not None):
        return ""
    names = " or ".join(rewrites)
    return f"Whether --rewrite {names} applies is not known for this .pte: `sme2-kit export` looks and records it."


def _conversion(e: Evidence, row: int) -> set[str]:
    """Return the dtypes a conversion outside the delegate goes between; nothing if the row is none, if it keeps the
    dtype, or if only a constant is converted, which is a number that an operator was given."""
    entry = e.breakdown.instances[row]
    step = e.graph.step(row) if e.graph is not None else None
    if entry.where != "portable" or base_name(entry.operator) not in _CONVERTING or step is None:
        return set()
    if not step.inputs or not step.outputs or step.inputs[0].source == CONSTANT:
        return set()
    found = {step.inputs[0].dtype, step.outputs[0].dtype}
    return found if len(found) == 2 else set()


def _region(e: Evidence, graph: "ModelGraph", row: int) -> set[int]:
    """Return all steps that one operator of the model was decomposed into."""
    source = e.breakdown.instances[row].source
    handle = source.debug_handle if source is not None else 0
    if not handle or row not in graph.steps:
        return {graph.steps[row]} if row in graph.steps else set()
    nodes = ((position, step.node) for position, step in enumerate(graph.flow.steps))
    parts = {position for position, node in nodes if node and node.debug_handle == handle}
    portable = [(r, x.source) for r, x in enumerate(e.breakdown.instances) if x.where == "portable" and x.source]
    return parts | {graph.steps[r] for r, at in portable if at.debug_handle == handle and r in graph.steps}


def _edges(e: Evidence, rows: list[int], reduces: bool = False, parts: bool = False) -> set[int]:
    """Return the layout changes around these operators that would go if they were done inside the delegate; with
    `parts`, around all that the model's operator was decomposed into."""
    graph = e.graph
    if graph is None:
        return set()
    regions = [_region(e, graph, row) if parts else {graph.steps[row]} for row in rows if row in graph.steps]
    return {edge for region in regions if region for edge in graph.round_trip(region, reduces)} - e.claimed


def _plain(operator: str) -> str:
    """Return `softmax` of `_softmax.out`, `layer_norm` of `native_layer_norm.out`, `permute` of `permute_copy.out`."""
    return base_name(operator).strip("_").removeprefix("native_").removesuffix("_copy")


def _at(entry: InstanceTime) -> str:
    return f" ({place_of(entry)})" if place_of(entry) else ""


def rewrites(e: Evidence) -> Iterator[Finding]:
    """Yield findings about what rewrites would change."""
    if e.export is None or e.graph is None:
        return
    for name in sorted(name for name, places in (e.export.rewrites or {}).items() if places):
        if was_applied(e.export, name) or not (rows := [row for row in _matching(e, name) if row not in e.claimed]):
            continue
        # What the model itself calls the operators that a rewrite is for: `silu`.
        called = (origin_of(e.breakdown.instances[row]) for row in rows)
        origins = unique(base_name(each).rstrip("_") for each in called if name in rewrites_for(each))
        others = REWRITES[name].alternatives if name in REWRITES else {}
        other = next((f", or {others[origin]}" for origin in origins if origin in others), "")
        kind, what = _said(e, name, rows, origins)
        origin = origins[0] if len(origins) == 1 else ""
        step = f"Export with --rewrite {name} (or {AUTO}){other}."
        yield e.finding(kind, what, rows, step, rewrite=name, origin=origin)


def _matching(e: Evidence, name: str) -> list[int]:
    """Return the rows, and layout changes around them, of a rewrite that nobody lowered the program with."""
    if name == LAYOUT:
        moving = e.free(lambda entry: entry.kind in LAYOUT_KINDS and is_changed_by(e.export, entry, name))
        # Of what XNNPACK put in itself, which has no line, only that which the graph shows to be undone.
        undone = {row for pair in e.movement.inverse_pairs for row in pair.instances}
        return [row for row in moving if row in undone or place_of(e.breakdown.instances[row])]
    wanted = e.free(
        lambda entry: (
            entry.where == "portable"
            and not is_custom(entry.operator)
            and name in rewrites_for(origin_of(entry))
            and is_changed_by(e.export, entry, name)
        )
    )
    around = set()
    for row in wanted:
        reduces = e.breakdown.instances[row].kind == "reduction"
        around |= _edges(e, [row], reduces, parts=bool(_conversion(e, row)))
    return [*wanted, *around]


def _said(e: Evidence, name: str, rows: list[int], origins: list[str]) -> tuple[FindingKind, str]:
    """Return which kind of finding it is, and what is to be said of it."""
    entries = [e.breakdown.instances[row] for row in rows]
    if name == LAYOUT:
        moved = counted(len(rows), "layout change")
        return FindingKind.NEEDLESS_LAYOUT, f"{moved} {'is' if len(rows) == 1 else 'are'} not needed"
    what = " and ".join(origins) or name
    beside = sum(entry.where == "delegated" and entry.kind == "transpose" for entry in entries)
    around = [counted(beside, "transpose")] if beside else []
    converted = sum(bool(_conversion(e, row)) for row in rows)
    if converted:
        dtypes = " and ".join(sorted({dtype for row in rows for dtype in _conversion(e, row)}))
        parts = " and ".join([counted(converted, "conversion"), *around])
        return FindingKind.CONVERSIONS, f"{what} computed through {dtypes}, with {parts}"
    portable = sum(entry.where == "portable" for entry in entries)
    parts = " and ".join(([counted(portable, "operator")] if portable > 1 else []) + around)
    run = "run" if len(origins) > 1 else "runs"
    return FindingKind.PORTABLE_OPERATOR, f"{what} {run} outside the delegate{f', with {parts}' if parts else ''}"
