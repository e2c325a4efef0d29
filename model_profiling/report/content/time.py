"""Where the time goes, before and after: by category, and what changed most by line, adding up to the whole."""

import shlex
from collections.abc import Sequence

from model_profiling.analysis.compare.comparison import Change, ProfileComparison
from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.report import change_words, metric_columns, numbers
from model_profiling.report.blocks import Block, Bullets, Name, Number, Paragraph, Picture, Row, Section, Table, bullets
from model_profiling.report.change_words import DifferenceRow
from model_profiling.report.charts import MOST_DRAWN, MOST_PANELS
from model_profiling.report.words import agreement_sentence, bounded_factor, comparison_sentence

FASTER = "times faster (95 % interval)"
_LEGEND = (
    "Means of undisturbed times over the same typical executions, so that rows add up. Intervals of parts hold "
    "together, that of the whole by itself. ~: no difference seen. Runtime: what ExecuTorch took besides them."
)
_MOST_PARTS, _MOST_MODULES, _MOST_UNFOLDED = 10, 8, 500
_CHANGES_LEGEND = (
    "Rows add up to the whole; times are traced, and all intervals of a comparison hold together. Where nothing is "
    "said to have changed, operators and shapes are the same; only the time changed. ~: no difference seen."
)


def categories(run: RunView, experiments: int = 0) -> Section | None:
    """Return the section; `experiments` is how many the whole run has, if `run` is a part of it."""
    if not run.measured or not run.shown:
        return None
    blocks: list[Block] = []
    caption = f"{run.summary.model}: time by category of operator, traced."
    if experiments > len(run.summary.experiments):
        blocks.append(Paragraph(omitted_note(run, experiments)))
    for number, comparison in enumerate(run.summary.comparisons, 1):
        blocks += [Paragraph(comparison.shift.sentence)] if number > 1 else []
        before, after = run.sides(comparison.before, comparison.after)
        columns = ("category", before, "share", after, "share", FASTER)
        rows = [
            change_row(change.name, change) for change in comparison.categories if change.before_ms or change.after_ms
        ]
        rows += _whole(run, comparison)
        blocks += [Picture(numbered("shift", number), caption), Table("categories", columns, rows)]
    if len(run.summary.comparisons) > MOST_DRAWN:
        blocks.append(Paragraph(f"Only the first {MOST_DRAWN} comparisons have pictures; the tables show all."))
    blocks += [Picture("shift", caption)] if not run.summary.comparisons else []
    blocks += [_alone(run.label(name), run.summary.experiments[name].breakdown) for name in run.alone]
    unreliable = [(run.label(name), run.summary.experiments[name].breakdown.unreliable) for name in run.shown]
    blocks += [Paragraph(f"Do not rely on the times of {label}: {why}.") for label, why in unreliable if why]
    blocks.append(Paragraph(_LEGEND))
    sentences = [comparison.shift.sentence for comparison in run.summary.comparisons[:1]]
    return Section("categories", "Where the time goes", blocks, result=" ".join(sentences))


def omitted_note(run: RunView, experiments: int) -> str:
    """Say which part of a run with many experiments is shown in full, and how to get the others."""
    return (
        f"This run has {experiments} experiments. Those that it compares first, {len(run.summary.experiments)}, are "
        "shown here with their operators; latencies, comparisons and analysis_summary.json have all. For another: "
        f"`sme2-kit report {shlex.quote(run.directory)} --experiment NAME`."
    )


def numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _whole(run: RunView, comparison: ProfileComparison) -> list[Row]:
    """Return the sum, and what leads from it to the latency that the first screen has: the tracer's cost."""
    pair, whole = (comparison.before, comparison.after), comparison.execute
    latency = next((c for c in run.metrics.comparisons if (c.before, c.after) == pair), None)
    rows = [change_row("Method::execute", whole)]
    if latency is None or latency.contended or not all(map(run.execution_ms, pair)):
        return rows
    none = numbers.NOTHING
    traced = latency.before_ms - whole.before_ms, latency.after_ms - whole.after_ms
    before, after = (numbers.cell(ms, "{:+.3f} ms".format) for ms in traced)
    ends = numbers.ms_cell(latency.before_ms), none, numbers.ms_cell(latency.after_ms), none
    ratio = Number(" ".join(bounded_factor(latency)), latency.ratio)
    return [*rows, ("less the tracer", before, none, after, none, none), ("an execution", *ends, ratio)]


def change_row(name: str, change: Change) -> Row:
    before = numbers.ms_cell(change.before_ms), numbers.share_cell(change.before_share)
    after = numbers.ms_cell(change.after_ms), numbers.share_cell(change.after_share)
    return (name, *before, *after, numbers.speedup_cell(change))


def _alone(label: str, breakdown: Breakdown) -> Table:
    rows: list[Row] = [
        (e.category, numbers.ms_cell(e.ms), numbers.share_cell(e.share), numbers.count_cell(e.instances))
        for e in breakdown.categories
        if e.ms
    ]
    whole = numbers.ms_cell(breakdown.execute_ms), numbers.share_cell(1.0), numbers.count_cell(len(breakdown.instances))
    return Table("categories", ("category", label, "share", "operators"), [*rows, ("Method::execute", *whole)])


