"""Operators, costliest first: those that occur several times together, and the cheapest folded into one row."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from model_profiling.analysis.compare.comparison import (
    Change,
    OperatorChange,
    OperatorGroup,
    ProfileComparison,
    instance_groups,
)
from model_profiling.analysis.roofs.roofline import of_roof, roofs_by_row
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, OperatorTime
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Cell, Name, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.content.roofline import OF_ROOF, roof_line
from model_profiling.report.content.time import FASTER, numbered
from model_profiling.report.words import labelled, operator_name, some, source

# As many operators as a page of Markdown bears; the HTML page and the CSV have all.
MOST_OPERATORS = 10
# Below this share of the time a row is folded away.
LEAST_SHARE = 0.005
# The columns whose numbers add up, and how such a sum is shown.
Sums = Mapping[int, Callable[[float], Number]]


class Foldable(msgspec.Struct, frozen=True):
    """A row, the largest share it has on any side, and the rows it stands for (none: only itself)."""

    cells: Row
    share: float
    members: list[Row] = []

    @property
    def singles(self) -> list[Row]:
        return self.members or [self.cells]


def folded(key: str, columns: tuple[str, ...], rows: Sequence[Foldable], sums: Sums, short: int | None = None) -> Table:
    """Return a table of the rows that cost something, and of all others in one row, which has the sums of theirs."""
    small = [row for row in rows if row.share < LEAST_SHARE]
    shown = rows if len(small) < 2 else [row for row in rows if row.share >= LEAST_SHARE]
    cells = [row.cells for row in shown]
    under = {place: row.members for place, row in enumerate(shown) if row.members}
    if len(small) > 1:
        hidden = [single for row in small for single in row.singles]
        under[len(cells)] = hidden
        name = f"{len(hidden)} more, each under {numbers.share(LEAST_SHARE)} of the time"
        rest = (_rest([row.cells[place] for row in small], sums.get(place)) for place in range(1, len(columns)))
        cells.append((name, *rest))
    return Table(key, columns, cells, short, under)


def _rest(cells: Sequence[Cell], shown: Callable[[float], Number] | None) -> Cell:
    values = [cell.value or 0.0 for cell in cells if isinstance(cell, Number)]
    return "" if not values else shown(sum(values)) if shown is not None else numbers.UNKNOWN


def operators(run: RunView) -> Section | None:
    """Return every operator of the graph; without times where they mean nothing."""
    if not run.shown:
        return None
    blocks: list[Block] = []
    caption = f"{run.summary.model}: the costliest operators, with"
    for number, comparison in enumerate(run.summary.comparisons, 1):
        blocks.append(Picture(numbered("operators", number), f"{caption} the 95 % interval."))
        blocks.append(_changes(run, comparison, run.operator_groups[number - 1]))
    if run.summary.comparisons:
        blocks.append(Paragraph("Intervals are over launches, and include the resolution of XNNPACK's clock."))
    elif run.measured and run.alone:
        blocks.append(Picture("operators", f"{caption} their share of the time."))
    for name in run.alone:
        if len(run.alone) > 1 or run.summary.comparisons:
            blocks.append(Paragraph(f"{run.label(name)}:"))
        breakdown, roof = run.summary.experiments[name].breakdown, _Roofs(run, name)
        groups = instance_groups(breakdown)
        rows = [_operator(operator, members, breakdown, roof, run.measured) for operator, members in groups]
        timed = (run.label(name), "median", "p95", "share") if run.measured else ()
        columns = ("operator", *timed, *roof.columns, "category", "kernel", "source")
        blocks.append(_with_sources(columns, rows, {1: numbers.ms_cell, 4: numbers.share_cell}))
    unknown = roof_line(run)
    return Section("operators", "Operators", [*blocks, *([Paragraph(unknown)] if unknown else [])])


def kernel(entry: InstanceTime | None) -> str:
    """Return the kernel's number type and algorithm. P before the type is KleidiAI's packed path."""
    return " ".join(part for part in (entry.dtype, entry.algorithm) if part) if entry else ""


def _changes(run: RunView, comparison: ProfileComparison, groups: Sequence[OperatorGroup]) -> Table:
    old, new = (run.summary.experiments[n].breakdown for n in (comparison.before, comparison.after))
    before, after = run.sides(comparison.before, comparison.after)
    roof = _Roofs(run, comparison.after)
    rows = [_group(group, old, new, roof) for group in groups]
    columns = ("operator", before, after, FASTER, "share now", *roof.columns, "category", "kernel", "source")
    return _with_sources(columns, rows, {1: numbers.ms_cell, 2: numbers.ms_cell, 4: numbers.share_cell})


class _Roofs:
    """The column that says which part of its best rate each operator of an experiment reaches; none without roofs."""

    def __init__(self, run: RunView, experiment: str) -> None:
        analysis = run.summary.experiments[experiment]
        self._breakdown, self._known = analysis.breakdown, analysis.roofline is not None
        self._roofs = roofs_by_row(analysis.roofline)
        self.columns = (OF_ROOF,) if self._known else ()

    def cells(self, rows: Iterable[int | None]) -> tuple[Number, ...]:
        if not self._known:
            return ()
        value = of_roof(self._breakdown, [row for row in rows if row is not None], self._roofs)
        return (Number(numbers.of_roof(value), value),)


def _group(group: OperatorGroup, old: Breakdown, new: Breakdown, roof: _Roofs) -> Foldable:
    pairs = [(_at(old, member.before_row), _at(new, member.after_row)) for member in group.members]
    singles: list[Row] = []
    for (label, member), pair in zip(labelled(group.members), pairs, strict=True):
        name = operator_name(label, group.where) + _gone(member)
        singles.append(_change(name, member.change, roof.cells([member.after_row]), group.category, [pair]))
    share = max(group.change.before_share, group.change.after_share)
    if len(singles) == 1:
        return Foldable(singles[0], share)
    name = operator_name(group.name, group.where, len(singles)) + _gone(group.members[0])
    reached = roof.cells(member.after_row for member in group.members)
    return Foldable(_change(name, group.change, reached, group.category, pairs), share, singles)


def _at(breakdown: Breakdown, row: int | None) -> InstanceTime | None:
    return None if row is None else breakdown.instances[row]


def _gone(entry: OperatorChange) -> str:
    return "" if entry.after and entry.before else " (only before)" if entry.before else " (only now)"


def _change(
    name: str,
    change: Change,
    roof: tuple[Number, ...],
    category: str,
    pairs: Sequence[tuple[InstanceTime | None, InstanceTime | None]],
) -> Row:
    paths = [(kernel(was), kernel(now)) for was, now in pairs]
    kernels = some(f"{was} → {now}" if was and now and was != now else now or was for was, now in paths)
    times = (numbers.ms_cell(change.before_ms), numbers.ms_cell(change.after_ms), numbers.speedup_cell(change))
    lines = Name(some(source(now or was) for was, now in pairs))
    return (Name(name), *times, numbers.share_cell(change.after_share), *roof, category, kernels, lines)


def _operator(
    operator: OperatorTime, places: list[int], breakdown: Breakdown, roof: _Roofs, measured: bool
) -> Foldable:
    members = [breakdown.instances[row] for row in places]

    def row_of(name: str, entry: InstanceTime | OperatorTime, at: list[int]) -> Row:
        own = [breakdown.instances[place] for place in at]
        told = (entry.category, some(map(kernel, own)), Name(some(map(source, own))))
        return (Name(name), *(_times(entry) if measured else ()), *roof.cells(at), *told)

    named = ((operator_name(label, entry.where), entry) for label, entry in labelled(members))
    singles = [row_of(*each, [row]) for each, row in zip(named, places, strict=True)]
    # Without times nothing is small.
    share = operator.share if measured else 1.0
    if len(singles) == 1:
        return Foldable(singles[0], share)
    name = operator_name(operator.operator, operator.where, len(members))
    return Foldable(row_of(name, operator, places), share, singles)


def _times(entry: InstanceTime | OperatorTime) -> tuple[Number, ...]:
    times = (entry.ms, entry.spread.median_ms, entry.spread.p95_ms)
    return (*map(numbers.ms_cell, times), numbers.share_cell(entry.share))


def _with_sources(columns: tuple[str, ...], rows: Sequence[Foldable], sums: Sums) -> Table:
    """Leave the last column, the PyTorch line, out where nobody knows any."""
    table = folded("operators", columns, rows, sums, MOST_OPERATORS)
    if any(row[-1] != Name("") for each in rows for row in each.singles):
        return table
    under = {place: [row[:-1] for row in members] for place, members in table.under.items()}
    return Table("operators", columns[:-1], [row[:-1] for row in table.rows], MOST_OPERATORS, under)
