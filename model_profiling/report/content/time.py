"""Where the time goes, before and after: by category, by operator, and what to do about it."""

from collections.abc import Iterable
from pathlib import Path

from model_profiling.analysis.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.comparison import Change, OperatorChange, ProfileComparison
from model_profiling.analysis.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.blocks import Advice, Block, Cell, Number, Paragraph, Picture, Section, Table
from model_profiling.report.charts import MOST_DRAWN
from model_profiling.report.words import unique_labels

# As many operators as a page of Markdown bears; the HTML page and the CSV have all.
MOST_OPERATORS = 15


def categories(run: RunView) -> Section | None:
    if not run.measured or not run.shown:
        return None
    blocks: list[Block] = []
    for number, comparison in enumerate(run.summary.comparisons, 1):
        caption = "The bottleneck shift: the same work, by operator category, in time and in share of the time."
        blocks += [Paragraph(comparison.shift.sentence), Picture(_numbered("shift", number), caption)]
        blocks.append(_changes(run, comparison))
    if len(run.summary.comparisons) > MOST_DRAWN:
        blocks.append(Paragraph(f"Only the first {MOST_DRAWN} comparisons have pictures; the tables show all."))
    if not run.summary.comparisons:
        blocks.append(Picture("shift", "Time by operator category."))
    for name in run.alone:
        blocks.append(_alone(name, run.summary.experiments[name].breakdown))
    blocks.append(
        Paragraph(
            "Times are traced and are means over typical executions, so that they add up to Method::execute. "
            "Runtime is what ExecuTorch itself took around the operators."
        )
    )
    return Section("categories", "Where the time goes", blocks)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _changes(run: RunView, comparison: ProfileComparison) -> Table:
    before, after = run.sides(comparison.before, comparison.after)
    columns = ("category", before, "share", after, "share", "times faster", "95 % interval")
    rows = [_change_row(change.name, change) for change in comparison.categories]
    rows.append(_change_row("Method::execute", comparison.execute))
    return Table("categories", columns, rows)


def _change_row(name: str, change: Change) -> tuple[Cell, ...]:
    return (
        name,
        Number(numbers.ms(change.before_ms), change.before_ms),
        Number(numbers.share(change.before_share), change.before_share),
        Number(numbers.ms(change.after_ms), change.after_ms),
        Number(numbers.share(change.after_share), change.after_share),
        Number(numbers.speedup(change.ratio, change.low, change.high), change.ratio),
        Number(numbers.interval(change.low, change.high), change.low),
    )


def _alone(name: str, breakdown: Breakdown) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            entry.category,
            Number(numbers.ms(entry.ms), entry.ms),
            Number(numbers.share(entry.share), entry.share),
            Number(str(entry.instances), entry.instances),
        )
        for entry in breakdown.categories
    ]
    whole = Number(numbers.ms(breakdown.execute_ms), breakdown.execute_ms)
    rows.append(
        ("Method::execute", whole, Number(numbers.share(1.0), 1.0), Number(str(len(breakdown.instances)), None))
    )
    return Table("categories", ("category", name, "share", "operators"), rows)


def operators(run: RunView) -> Section | None:
    """Every operator at its place in the graph, costliest first; without times where they mean nothing."""
    if not run.shown:
        return None
    blocks: list[Block] = []
    for number, comparison in enumerate(run.summary.comparisons, 1):
        if run.measured:
            caption = "The costliest operators, and how many times faster each became."
            blocks.append(Picture(_numbered("operators", number), caption))
        blocks.append(_operator_changes(run, comparison))
    if run.measured and run.summary.comparisons:
        text = "Times are means over typical executions. The speedup is their ratio, its interval is over "
        blocks.append(Paragraph(text + "launches; ~ means that the interval does not show a difference."))
        text = "An operator's interval includes the 1 us resolution of XNNPACK's clock, a category's does not: "
        blocks.append(Paragraph(text + "a category of one operator can have a narrower interval than that operator."))
    for name in run.alone:
        if run.measured and not run.summary.comparisons and name == run.alone[0]:
            blocks.append(Picture("operators", "The costliest operators."))
        if len(run.alone) > 1 or run.summary.comparisons:
            blocks.append(Paragraph(f"{name}:"))
        blocks.append(_operators_alone(run, name))
    return Section("operators", "Operators", blocks)


