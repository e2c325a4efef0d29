"""Findings about what a `--rewrite` would change: one for each that the export saw to find something in this graph.

What it would gain is not predicted: `tune` and `profile` measure it.
"""

from collections.abc import Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.advice.portable import conversion, edges
from model_profiling.analysis.movement.movement import LAYOUT_KINDS, place_of
from model_profiling.analysis.movement.rewrite_matches import is_changed_by, origin_of, was_applied
from model_profiling.analysis.timing.category_table import is_custom
from model_profiling.base.rewrites import AUTO, LAYOUT, REWRITES, rewrites_for
from model_profiling.base.units import counted
from model_profiling.formats.graph_terms import base_name, unique


def rewrites(e: Evidence) -> Iterator[Finding]:
    """Yield findings about what rewrites would change."""
    if e.export is None or e.graph is None:
        return
    for name in sorted(name for name, places in (e.export.rewrites or {}).items() if places):
        if not was_applied(e.export, name) and (found := _finding(e, name)) is not None:
            yield found


def _finding(e: Evidence, name: str) -> Finding | None:
    rows = [row for row in _matching(e, name) if row not in e.claimed]
    if not rows:
        return None
    origins = _origins(e, name, rows)
    others = REWRITES[name].alternatives if name in REWRITES else {}
    other = next((f", or {others[origin]}" for origin in origins if origin in others), "")
    kind, what = _said(e, name, rows, origins)
    origin = origins[0] if len(origins) == 1 else ""
    title = f"{e.at(rows, what, origin)}: {e.of_time(rows)}"
    return e.finding(kind, title, rows, f"Export with --rewrite {name} (or {AUTO}){other}.", rewrite=name)


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
        around |= edges(e, [row], reduces, parts=bool(conversion(e, row)))
    return [*wanted, *around]


def _origins(e: Evidence, name: str, rows: list[int]) -> list[str]:
    """Return what the model itself calls the operators that a rewrite is for: `silu`."""
    origins = (origin_of(e.breakdown.instances[row]) for row in rows)
    return unique(base_name(origin).rstrip("_") for origin in origins if name in rewrites_for(origin))


def _said(e: Evidence, name: str, rows: list[int], origins: list[str]) -> tuple[FindingKind, str]:
    """Return which kind of finding it is, and what is to be said of it."""
    entries = [e.breakdown.instances[row] for row in rows]
    if name == LAYOUT:
        moved = counted(len(rows), "layout change")
        return FindingKind.NEEDLESS_LAYOUT, f"{moved} {'is' if len(rows) == 1 else 'are'} not needed"
    what = " and ".join(origins) or name
    beside = sum(entry.where == "delegated" and entry.kind == "transpose" for entry in entries)
    around = [counted(beside, "transpose")] if beside else []
    converted = sum(bool(conversion(e, row)) for row in rows)
    if converted:
        dtypes = " and ".join(sorted({dtype for row in rows for dtype in conversion(e, row)}))
        parts = " and ".join([counted(converted, "conversion"), *around])
        return FindingKind.CONVERSIONS, f"{what} computed through {dtypes}, with {parts}"
    portable = sum(entry.where == "portable" for entry in entries)
    parts = " and ".join(([counted(portable, "operator")] if portable > 1 else []) + around)
    return FindingKind.PORTABLE_OPERATOR, f"{what} runs outside the delegate{f', with {parts}' if parts else ''}"
