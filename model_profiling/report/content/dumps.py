"""What ETDumps say by themselves: where the time goes, operators, advice. Loads little: a dump is shown in a moment."""

from collections.abc import Iterable

from model_profiling.analysis.advice.finding import Finding
from model_profiling.analysis.compare.comparison import Change, ProfileComparison, instance_groups
from model_profiling.analysis.run.dumps import AnalysisSummary, ExperimentAnalysis
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.report import numbers
from model_profiling.report.blocks import AdviceBlock, Bullets, Fact, Number, Report, Row, Section, Table
from model_profiling.report.words import labelled, operator_name

_MOST_OPERATORS, _MOST_ADVICE = 5, 3
# Of a detailed answer: as many as anyone reads.
_ALL = 1000


def report(summary: AnalysisSummary) -> Report:
    """Return each dump with its categories and costliest operators; two that are compared side by side."""
    compared = {name for each in summary.comparisons for name in (each.before, each.after)}
    others = [name for name in summary.experiments if name not in compared]
    tables: list[Fact | Table] = [t for each in summary.comparisons for t in compared_tables(each, _MOST_OPERATORS)]
    facts: list[Fact | Table] = []
    for name in others:
        experiment = summary.experiments[name]
        if experiment.coverage is not None or not experiment.breakdown.execute_ms:
            continue
        breakdown = experiment.breakdown
        note = f"traced, {name}, {breakdown.executions} in all"
        facts.append(Fact("Execution", numbers.ms(breakdown.execute_ms), note))
        tables += _alone(name if len(others) > 1 else "", experiment)
    notes = [*summary.notes, *(f"{n}: {note}" for n, e in summary.experiments.items() for note in e.notes)]
    first = [c.after for c in summary.comparisons] or list(summary.experiments)
    advice = [finding for name in first for finding in summary.experiments[name].advice]
    found = advice_blocks(advice)
    more: list[Fact | Table] = [Fact("Faster", rows=[(f.title,) for f in found[:_MOST_ADVICE]])] if found else []
    more += [Fact("Note", note=note) for note in notes[:2]]
    every = [table for each in summary.comparisons for table in compared_tables(each)[1:]]
    sections = [Section("operators", "Operators", [*every])]
    sections += [Section(n, f"Operators of {n}", [*_alone(n, summary.experiments[n], _ALL)[1:]]) for n in others]
    sections += [Section("notes", "Notes", [Bullets(notes)])] if notes else []
    shifts = [each.shift.sentence for each in summary.comparisons]
    title = ", ".join(summary.experiments)
    return Report(title, headline=shifts, sections=sections, opening=[facts, tables, more], findings=found)


def advice_blocks(findings: Iterable[Finding]) -> list[AdviceBlock]:
    return [AdviceBlock(f.title, f.measured, f.evidence, f.next_step) for f in findings]


def compared_tables(comparison: ProfileComparison, most: int = _ALL) -> list[Table]:
    """Return how each category and the costliest operators changed."""
    rows = [_change(each.name, each) for each in comparison.categories if each.before_ms or each.after_ms]
    operators = labelled([each for each in comparison.operators if each.where != "runtime"])
    top = [_change(operator_name(label, each.where), each.change) for label, each in operators[:most]]
    columns = ("before", "now", "faster")
    why = f" (do not rely on it: {comparison.unreliable})" if comparison.unreliable else ""
    rows.append(_change("Method::execute", comparison.execute))
    categories = Table("categories", (f"Where the time goes{why}", *columns), rows)
    return [categories, Table("operators", ("Top operators", *columns), top)]


def _change(name: str, change: Change) -> Row:
    return (name, numbers.ms_cell(change.before_ms), numbers.ms_cell(change.after_ms), numbers.speedup_cell(change))


def _alone(name: str, experiment: ExperimentAnalysis, most: int = _MOST_OPERATORS) -> list[Table]:
    breakdown = experiment.breakdown
    rows: list[Row] = [_share(each.category, each.ms, each.share) for each in breakdown.categories if each.ms]
    groups = [group for group, _ in instance_groups(breakdown) if group.where != "runtime"]
    top = [_share(operator_name(g.operator, g.where, g.instances), g.ms, g.share) for g in groups[:most]]
    of = f", {name}" if name else ""
    return [
        Table("categories", (f"Where the time goes{of}", "time", "share"), rows),
        Table("operators", ("Top operators", "time", "share"), top),
    ]


def _share(name: str, ms: float, share: float) -> Row:
    return (name, numbers.ms_cell(ms), numbers.share_cell(share))


def predictions(found: dict[str, Prediction]) -> Report:
    """Return a what-if: predicted time and the next bottleneck, said to be a prediction."""
    rows: list[Row] = []
    for name, p in found.items():
        then = f"{p.next_bottleneck} ({p.shares[p.next_bottleneck]:.0%})"
        times = numbers.ms_cell(p.execute_ms), numbers.ms_cell(p.predicted_ms), Number(f"{p.ratio:.2f}x", p.ratio)
        rows.append((name, *times, then))
    columns = ("Prediction (traced time)", "now", "predicted", "faster", "next bottleneck")
    return Report("", opening=[[Table("predictions", columns, rows)]])
