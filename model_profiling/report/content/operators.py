"""Operators, costliest first: those that occur several times together, and the cheapest folded into one row."""

from collections.abc import Iterable, Sequence

from model_profiling.analysis.compare.comparison import Change, OperatorChange, ProfileComparison
from model_profiling.analysis.compare.grouping import OperatorGroup, instance_groups
from model_profiling.analysis.roofs.group_work import of_roof, roofs_by_row
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, OperatorTime
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Name, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.content.folding import Foldable, Rest, folded
from model_profiling.report.content.roofline import OF_ROOF, roof_line
from model_profiling.report.content.source_lines import some, source, sources
from model_profiling.report.content.time import FASTER, numbered, speedup_number
from model_profiling.report.words import counted_name, located_name, unique_labels

# As many operators as a page of Markdown bears; the HTML page and the CSV have all.
MOST_OPERATORS = 15


def operators(run: RunView) -> Section | None:
    """Return every operator of the graph; without times where they mean nothing."""
    if not run.shown:
        return None
    blocks: list[Block] = []
    for number, comparison in enumerate(run.summary.comparisons, 1):
        blocks += [Picture(numbered("operators", number), "The costliest operators, with the 95 % interval.")]
        blocks.append(_changes(run, comparison, run.operator_groups[number - 1]))
    if run.summary.comparisons:
        text = "Intervals are over launches. An operator's interval includes the 1 us resolution of XNNPACK's clock, "
        text += "a category's does not: a category of one operator can have a narrower interval than that operator."
        blocks.append(Paragraph(text))
    for name in run.alone:
        if run.measured and not run.summary.comparisons and name == run.alone[0]:
            blocks.append(Picture("operators", "The costliest operators, with their share of the time."))
        if len(run.alone) > 1 or run.summary.comparisons:
            blocks.append(Paragraph(f"{run.label(name)}:"))
        blocks.append(_alone(run, name))
    if unknown := roof_line(run):
        blocks.append(Paragraph(unknown))
    return Section("operators", "Operators", blocks)


def kernel(entry: InstanceTime | None) -> str:
    """Return the kernel's number type and algorithm. P before the type is KleidiAI's packed path."""
    return " ".join(part for part in (entry.dtype, entry.algorithm) if part) if entry else ""


def _changes(run: RunView, comparison: ProfileComparison, groups: Sequence[OperatorGroup]) -> Table:
    old, new = (run.summary.experiments[n].breakdown for n in (comparison.before, comparison.after))
    before, after = run.sides(comparison.before, comparison.after)
    roof = _Roofs(run, comparison.after)
    rows = [_group(group, old, new, roof) for group in groups]
    columns = ("operator", before, after, FASTER, "share now", *roof.columns, "category", "kernel", "source")

    def rest(name: str, places: list[int]) -> Row:
        changes = [groups[place].change for place in places]
        was, now, part = (sum(getattr(c, x) for c in changes) for x in ("before_ms", "after_ms", "after_share"))
        times = (Number(numbers.ms(was), was), Number(numbers.ms(now), now), Number("-", None))
        return (name, *times, Number(numbers.share(part), part), *roof.unknown, "", "", "")

    return _with_sources(columns, rows, rest)


class _Roofs:
    """The column that says which part of its best rate each operator of an experiment reaches; none without roofs."""

    def __init__(self, run: RunView, experiment: str) -> None:
        analysis = run.summary.experiments[experiment]
        self._breakdown, self._known = analysis.breakdown, analysis.roofline is not None
        self._roofs = roofs_by_row(analysis.roofline)
        self.columns = (OF_ROOF,) if self._known else ()
        self.unknown = (Number("-", None),) if self._known else ()

    def cells(self, rows: Iterable[int | None]) -> tuple[Number, ...]:
        if not self._known:
            return ()
        value = of_roof(self._breakdown, [row for row in rows if row is not None], self._roofs)
        return (Number(numbers.of_roof(value), value),)


