"""Where the time goes, before and after, by category."""

import shlex

from model_profiling.analysis.compare.comparison import Change, ProfileComparison
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.charts import MOST_DRAWN

FASTER = "times faster (95 % interval)"


def categories(run: RunView, experiments: int = 0) -> Section | None:
    """Return the section; `experiments` is how many the whole run has, if `run` is a part of it."""
    if not run.measured or not run.shown:
        return None
    blocks: list[Block] = []
    if experiments > len(run.summary.experiments):
        blocks.append(Paragraph(omitted_note(run, experiments)))
    for number, comparison in enumerate(run.summary.comparisons, 1):
        if number > 1:
            blocks.append(Paragraph(comparison.shift.sentence))
        caption = "Above in milliseconds, below in percent of each bar. Traced executions."
        blocks += [Picture(numbered("shift", number), caption), _changes(run, comparison)]
    if len(run.summary.comparisons) > MOST_DRAWN:
        blocks.append(Paragraph(f"Only the first {MOST_DRAWN} comparisons have pictures; the tables show all."))
    if not run.summary.comparisons:
        blocks.append(Picture("shift", "Above in milliseconds, below in percent. Traced executions."))
    for name in run.alone:
        blocks.append(_alone(run.label(name), run.summary.experiments[name].breakdown))
    blocks += unreliable_notes(run)
    blocks.append(
        Paragraph(
            "Times are means of undisturbed executions of each operator; they add up to Method::execute. "
            "Intervals hold for all rows together, from launches; with too few launches there is no ratio. "
            "Runtime is what ExecuTorch itself took around the operators. "
            "~ means that the interval does not show a difference."
        )
    )
    return Section("categories", "Where the time goes", blocks)


def omitted_note(run: RunView, experiments: int) -> str:
    """Say which part of a run with many experiments is shown in full, and how to get the others."""
    return (
        f"This run has {experiments} experiments. Those that it compares first, {len(run.summary.experiments)}, are "
        "shown here with their operators; latencies, comparisons and analysis_summary.json have all. For another: "
        f"`sme2-kit report {shlex.quote(run.directory)} --experiment NAME`."
    )


def unreliable_notes(run: RunView) -> list[Block]:
    """Say of which experiments the times of operators cannot be relied on, and why."""
    shown = [(run.label(name), run.summary.experiments[name].breakdown.unreliable) for name in run.shown]
    return [Paragraph(f"Do not rely on the times of {label}: {why}.") for label, why in shown if why]


def numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _changes(run: RunView, comparison: ProfileComparison) -> Table:
    before, after = run.sides(comparison.before, comparison.after)
    columns = ("category", before, "share", after, "share", FASTER)
    rows = [change_row(change.name, change) for change in comparison.categories if change.before_ms or change.after_ms]
    rows.append(change_row("Method::execute", comparison.execute))
    return Table("categories", columns, rows)


def change_row(name: str, change: Change) -> Row:
    return (
        name,
        Number(numbers.ms(change.before_ms), change.before_ms),
        Number(numbers.share(change.before_share), change.before_share),
        Number(numbers.ms(change.after_ms), change.after_ms),
        Number(numbers.share(change.after_share), change.after_share),
        speedup_number(change),
    )


def speedup_number(change: Change) -> Number:
    return Number(numbers.bounded_speedup(change.ratio, change.low, change.high), change.ratio)


def _alone(label: str, breakdown: Breakdown) -> Table:
    rows: list[Row] = [
        (
            entry.category,
            Number(numbers.ms(entry.ms), entry.ms),
            Number(numbers.share(entry.share), entry.share),
            Number(str(entry.instances), entry.instances),
        )
        for entry in breakdown.categories
        if entry.ms
    ]
    whole = Number(numbers.ms(breakdown.execute_ms), breakdown.execute_ms)
    count = len(breakdown.instances)
    rows.append(("Method::execute", whole, Number(numbers.share(1.0), 1.0), Number(str(count), count)))
    return Table("categories", ("category", label, "share", "operators"), rows)