def kernel(entry: InstanceTime | None) -> str:
    """What the dump tells of the kernel: its number type and algorithm. P before the type is KleidiAI's packed path."""
    return " ".join(part for part in (entry.dtype, entry.algorithm) if part) if entry else ""


def source(entry: InstanceTime | None) -> str:
    if entry is None or entry.source is None:
        return ""
    # The last two parts tell the file; the rest is somebody's disk.
    place = f"{'/'.join(Path(entry.source.file).parts[-2:])}:{entry.source.line}" if entry.source.file else ""
    return " ".join(part for part in (entry.source.module, place) if part)


def _places(breakdown: Breakdown) -> dict[tuple[int, str], InstanceTime]:
    return {(entry.instruction, entry.name): entry for entry in breakdown.instances}


def _operator_changes(run: RunView, comparison: ProfileComparison) -> Table:
    before, after = run.sides(comparison.before, comparison.after)
    old, new = (_places(run.summary.experiments[n].breakdown) for n in (comparison.before, comparison.after))
    rows = []
    names = unique_labels((entry.after or entry.before, entry.instruction) for entry in comparison.operators)
    for name, entry in zip(names, comparison.operators, strict=True):
        was, now = old.get((entry.instruction, entry.before)), new.get((entry.instruction, entry.after))
        times = _times(entry.change) if run.measured else ()
        labels = (entry.category, entry.where, _kernels(was, now))
        rows.append((name + _gone(entry), *times, *labels, source(now) or source(was)))
    timed = (before, after, "times faster", "95 % interval", "share now") if run.measured else ()
    return _with_sources(("operator", *timed, "category", "where", "kernel", "source"), rows)


def _gone(entry: OperatorChange) -> str:
    return "" if entry.after and entry.before else " (only before)" if entry.before else " (only now)"


def _times(change: Change) -> tuple[Cell, ...]:
    return (
        Number(numbers.ms(change.before_ms), change.before_ms),
        Number(numbers.ms(change.after_ms), change.after_ms),
        Number(numbers.speedup(change.ratio, change.low, change.high), change.ratio),
        Number(numbers.interval(change.low, change.high), change.low),
        Number(numbers.share(change.after_share), change.after_share),
    )


def _kernels(was: InstanceTime | None, now: InstanceTime | None) -> str:
    first, second = kernel(was), kernel(now)
    return f"{first} → {second}" if first and second and first != second else second or first


def _operators_alone(run: RunView, name: str) -> Table:
    breakdown = run.summary.experiments[name].breakdown
    rows = []
    entries = sorted(breakdown.instances, key=lambda entry: -entry.ms) if run.measured else breakdown.instances
    names = unique_labels((entry.name, entry.instruction) for entry in entries)
    for label, entry in zip(names, entries, strict=True):
        spread = entry.spread
        times = (
            Number(numbers.ms(entry.ms), entry.ms),
            Number(numbers.ms(spread.median_ms), spread.median_ms),
            Number(numbers.ms(spread.p95_ms), spread.p95_ms),
            Number(numbers.share(entry.share), entry.share),
        )
        labels = (entry.category, entry.where, kernel(entry), source(entry))
        rows.append((label, *(times if run.measured else ()), *labels))
    timed = (name, "median", "p95", "share") if run.measured else ()
    return _with_sources(("operator", *timed, "category", "where", "kernel", "source"), rows)


def _with_sources(columns: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> Table:
    """Leave the last column, the PyTorch line, out where nobody knows any."""
    rows = list(rows)
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table("operators", columns, rows, short=MOST_OPERATORS)


def advice(run: RunView) -> Section | None:
    if not run.measured:
        return None
    blocks: list[Block] = []
    for name in run.of_interest:
        findings = run.summary.experiments[name].advice
        if findings and len(run.of_interest) > 1:
            blocks.append(Paragraph(f"For {name}:"))
        blocks += [Advice(f.title, numbers.gain(f.gain), f.evidence, f.next_step) for f in findings]
    if not blocks:
        return None
    note = "Gains are predictions: they assume that this time is removed and nothing else changes."
    return Section("advice", "What to do next", [*blocks, Paragraph(note)])