def changes(run: RunView) -> Section | None:
    """Return what each comparison's difference consists of; of several numbers of threads, that of the first."""
    blocks: list[Block] = []
    for found in run.changes:
        if run.repeats(found.before, found.after):
            continue
        before, after = run.sides(found.before, found.after)
        if blocks:
            blocks.append(Paragraph(f"{before} and {after}:"))
        if not found.different:
            said = change_words.unchanged_sentence(found)
            blocks.append(Paragraph(f"{said[0].upper()}{said[1:]}."))
        else:
            linked = any(part.module or part.source_line for part in found.parts)
            times = (before, after, "difference (95 % interval)")
            # The same program with and without a feature may differ in nothing but time.
            what = ["what changed"] if any(part.aspects for part in found.different) else []
            columns = ("line" if linked else "operator", *times, *what)
            blocks.append(_changes_table(columns, change_words.difference_rows(found, _MOST_PARTS)))
            modules = change_words.module_rows(found, _MOST_MODULES)
            blocks += [_changes_table(("module", *times), modules)] if modules else []
        blocks += [Paragraph(f"{run.labelled(note[0].upper() + note[1:])}.") for note in found.notes]
    if not blocks:
        return None
    blocks += [Paragraph(_CHANGES_LEGEND)] if any(isinstance(block, Table) for block in blocks) else []
    largest = [change_words.largest_sentence(found, 1) for found in run.changes]
    return Section("changes", "What changed", blocks, True, next(filter(None, largest), "no line by more than noise"))


def _changes_table(columns: tuple[str, ...], rows: Sequence[DifferenceRow]) -> Table:
    # What cannot be told from noise needs no list.
    under = {
        place: [_change_row(change_words.part_row(part), len(columns)) for part in row.parts[:_MOST_UNFOLDED]]
        for place, row in enumerate(rows)
        if len(row.parts) > 1 and all(part.told for part in row.parts)
    }
    return Table("changes", columns, [_change_row(row, len(columns)) for row in rows], under=under)


def _change_row(row: DifferenceRow, cells: int) -> Row:
    alone = row.parts[0] if len(row.parts) == 1 and row.name == change_words.part_name(row.parts[0]) else None
    what = change_words.what_changed(alone) if alone is not None else ""
    name = Name(row.name) if alone is not None else row.name
    return (name, *row.cells, what.replace(" -> ", " → "))[:cells]


def latencies(run: RunView) -> Section | None:
    metrics = run.summary.metrics
    if metrics is None:
        return None
    blocks: list[Block] = []
    if run.measured:
        timed = {name: experiment for name, experiment in metrics.experiments.items() if experiment.latency}
        if timed:
            blocks += [_table("latency", run, timed, "short", "full"), _table("spread", run, timed, "distribution")]
        sentences = [f"{run.labelled(comparison_sentence(run.told(c), busy=False))}." for c in metrics.comparisons]
        known = {run.label(name): each.latency for name, each in timed.items() if each.latency}
        sentences += [f"{label}: {warning}." for label, latency in known.items() for warning in latency.warnings]
        sentences += [
            f"{run.label(name)}: only traced runs exist; latency includes tracer overhead."
            for name, experiment in timed.items()
            if experiment.latency_source != "untraced executions"
        ]
        blocks += bullets(sentences)
        if any(run.turns.values()):
            caption = "Dots: executions; line: medians of turns; triangles: above the axis. Each has its own axis."
            if len(run.turns) > MOST_PANELS:
                caption += f" The first {MOST_PANELS} experiments; of another: --png latency --experiment NAME."
            blocks.append(Picture("latency", caption))
    wrong = {run.label(name): each.nonfinite_outputs for name, each in metrics.experiments.items()}
    wrong_outputs = [f"{label} gave {count} outputs that are NaN or Inf." for label, count in wrong.items() if count]
    blocks += bullets([*_agreements(run), *wrong_outputs]) or [Paragraph("Outputs were not compared with anything.")]
    return Section("latency", "Latency" if run.measured else "Outputs", blocks, True, _result(run)) if blocks else None


def _result(run: RunView) -> str:
    agreed = [run.labelled(agreement_sentence(each)) for each in run.metrics.agreements[:1]]
    times = [(name, run.execution_ms(name)) for name in run.shown[:1] if run.measured]
    said = [f"{run.label(name)} {numbers.ms(ms)}" for name, ms in times if ms is not None]
    return "; ".join([*said, *agreed])


def latency_table(run: RunView) -> Section | None:
    """Return the latencies alone, with what each was taken from."""
    metrics = run.summary.metrics
    timed = metrics.experiments if metrics is not None and run.measured else {}
    if not timed:
        return None
    measured = _table("latency", run, timed, "short")
    rows: list[Row] = [
        (row[0], each.status, metric_columns.disabled_features(each), *row[1:], each.latency_source)
        for row, each in zip(measured.rows, timed.values(), strict=True)
    ]
    columns = ("experiment", "status", "switched off", *measured.columns[1:], "latency from")
    return Section("latency", "Latency", [Table("latency", columns, rows), Bullets(_agreements(run))])


def _table(key: str, run: RunView, timed: dict[str, ExperimentMetrics], *details: metric_columns.Detail) -> Table:
    columns = metric_columns.columns(*details, phases=bool(run.phases) and "short" in details)
    rows: list[Row] = [
        (run.label(name), *(column.number(measured) for column in columns)) for name, measured in timed.items()
    ]
    return Table(key, ("experiment", *metric_columns.labels(columns)), rows)


def _agreements(run: RunView) -> list[str]:
    """Return whether the outputs agree: speed without it is worth nothing."""
    return [f"Outputs of {run.labelled(agreement_sentence(agreement))}." for agreement in run.metrics.agreements]
