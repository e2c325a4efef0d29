"""Operators, costliest first: those that occur several times together, and the cheapest folded into one row."""

from collections.abc import Iterable, Sequence

from model_profiling.analysis.breakdown import Breakdown, InstanceTime, OperatorTime
from model_profiling.analysis.comparison import Change, OperatorChange, ProfileComparison
from model_profiling.analysis.grouping import OperatorGroup, instance_groups
from model_profiling.analysis.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Name, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.content.folding import Foldable, Rest, folded
from model_profiling.report.content.places import some, source, sources
from model_profiling.report.content.time import FASTER, faster, numbered
from model_profiling.report.words import named, repeated, unique_labels

# As many operators as a page of Markdown bears; the HTML page and the CSV have all.
MOST_OPERATORS = 15


def operators(run: RunView) -> Section | None:
    """Every operator of the graph; without times where they mean nothing."""
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
    return Section("operators", "Operators", blocks)


def kernel(entry: InstanceTime | None) -> str:
    """What the dump tells of the kernel: its number type and algorithm. P before the type is KleidiAI's packed path."""
    return " ".join(part for part in (entry.dtype, entry.algorithm) if part) if entry else ""


def _changes(run: RunView, comparison: ProfileComparison, groups: Sequence[OperatorGroup]) -> Table:
    old, new = (run.summary.experiments[n].breakdown for n in (comparison.before, comparison.after))
    rows = [_group(group, old, new) for group in groups]
    before, after = run.sides(comparison.before, comparison.after)
    columns = ("operator", before, after, FASTER, "share now", "category", "kernel", "source")

    def rest(name: str, places: list[int]) -> Row:
        changes = [groups[place].change for place in places]
        was, now, part = (sum(getattr(c, x) for c in changes) for x in ("before_ms", "after_ms", "after_share"))
        times = (Number(numbers.ms(was), was), Number(numbers.ms(now), now), Number("-", None))
        return (name, *times, Number(numbers.share(part), part), "", "", "")

    return _with_sources(columns, rows, rest)


def _group(group: OperatorGroup, old: Breakdown, new: Breakdown) -> Foldable:
    pairs = [(_at(old, member.before_row), _at(new, member.after_row)) for member in group.members]
    labels = unique_labels((member.after or member.before, member.instruction) for member in group.members)
    singles: list[Row] = [
        _change(named(label, group.where) + _gone(member), member.change, group.category, [pair])
        for label, member, pair in zip(labels, group.members, pairs, strict=True)
    ]
    share = max(group.change.before_share, group.change.after_share)
    if len(singles) == 1:
        return Foldable(singles[0], share)
    name = named(repeated(len(singles), group.name), group.where) + _gone(group.members[0])
    return Foldable(_change(name, group.change, group.category, pairs), share, singles)


def _at(breakdown: Breakdown, row: int | None) -> InstanceTime | None:
    return None if row is None else breakdown.instances[row]


def _gone(entry: OperatorChange) -> str:
    return "" if entry.after and entry.before else " (only before)" if entry.before else " (only now)"


def _change(
    name: str, change: Change, category: str, pairs: Sequence[tuple[InstanceTime | None, InstanceTime | None]]
) -> Row:
    kernels = some(_kernels(was, now) for was, now in pairs)
    return (
        Name(name),
        Number(numbers.ms(change.before_ms), change.before_ms),
        Number(numbers.ms(change.after_ms), change.after_ms),
        faster(change),
        Number(numbers.share(change.after_share), change.after_share),
        category,
        kernels,
        Name(sources(now or was for was, now in pairs)),
    )


def _kernels(was: InstanceTime | None, now: InstanceTime | None) -> str:
    first, second = kernel(was), kernel(now)
    return f"{first} → {second}" if first and second and first != second else second or first


def _alone(run: RunView, name: str) -> Table:
    groups = instance_groups(run.summary.experiments[name].breakdown)
    rows = [_operator(operator, members, run.measured) for operator, members in groups]
    timed = (run.label(name), "median", "p95", "share") if run.measured else ()

    def rest(label: str, places: list[int]) -> Row:
        ms, part = (sum(getattr(groups[place][0], x) for place in places) for x in ("ms", "share"))
        unknown = Number("-", None)
        return (label, Number(numbers.ms(ms), ms), unknown, unknown, Number(numbers.share(part), part), "", "", "")

    return _with_sources(("operator", *timed, "category", "kernel", "source"), rows, rest)


def _operator(operator: OperatorTime, members: list[InstanceTime], measured: bool) -> Foldable:
    labels = unique_labels((entry.name, entry.instruction) for entry in members)
    singles: list[Row] = [
        (
            Name(named(label, entry.where)),
            *(_times(entry) if measured else ()),
            *(entry.category, kernel(entry), Name(source(entry))),
        )
        for label, entry in zip(labels, members, strict=True)
    ]
    # Without times nothing is small.
    share = operator.share if measured else 1.0
    if len(singles) == 1:
        return Foldable(singles[0], share)
    name = Name(named(repeated(len(members), operator.operator), operator.where))
    labelled = (operator.category, some(map(kernel, members)), Name(sources(members)))
    return Foldable((name, *(_times(operator) if measured else ()), *labelled), share, singles)


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
