"""What changed between two programs, in words: every report says the same of the same part."""

from collections.abc import Sequence
from typing import NamedTuple

from model_profiling.analysis.compare.aspects import Aspect
from model_profiling.analysis.compare.program_changes import OVERHEAD, ModuleChange, PartChange, ProgramChanges
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Number

# So much of a line of code is shown: beside its place, in a row that is no longer than this.
_MOST_CODE, _LEAST_CODE, _MOST_NAME = 48, 12, 74
_MOST_OPERATORS = 3
_BEFORE_AND_AFTER = {"dtype": "dtype", "kernels": "kernel", "layout": "layout", "shape": "size"}


class DifferenceRow(NamedTuple):
    """A row of a table whose differences add up to the last; `what` says what changed. `parts` are those that it stands
    for, and none for the whole."""

    name: str
    before_ms: float
    after_ms: float
    difference: str
    what: str = ""
    parts: Sequence[PartChange] = ()

    @property
    def told(self) -> bool:
        """Whether the difference can be told from noise."""
        return bool(self.parts) and all(part.told for part in self.parts)

    @property
    def cells(self) -> tuple[Number, Number, Number]:
        """Before, after and difference, as every table has them."""
        return difference_cells(self.before_ms, self.after_ms, self.difference)


def difference_cells(before_ms: float, after_ms: float, difference: str) -> tuple[Number, Number, Number]:
    return numbers.ms_cell(before_ms), numbers.ms_cell(after_ms), Number(difference, after_ms - before_ms)


def difference_text(change: PartChange | ModuleChange | ProgramChanges) -> str:
    """Return `-1.900 ms (-2.010 to -1.790)`; `~` where it cannot be told from noise, a dash where nothing is known."""
    low, high = change.low_ms, change.high_ms
    if low is None or high is None:
        return "-"
    middle = "~" if low <= 0 <= high else f"{numbers.difference(change.difference_ms)} ms"
    return f"{middle} ({numbers.difference(low)} to {numbers.difference(high)})"


def part_name(part: PartChange, module: str | None = None) -> str:
    """Return a part by its module, or what is given instead, its line and code; by its operators where it has none."""
    if part.matched == "runtime":
        return OVERHEAD
    place = " ".join(filter(None, [part.module if module is None else module, part.source_line]))
    room = min(_MOST_CODE, _MOST_NAME - len(place))
    code = part.code if len(part.code) <= room else f"{part.code[: room - 3]}..." if room >= _LEAST_CODE else ""
    return " ".join(filter(None, [place, code])) or ", ".join(part.operators[:_MOST_OPERATORS])


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


def in_both(part: PartChange, sides: tuple[str, str]) -> str:
    """Return what two runtimes did for a part: `Transpose, mean.out in ExecuTorch, ReduceMean in ONNX Runtime`."""
    found = next((aspect for aspect in part.aspects if aspect.what == "operators"), None)
    if found is None:
        # A part has the names that one of the two gives its operators.
        return "the same kinds of operators in both"
    said = [f"{did} in {side}" for did, side in zip((found.before, found.after), sides, strict=True) if did]
    alone = "" if len(said) == 2 else "only " if part.matched.startswith("only") else "besides what both have, "
    return f"{alone}{', '.join(said)}"


def part_place(part: PartChange) -> str:
    """Return a part by its module and line alone."""
    return " ".join(filter(None, [part.module, part.source_line])) or part_name(part)


def difference_rows(changes: ProgramChanges, most: int) -> list[DifferenceRow]:
    """Return what the whole difference consists of: the largest changes, what is left in one line each, the whole."""
    listed = changes.different[:most]
    rows = [part_row(part) for part in listed]
    seen = set(map(id, listed))
    rest = [part for part in changes.parts if id(part) not in seen]
    if smaller := [part for part in rest if part.told]:
        rows.append(_rest(counted(len(smaller), "smaller change"), smaller)._replace(parts=smaller))
    if others := [part for part in rest if not part.told]:
        name = counted(sum(part.parts for part in others), "other part")
        known = changes.low_ms is not None and all(part.parts == 1 for part in others)
        unsure = "" if not known else ", each ~" if len(others) > 1 else ", ~"
        rows.append(_rest(f"{name}{unsure}", others)._replace(parts=others))
    return [*rows, _rest("all of it", [changes])]


def part_row(part: PartChange) -> DifferenceRow:
    """Return the row of one part."""
    said = what_changed(part)
    what = f"{part_place(part)}: {said}" if said else ""
    return DifferenceRow(part_name(part), part.before_ms, part.after_ms, difference_text(part), what, [part])


def module_rows(changes: ProgramChanges, most: int) -> list[DifferenceRow]:
    """Return the modules that changed most, and the others in one row; nothing unless there are more changes."""
    if not 1 < len(changes.modules) < len(changes.told):
        return []
    shown, others = changes.modules[:most], changes.modules[most:]
    rows = [DifferenceRow(each.module, each.before_ms, each.after_ms, difference_text(each)) for each in shown]
    return [*rows, *([_rest(counted(len(others), "other"), others)] if others else [])]


def largest_sentence(changes: ProgramChanges, most: int = 3) -> str:
    """Return the largest changes that can be told from noise in one sentence; '' where there are none."""
    return "; ".join(f"{part_place(part)} {difference_text(part)}" for part in changes.told[:most])


def _rest(name: str, those: Sequence[PartChange] | Sequence[ModuleChange] | Sequence[ProgramChanges]) -> DifferenceRow:
    sums = [sum(getattr(each, side) for each in those) for side in ("before_ms", "after_ms", "difference_ms")]
    return DifferenceRow(name, sums[0], sums[1], f"{numbers.difference(sums[2])} ms")


def unchanged_sentence(changes: ProgramChanges) -> str:
    """Return the one line for two programs of which no part differs but in time, by no more than noise."""
    count = counted(sum(part.parts for part in changes.parts), "part")
    whole = f"{numbers.ms(changes.before_ms)} before, {numbers.ms(changes.after_ms)} now, traced"
    if changes.low_ms is None:
        return f"the same operators in all of the {count}; how their times changed is not known ({whole})"
    return f"~ in all of the {count}: the same operators, no difference seen ({whole})"
