"""Findings about what a `--rewrite` would change: one for each that the export saw to find something in this graph.

What it would gain is not predicted: `tune` and `profile` measure it.
"""

from collections.abc import Iterable, Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.advice.portable import conversion, edges
from model_profiling.analysis.movement.movement import LAYOUT_KINDS
from model_profiling.analysis.movement.rewrite_matches import is_changed_by, origin_of, was_applied
from model_profiling.analysis.timing.category_table import is_custom
from model_profiling.base.rewrites import AUTO, LAYOUT, REWRITES, rewrites_for
from model_profiling.base.units import counted
from model_profiling.formats.graph_terms import base_name, unique


def rewrites(e: Evidence) -> Iterator[Finding]:
    """Yield findings about what rewrites would change, one that does more before those that do a part of it."""
    if e.export is None or e.graph is None:
        return
    for name in sorted(name for name, places in (e.export.rewrites or {}).items() if places):
        if not was_applied(e.export, name) and (found := _finding(e, name)) is not None:
            yield found


def together(e: Evidence, found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the finding that stands for several: one command does all of them."""
    several = [finding for finding in found if finding.rewrite]
    if len(several) < 2 or e.export is None or e.export.auto:
        return
    names = sorted(finding.rewrite for finding in several)
    rows = [row for finding in several for row in finding.instances]
    asked = e.export.request.command.replace(" export ", " profile ", 1)
    command = f"`{asked} --rewrite {AUTO}`" if asked else f"an export with --rewrite {AUTO}"
    yield e.finding(
        FindingKind.SEVERAL_REWRITES,
        f"{', '.join(names[:-1])} and {names[-1]}: {len(names)} rewrites are about {e.share(rows):.0%} of the time",
        rows,
        f"All of it at once: {command}.",
        rewrite=AUTO,
    )


def _finding(e: Evidence, name: str) -> Finding | None:
    rows = [row for row in _matching(e, name) if row not in e.claimed]
    if not rows:
        return None
    origins = _origins(e, name, rows)
    others = REWRITES[name].alternatives if name in REWRITES else {}
    step = f"Try --rewrite {name}" + next((f", or {others[origin]}" for origin in origins if origin in others), "")
    kind, title = _said(e, name, rows, origins)
    return e.finding(kind, title, rows, f"{step}: `sme2-kit tune` measures what it brings.", rewrite=name)


def _matching(e: Evidence, name: str) -> list[int]:
    """Return the rows, and layout changes around them, of a rewrite that nobody lowered the program with."""
    if name == LAYOUT:
        return e.free(lambda entry: entry.kind in LAYOUT_KINDS and is_changed_by(e.export, entry, name))
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
    """Return which kind of finding it is, and its title."""
    entries = [e.breakdown.instances[row] for row in rows]
    takes = f"{'takes' if len(rows) == 1 else 'take'} {e.share(rows):.0%} of the time"
    if name == LAYOUT:
        moved = sum(entry.kind in LAYOUT_KINDS for entry in entries) or len(entries)
        what = f"{counted(moved, 'layout change')} {'is' if moved == 1 else 'are'} not needed"
        if others := len(entries) - moved:
            changed = f"they and {counted(others, 'operator')} that would change with them"
            return FindingKind.NEEDLESS_LAYOUT, f"{what}; {changed} take {e.share(rows):.0%} of the time"
        return FindingKind.NEEDLESS_LAYOUT, f"{what} and {takes}"
    what = " and ".join(origins) or name
    beside = sum(entry.where == "delegated" and entry.kind == "transpose" for entry in entries)
    around = f" and {counted(beside, 'layout change')} around them" if beside else ""
    converted = [entry for row, entry in zip(rows, entries, strict=True) if conversion(e, row)]
    if converted:
        dtypes = " and ".join(sorted({dtype for row in rows for dtype in conversion(e, row)}))
        return (
            FindingKind.CONVERSIONS,
            f"{what} computed through {dtypes}: {counted(len(converted), 'conversion')}{around} {takes}",
        )
    portable = [entry.operator for entry in entries if entry.where == "portable"]
    whole = f"{counted(len(portable), 'operator')} outside the delegate{around}"
    return FindingKind.PORTABLE_OPERATOR, f"{what}: {whole} {takes}"