def _group(group: OperatorGroup, old: Breakdown, new: Breakdown, roof: _Roofs) -> Foldable:
    pairs = [(_at(old, member.before_row), _at(new, member.after_row)) for member in group.members]
    labels = unique_labels(group.members)
    singles: list[Row] = [
        _change(
            located_name(label, group.where) + _gone(member),
            member.change,
            roof.cells([member.after_row]),
            group.category,
            [pair],
        )
        for label, member, pair in zip(labels, group.members, pairs, strict=True)
    ]
    share = max(group.change.before_share, group.change.after_share)
    if len(singles) == 1:
        return Foldable(singles[0], share)
    name = located_name(counted_name(len(singles), group.name), group.where) + _gone(group.members[0])
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
    kernels = some(_kernels(was, now) for was, now in pairs)
    return (
        Name(name),
        Number(numbers.ms(change.before_ms), change.before_ms),
        Number(numbers.ms(change.after_ms), change.after_ms),
        speedup_number(change),
        Number(numbers.share(change.after_share), change.after_share),
        *roof,
        category,
        kernels,
        Name(sources(now or was for was, now in pairs)),
    )


def _kernels(was: InstanceTime | None, now: InstanceTime | None) -> str:
    first, second = kernel(was), kernel(now)
    return f"{first} → {second}" if first and second and first != second else second or first


def _alone(run: RunView, name: str) -> Table:
    breakdown, roof = run.summary.experiments[name].breakdown, _Roofs(run, name)
    groups = instance_groups(breakdown)
    rows = [_operator(operator, members, breakdown, roof, run.measured) for operator, members in groups]
    timed = (run.label(name), "median", "p95", "share") if run.measured else ()

    def rest(label: str, places: list[int]) -> Row:
        ms, part = (sum(getattr(groups[place][0], x) for place in places) for x in ("ms", "share"))
        unknown = Number("-", None)
        times = (Number(numbers.ms(ms), ms), unknown, unknown, Number(numbers.share(part), part))
        return (label, *times, *roof.unknown, "", "", "")

    return _with_sources(("operator", *timed, *roof.columns, "category", "kernel", "source"), rows, rest)


def _operator(
    operator: OperatorTime, places: list[int], breakdown: Breakdown, roof: _Roofs, measured: bool
) -> Foldable:
    members = [breakdown.instances[row] for row in places]
    labels = unique_labels(members)
    singles: list[Row] = [
        (
            Name(located_name(label, entry.where)),
            *(_times(entry) if measured else ()),
            *roof.cells([row]),
            *(entry.category, kernel(entry), Name(source(entry))),
        )
        for label, row, entry in zip(labels, places, members, strict=True)
    ]
    # Without times nothing is small.
    share = operator.share if measured else 1.0
    if len(singles) == 1:
        return Foldable(singles[0], share)
    name = Name(located_name(counted_name(len(members), operator.operator), operator.where))
    labelled = (operator.category, some(map(kernel, members)), Name(sources(members)))
    times = _times(operator) if measured else ()
    return Foldable((name, *times, *roof.cells(places), *labelled), share, singles)


def _times(entry: InstanceTime | OperatorTime) -> tuple[Number, ...]:
    spread = entry.spread
    return (
        Number(numbers.ms(entry.ms), entry.ms),
        Number(numbers.ms(spread.median_ms), spread.median_ms),
        Number(numbers.ms(spread.p95_ms), spread.p95_ms),
        Number(numbers.share(entry.share), entry.share),
    )


def _with_sources(columns: tuple[str, ...], rows: Sequence[Foldable], rest: Rest) -> Table:
    """Leave the last column, the PyTorch line, out where nobody knows any."""
    table = folded("operators", columns, rows, rest, MOST_OPERATORS)
    every: Iterable[Row] = (row for each in rows for row in each.singles)
    if any(row[-1] != Name("") for row in every):
        return table
    under = {place: [row[:-1] for row in members] for place, members in table.under.items()}
    return Table("operators", columns[:-1], [row[:-1] for row in table.rows], MOST_OPERATORS, under)
