"""The terminal: one screen after a run or an analysis, aligned, plain in a pipe."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.analysis.compare.comparison import Change, ProfileComparison
from model_profiling.analysis.compare.grouping import instance_groups
from model_profiling.analysis.roofs.group_work import of_roof
from model_profiling.analysis.run.dumps import AnalysisSummary, ExperimentAnalysis
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import tell
from model_profiling.base.units import counted
from model_profiling.report import metric_columns, numbers
from model_profiling.report.kernel_view import coverage_lines, detailed_experiments, table_alerts
from model_profiling.report.terminal.changes_text import change_lines
from model_profiling.report.terminal.style import Style, wrapped
from model_profiling.report.terminal.text_table import table
from model_profiling.report.words import (
    agreement_sentence,
    counted_name,
    growth_sentence,
    kernels_sentence,
    located_name,
    merge_sentences,
    unique_labels,
    with_cost,
)

if TYPE_CHECKING:
    from model_profiling.analysis.compare.grouping import OperatorGroup
    from model_profiling.analysis.run.run_view import RunView

MOST_OPERATORS = 5
_MOST_ADVICE = 3
_SHORT_BAR = 10


def show_run(run: "RunView") -> None:
    tell(render_run(run, Style.of_stdout()))


def show_analysis(summary: AnalysisSummary, most_operators: int = MOST_OPERATORS) -> None:
    tell("\n".join(["", *_analysis(summary, Style.of_stdout(), most_operators)]) + "\n")


def render_run(run: "RunView", style: Style) -> str:
    """Return a run as text: the result, what to do, where the time goes; then latency, outputs and files."""
    # What `analyze` of a dump has no use for, and would wait for.
    from model_profiling.report.terminal.screen import changes, first_screen, modules, phases, startup, threads

    lines = ["", _heading(run, style), ""]
    if run.summary.timing != "measured":
        return "\n".join([*lines, *_evidence(run, style)]) + "\n"
    lines += [*first_screen(run, style), *phases(run), *threads(run), *_time(run, style), *changes(run), *modules(run)]
    lines += [*_latency(run), "", *startup(run, style), *_agreement_lines(run, style)]
    lines += [*_remarks(run, style), *_notes(run, style), *_auto(run, style), *_runtimes(run)]
    lines.append(_files(run.path, style))
    return "\n".join(lines) + "\n"


def _auto(run: "RunView", style: Style) -> list[str]:
    """Return which lines `--rewrite auto` changed, if the program is faster with it."""
    pairs = run.auto.pairs if run.auto is not None else []
    found = [pair.changes for pair in pairs if pair.changes is not None and pair.latency.verdict == "faster"]
    return [line for changes in found for line in ("", "  With --rewrite auto:", *change_lines(changes, style))]


def _runtimes(run: "RunView") -> list[str]:
    if run.runtimes is None:
        return []
    from model_profiling.report.terminal.runtimes_text import as_lines

    first, *others = as_lines(run.runtimes)
    return ["", f"  Other runtimes: {first}", *others, ""]


def _heading(run: "RunView", style: Style) -> str:
    manifest, metrics = run.manifest, run.metrics
    cpu = manifest.environment.get("cpu", manifest.environment.get("arch"))
    partial = style.paint(33, ", PARTIAL RUN") if any(r.partial for r in manifest.experiments.values()) else ""
    return f"{style.bold(metrics.model)} on {metrics.platform} ({cpu}){partial}"


def render_result(run: "RunView", style: Style) -> str:
    """Return the result alone: verdict, what SME2 does, what to do first, where the time goes."""
    if run.path.is_file():
        return "\n".join([f"{run.path.name}: traced times of a bare ETDump", "", *_analysis(run.summary, style, 1)])
    from model_profiling.report.terminal.screen import first_screen

    lines = [_heading(run, style), "", *first_screen(run, style, most=1)]
    if run.measured and run.summary.comparisons:
        first = run.summary.comparisons[0]
        lines += _categories(first, run.sides(first.before, first.after), style, run.phase(first.after))
    elif run.measured:
        lines += [line for name in run.alone[:1] for line in _shares(run.summary.experiments[name], style)]
    return "\n".join([*lines, _files(run.path, style)])


def _time(run: "RunView", style: Style) -> list[str]:
    """Return compared experiments side by side, others one by one; of several numbers of threads the first."""
    from model_profiling.report.terminal.screen import roofs

    lines: list[str] = []
    others = run.of_other_threads
    for number, comparison in enumerate(run.summary.comparisons):
        if run.repeats(comparison.before, comparison.after):
            continue
        sides = run.sides(comparison.before, comparison.after)
        lines += _categories(comparison, sides, style, run.phase(comparison.after))
        lines += [*_unreliable(comparison.unreliable, style), ""]
        after = run.summary.experiments[comparison.after]
        lines += [*_top_groups(run.operator_groups[number], after, MOST_OPERATORS), *roofs(run, comparison.after), ""]
    for name in [name for name in run.alone if name not in others]:
        lines += [*_breakdown(run.label(name), run.summary.experiments[name], style, MOST_OPERATORS)]
        lines += [*roofs(run, name), ""]
    return lines


def _notes(run: "RunView", style: Style) -> list[str]:
    experiments = run.summary.experiments.items()
    notes = [*run.summary.notes, *(f"{run.label(n)}: {note}" for n, e in experiments for note in e.notes)]
    return [f"  {style.dim('note')}     {wrapped(run.labelled(note), 11)}" for note in notes]


def _agreement_lines(run: "RunView", style: Style) -> list[str]:
    sentences = [run.labelled(agreement_sentence(agreement)) for agreement in run.metrics.agreements]
    return [f"  {style.dim('outputs')}  {wrapped(sentence, 11)}" for sentence in sentences]


def _evidence(run: "RunView", style: Style) -> list[str]:
    """Return a run without times: what ran, and whether it computed the same."""
    summary = run.summary
    lines = _agreement_lines(run, style)
    lines += [*_remarks(run, style), ""]
    covered = {name: e.coverage for name, e in summary.experiments.items() if e.coverage is not None}
    best = detailed_experiments(run)
    for name, coverage in covered.items():
        lines += [*coverage_lines(run.label(name), coverage, detail=name in best), *([""] if name in best else [])]
    lines += [f"  {wrapped(run.labelled(kernels_sentence(each)))}" for each in summary.kernel_comparisons]
    # What `analyze` of a dump has no use for, and would wait for.
    from model_profiling.analysis.run.table_check import table_differences, traced_operators

    alerts = table_alerts(table_differences(run), traced_operators(run))
    lines += [f"  {style.dim('table')}  {wrapped(alert, 9)}" for alert in alerts]
    lines += [f"  {style.dim('note')}   {note}" for note in summary.notes]
    return [*lines, _files(run.path, style)]


def _files(path: Path, style: Style) -> str:
    return f"  {style.dim('files')}  {relative_to_here(path)}"


def _remarks(run: "RunView", style: Style) -> list[str]:
    """Return what has to be known of the numbers: the worst first, and once where it is true of several experiments."""
    records = {run.label(key): record for key, record in run.manifest.experiments.items()}
    measured = {run.label(key): found for key, found in run.metrics.experiments.items()}
    failed = [(name, record.failure) for name, record in records.items() if record.failure]
    odd = [
        (n, f"{counted(m.nonfinite_outputs, 'output')} NaN or Inf") for n, m in measured.items() if m.nonfinite_outputs
    ]
    warnings = [(n, warning) for n, m in measured.items() if m.latency for warning in m.latency.warnings]
    warnings += [(n, growth_sentence(m.memory)) for n, m in measured.items() if m.memory and m.memory.leak]
    notes = [(name, note) for name, record in records.items() for note in record.notes]
    labelled = (
        (style.paint(31, "failed") + "   ", merge_sentences(failed)),
        (style.paint(31, "warning") + "  ", merge_sentences(odd, ranges=True)),
        (style.paint(33, "warning") + "  ", merge_sentences(warnings, ranges=True)),
        (style.dim("note") + "     ", merge_sentences(notes)),
    )
    return [
        f"  {label}{wrapped(f'{names}: {sentence}' if names else sentence, 11)}"
        for label, said in labelled
        for names, sentence in said
    ]


def _latency(run: "RunView") -> list[str]:
    columns = metric_columns.columns("short", "full", phases=bool(run.phases))
    rows: list[tuple[str, ...]] = [("latency", *metric_columns.labels(columns))]
    for name, measured in run.metrics.experiments.items():
        rows.append((run.label(name), *(column.text(measured) for column in columns)))
    return table(rows, words=1)


def _analysis(summary: AnalysisSummary, style: Style, most: int) -> list[str]:
    """Return advice for the experiment a reader wants faster; compared experiments side by side; others one by one."""
    lines: list[str] = []
    shown = [c.after for c in summary.comparisons] or list(summary.experiments)
    for name in dict.fromkeys(shown):
        lines += _advice(name, summary.experiments[name], style, len(shown) > 1)
    compared: set[str] = set()
    for comparison in summary.comparisons:
        lines += [*_comparison(comparison, style, most), ""]
        compared |= {comparison.before, comparison.after}
    for name, experiment in summary.experiments.items():
        if experiment.coverage is not None:
            lines += [*coverage_lines(name, experiment.coverage, detail=True), ""]
        elif name not in compared and experiment.breakdown.execute_ms:
            lines += [*_breakdown(name, experiment, style, most), ""]
    notes = [*summary.notes, *(f"{n}: {note}" for n, e in summary.experiments.items() for note in e.notes)]
    return lines + [f"  {style.dim('note')}   {note}" for note in notes]


def _categories(comparison: ProfileComparison, sides: tuple[str, str], style: Style, phase: str = "") -> list[str]:
    rows: list[tuple[str, ...]] = [
        (f"where the time goes{f', {phase}' if phase else ''}", "before", "", "now", "", "faster")
    ]
    for entry in comparison.categories:
        if entry.before_ms or entry.after_ms:
            sides_shown = (entry.before_ms, entry.before_share), (entry.after_ms, entry.after_share)
            cells = [(f"{numbers.ms(ms)} {part:4.0%}", style.bar(part, _SHORT_BAR)) for ms, part in sides_shown]
            rows.append((entry.name, *cells[0], *cells[1], _ratio(entry)))
    legend = style.dim(f"before: {sides[0]}, now: {sides[1]}, traced")
    return [*table(rows, words=1, left={2, 4}, optional={2, 4}), f"  {legend}"]


def _top_groups(groups: "list[OperatorGroup]", after: ExperimentAnalysis, most: int) -> list[str]:
    """Return the costliest operators, those of one name together."""
    reach = _reach(after)
    rows = [("top operators", "before", "now", "faster", *(["of roof"] if reach else []))]
    for group in [group for group in groups if group.where != "runtime"][:most]:
        times = (numbers.ms(group.change.before_ms), numbers.ms(group.change.after_ms))
        name = located_name(counted_name(len(group.members), group.name), group.where)
        places = [member.after_row for member in group.members if member.after_row is not None]
        rows.append((name, *times, _ratio(group.change), *([reach(places)] if reach else [])))
    return table(rows, words=1)


def _reach(experiment: ExperimentAnalysis) -> Callable[[list[int]], str] | None:
    """Return what to write of how near to their roofs some operators are; None where no roofs are known."""
    if experiment.roofline is None:
        return None
    roofs = experiment.roofline.by_row
    return lambda rows: numbers.of_roof(of_roof(experiment.breakdown, rows, roofs))


def _comparison(comparison: ProfileComparison, style: Style, most: int) -> list[str]:
    lines = _categories(comparison, (comparison.before, comparison.after), style)
    lines += ["", f"  {style.bold(comparison.shift.sentence)}", ""]
    rows: list[tuple[str, ...]] = [("top operators", "before", "now", "faster")]
    operators = [x for x in comparison.operators if x.where != "runtime"]
    names = unique_labels(operators)
    for name, operator in list(zip(names, operators, strict=True))[:most]:
        change = operator.change
        times = (numbers.ms(change.before_ms), numbers.ms(change.after_ms))
        rows.append((located_name(name, operator.where), *times, _ratio(change)))
    return lines + table(rows, words=1)


def _ratio(change: Change) -> str:
    return numbers.bounded_speedup(change.ratio, change.low, change.high)


def _breakdown(name: str, experiment: ExperimentAnalysis, style: Style, most: int) -> list[str]:
    breakdown = experiment.breakdown
    whole = f"{numbers.ms(breakdown.execute_ms)} in Method::execute (traced)"
    lines = [f"  {style.bold(name)}: {whole}, {counted(breakdown.executions, 'execution')}", ""]
    lines += _shares(experiment, style)
    lines += _unreliable(breakdown.unreliable, style)
    reach = _reach(experiment)
    rows = [("top operators", "time", "share", *(["of roof"] if reach else []))]
    for entry, places in [x for x in instance_groups(breakdown) if x[0].where != "runtime"][:most]:
        name = located_name(counted_name(entry.instances, entry.operator), entry.where)
        rows.append((name, numbers.ms(entry.ms), f"{entry.share:.1%}", *([reach(places)] if reach else [])))
    return [*lines, "", *table(rows, words=1)]


def _shares(experiment: ExperimentAnalysis, style: Style) -> list[str]:
    parts = [c for c in experiment.breakdown.categories if c.ms]
    rows = [(c.category, numbers.ms(c.ms), f"{c.share:.1%}", style.bar(c.share)) for c in parts]
    return table(rows, words=1, left={3}, optional={3}, header=False)


def _unreliable(why: str, style: Style) -> list[str]:
    """Return why the times of operators above cannot be relied on."""
    return [f"  {style.paint(33, wrapped(f'do not rely on these times: {why}'))}"] if why else []


def _advice(name: str, experiment: ExperimentAnalysis, style: Style, named: bool) -> list[str]:
    if not experiment.advice:
        return []
    lines = [f"  {style.bold('what to do next')}{f' ({name})' if named else ''}"]
    for number, finding in enumerate(experiment.advice[:_MOST_ADVICE], 1):
        lines.append(f"  {number}. {wrapped(with_cost(finding.title, finding.measured), 5)}")
        lines.append(f"     {style.dim(wrapped(finding.next_step, 5))}")
    return [*lines, ""]


def show_predictions(predictions: dict[str, Prediction]) -> None:
    """Print a what-if: predicted time and the next bottleneck, said to be a prediction."""
    rows = [("prediction (traced time)", "now", "predicted", "faster", "next bottleneck")]
    for name, p in predictions.items():
        shown = f"{p.next_bottleneck} ({p.shares[p.next_bottleneck]:.0%})"
        rows.append((name, numbers.ms(p.execute_ms), numbers.ms(p.predicted_ms), f"{p.ratio:.2f}x", shown))
    tell("\n".join(table(rows, words=1)) + "\n")


def show_comparison(comparison: ProfileComparison) -> None:
    tell("\n".join(["", *_comparison(comparison, Style.of_stdout(), MOST_OPERATORS)]) + "\n\n")


def show_evidence(run: "RunView", remark: str) -> None:
    """Print what `sme2-kit kernels` shows."""
    style = Style.of_stdout()
    cpu = run.manifest.environment.get("cpu", run.manifest.environment.get("arch"))
    lines = ["", f"{style.bold(run.summary.model)} on {cpu}", "", *_evidence(run, style)]
    tell("\n".join([*lines, *([f"  note   {remark}"] if remark else [])]) + "\n")
