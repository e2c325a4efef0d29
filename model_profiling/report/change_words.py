"""What changed between two programs, in words: every report says the same of the same part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from model_profiling.analysis.compare.program_changes import OVERHEAD
from model_profiling.base.units import counted
from model_profiling.report import numbers

if TYPE_CHECKING:
    from model_profiling.analysis.compare.aspects import Aspect
    from model_profiling.analysis.compare.program_changes import ModuleChange, PartChange, ProgramChanges

_MOST_CODE = 48
_MOST_OPERATORS = 3
_BEFORE_AND_AFTER = {"dtype": "dtype", "kernels": "kernel", "layout": "layout", "shape": "size"}


class DifferenceRow(NamedTuple):
    """A row of a table whose differences add up to the last; `what` says what changed."""

    name: str
    before_ms: float
    after_ms: float
    difference: str
    what: str = ""


def difference_text(change: PartChange | ModuleChange | ProgramChanges) -> str:
    """Return `-1.900 ms (-2.010 to -1.790)`; `~` where it cannot be told from noise, a dash where nothing is known."""
    low, high = change.low_ms, change.high_ms
    if low is None or high is None:
        return "-"
    middle = "~" if low <= 0 <= high else f"{change.difference_ms:+.3f} ms"
    return f"{middle} ({low:+.3f} to {high:+.3f})"


def part_name(part: PartChange) -> str:
    """Return a part by its module, line and code; by its operators where it has none of these."""
    if part.matched == "runtime":
        return OVERHEAD
    code = part.code if len(part.code) <= _MOST_CODE else f"{part.code[: _MOST_CODE - 3]}..."
    place = " ".join(filter(None, [part.module, part.source_line, code]))
    return place or ", ".join(part.operators[:_MOST_OPERATORS])


def aspect_text(aspect: Aspect) -> str:
    """Return one thing that changed: `dtype F32 -> QC8`, `Transpose went`, `left the delegate`."""
    before, after = aspect.before, aspect.after
    if aspect.what == "operators":
        if before and after:
            return f"{before} -> {after}"
        return f"{before} went" if before else f"{after} came"
    if aspect.what == "delegation":
        return {"portable": "left the delegate", "delegated": "delegated now"}.get(after, f"{before} -> {after}")
    if aspect.what == "count":
        return f"{before} -> {counted(int(after), 'operator')}"
    return f"{_BEFORE_AND_AFTER[aspect.what]} {before or '-'} -> {after or '-'}"


def what_changed(part: PartChange) -> str:
    """Return all that changed about a part; of one that a program does not have, that, and its operators."""
    if part.matched in ("only before", "only after"):
        return f"{part.matched}: {', '.join(aspect.before or aspect.after for aspect in part.aspects)}"
    return "; ".join(map(aspect_text, part.aspects))


def part_place(part: PartChange) -> str:
    """Return a part by its module and line alone."""
    return " ".join(filter(None, [part.module, part.source_line])) or part_name(part)


def difference_rows(changes: ProgramChanges, most: int) -> list[DifferenceRow]:
    """Return what the whole difference consists of: the largest changes, what is left in one line each, the whole."""
    listed = changes.different[:most]
    rows = [
        DifferenceRow(part_name(part), part.before_ms, part.after_ms, difference_text(part), _described(part))
        for part in listed
    ]
    seen = set(map(id, listed))
    rest = [part for part in changes.parts if id(part) not in seen]
    if smaller := [part for part in rest if part.told]:
        rows.append(_rest(counted(len(smaller), "smaller change"), smaller))
    if others := [part for part in rest if not part.told]:
        name = counted(len(others), "other part")
        rows.append(_rest(name if changes.low_ms is None else f"{name}, each ~", others))
    rows.append(DifferenceRow("all of it", changes.before_ms, changes.after_ms, f"{changes.difference_ms:+.3f} ms"))
    return rows


def _described(part: PartChange) -> str:
    return f"{part_place(part)}: {what_changed(part) or 'nothing but the time'}"


def _rest(name: str, parts: Sequence[PartChange]) -> DifferenceRow:
    sums = [sum(getattr(part, side) for part in parts) for side in ("before_ms", "after_ms", "difference_ms")]
    return DifferenceRow(name, sums[0], sums[1], f"{sums[2]:+.3f} ms")


def unchanged_sentence(changes: ProgramChanges) -> str:
    """Return the one line for two programs of which no part differs but in time, by no more than noise."""
    count = counted(len(changes.parts), "part")
    whole = f"{numbers.ms(changes.before_ms)} before, {numbers.ms(changes.after_ms)} now, traced"
    if changes.low_ms is None:
        return f"the same operators in all of the {count}; how their times changed is not known ({whole})"
    return f"~ in all of the {count}: the same operators, no difference seen ({whole})"
