"""The first screen: what is wrong with the run, three figures, what to do next, and what shifted."""

from collections.abc import Sequence
from typing import TypeVar

from model_profiling.analysis.advice.finding import Finding
from model_profiling.analysis.compare.comparison import ProfileComparison
from model_profiling.analysis.run.experiment_labels import other_executorch, switched_features
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.timing.breakdown import file_line
from model_profiling.analysis.timing.latency import Comparison, Latency
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import AdviceBlock, KeyFigure
from model_profiling.report.content import auto
from model_profiling.report.content.reproduce import rerun_command
from model_profiling.report.content.roofline import at_the_roof
from model_profiling.report.content.source_lines import source
from model_profiling.report.words import comparison_sentence, factor, kernels_sentence
from model_profiling.runner.features import feature_label, meaning

MOST_ACTIONS = 3
# As many comparisons as anyone reads before the rest of a report.
_MOST_SHIFTS = 12
_Pair = TypeVar("_Pair", Comparison, ProfileComparison)
_NOT_KNOWN = "not known"


def alerts(run: RunView) -> list[str]:
    """Return what failed, is only a part or cannot be relied on, before anything is read."""
    records = run.manifest.experiments
    found = [_busy(run)] if run.busy else []
    found += [f"{run.label(name)} failed and has no results." for name, r in records.items() if r.status != "ok"]
    found += [f"Partial: {run.label(name)} has {record.partial}." for name, record in records.items() if record.partial]
    if not run.measured:
        found.append("The CPU was emulated: operators and kernels are real, times are not and are left out.")
    elif not run.shown:
        found.append("No experiment finished: there is nothing to report.")
    return found


def _busy(run: RunView) -> str:
    """Say that the machine was busy, what that means for what follows, and how to measure again."""
    again = rerun_command(run.manifest)
    left_out = [record.stops_clock for record in run.manifest.experiments.values() if record.status == "ok"]
    kept = " Times of operators leave out what other processes took." if left_out and all(left_out) else ""
    return (
        f"The machine was busy: other processes preempted {run.busy:.0%} of the executions. Do not rely on latency, "
        f"speedup and advice.{kept} Stop other work and measure again{f': {again}' if again else ''}."
    )


def figures(run: RunView) -> list[KeyFigure]:
    """Return before, after and factor; where nothing was compared, what the run does tell."""
    if not run.shown:
        return []
    if not run.measured:
        return _emulated(run)
    metrics = run.summary.metrics
    if metrics is not None and metrics.comparisons:
        return [figure for comparison in _of_phases(run, metrics.comparisons) for figure in _compared(run, comparison)]
    if run.phases:
        return [_median(run, run.label(name), name) for name in run.first_of_phases]
    if len(run.shown) > 1:
        return [_median(run, run.label(name), name) for name in run.shown[:3]]
    return _single(run, run.shown[0])


def _of_phases(run: RunView, comparisons: Sequence[_Pair]) -> Sequence[_Pair]:
    """Return the first comparison; of a language model, the first in each of its two phases."""
    kinds = dict[str, _Pair]()
    for comparison in comparisons if run.phases else []:
        phase = run.manifest.experiments[comparison.after].phase
        kinds.setdefault(phase.kind if phase is not None else "", comparison)
    return list(kinds.values()) or comparisons[:1]


def _compared(run: RunView, comparison: Comparison) -> list[KeyFigure]:
    pair = (comparison.before, comparison.after)
    sides = zip(run.sides(*pair), pair, strict=True)
    phase = run.phase(comparison.after)
    speedup = f"speedup ({phase})" if phase else "speedup"
    return [*(_median(run, label, name) for label, name in sides), KeyFigure(speedup, *factor(comparison))]


def _median(run: RunView, label: str, name: str) -> KeyFigure:
    measured = run.metrics.experiments[name]
    latency = measured.latency
    if latency is None:
        return KeyFigure(label, _NOT_KNOWN, "there is no latency of it")
    if measured.phase is not None and measured.phase.token_per_sec is not None:
        each = "first token after" if measured.phase.kind == "prefill" else "a token every"
        rate = f"{numbers.rate(measured.phase.token_per_sec)} tokens/s"
        return KeyFigure(label, rate, f"{each} {numbers.ms(latency.median_ms)}, {_spread(latency)}")
    return KeyFigure(label, numbers.ms(latency.median_ms), _spread(latency))


def _spread(latency: Latency) -> str:
    return f"median of {counted(latency.runs, 'run')}, MAD {numbers.spread(latency.mad_percent)}"


def _single(run: RunView, name: str) -> list[KeyFigure]:
    """Return one experiment: how long, what takes most, and how much is outside the delegate."""
    breakdown = run.summary.experiments[name].breakdown
    largest = breakdown.dominant
    outside = [entry for entry in breakdown.instances if entry.where == "portable"]
    share = sum(entry.share for entry in outside)
    return [
        _median(run, "latency", name),
        KeyFigure("largest part", largest.category, f"{numbers.share(largest.share)} of the traced time"),
        KeyFigure(
            "outside the delegate", numbers.share(share), f"{counted(len(outside), 'operator')} ran portable kernels"
        ),
    ]


def _emulated(run: RunView) -> list[KeyFigure]:
    """Return what an emulator can show: which operators and kernels ran, and nothing of time."""
    experiment = run.summary.experiments[run.shown[0]]
    time = KeyFigure("time", "not measured", "the CPU was emulated")
    coverage = experiment.coverage
    if coverage is not None and coverage.on_sme2 is not None:
        on = KeyFigure("CONV and GEMM on SME2", f"{coverage.on_sme2} of {coverage.eligible}", "operators")
        if coverage.work and coverage.work_on_sme2 is not None:
            part = coverage.work_on_sme2 / coverage.work
            return [on, KeyFigure("their work on SME2", numbers.share(part), "of the multiply-accumulates"), time]
        return [on, time]
    steps = [entry for entry in experiment.breakdown.instances if entry.where != "runtime"]
    portable = sum(entry.where == "portable" for entry in steps)
    return [KeyFigure("operators", str(len(steps)), f"{portable} of them outside the delegate"), time]


def legend(run: RunView) -> str:
    """Return what the switched feature is, for those who do not know its name."""
    features = [f for c in run.summary.comparisons[:1] for f in switched_features(run.manifest, c.before, c.after)]
    return " ".join(f"{feature_label(feature)}: {meaning(feature)}." for feature in features if meaning(feature))


def actions(run: RunView) -> list[AdviceBlock]:
    """Return the first findings, for the experiment that a reader wants faster."""
    # Of a language model, fewer for each of its phases.
    most = MOST_ACTIONS if len(_first(run)) < 2 else MOST_ACTIONS - 1
    return [advice_block(run, name, f) for name in _first(run) for f in _advice(run, name)[:most]]


def _first(run: RunView) -> list[str]:
    return run.first_of_phases if run.measured else []


def _advice(run: RunView, name: str) -> list[Finding]:
    return run.summary.experiments[name].advice


def no_actions(run: RunView) -> str:
    if any(_advice(run, name) for name in _first(run)) or not run.shown:
        return ""
    if not run.measured:
        return "Run on real hardware: without times nobody can say what is worth changing."
    name, none = _first(run)[0], "No finding is about 1 % of the time or more."
    return " ".join(filter(None, (none, at_the_roof(run, name), _costliest(run, name))))


def _costliest(run: RunView, name: str) -> str:
    """Return where to look where nothing better is known: the line that takes most of the time."""
    lines = [node for _, node in run.cost_tree(name).walk() if node.kind == "line"]
    if not lines:
        return ""
    most = max(lines, key=lambda node: node.share)
    where = " ".join(part for part in (most.module, file_line(most.file, most.line)) if part)
    return f"The costliest line is {where}, with {numbers.share(most.share)} of the time, most of it {most.category}."


def advice_block(run: RunView, name: str, finding: Finding) -> AdviceBlock:
    """Return a finding with the line of its costliest operator that has one."""
    instances = run.summary.experiments[name].breakdown.instances
    costliest = sorted((instances[row] for row in finding.instances), key=lambda entry: -entry.ms)
    first = next((entry for entry in costliest if source(entry)), None)
    place = source(first) if first is None or first.source_line not in finding.title else first.module
    title = _in_phase(run, name, finding.title)
    return AdviceBlock(title, finding.measured, finding.evidence, finding.next_step, place)


def shifts(run: RunView) -> list[str]:
    """Return what dominated before and what does now."""
    if not run.measured:
        covered = [
            f"{run.label(name)}: {experiment.coverage.headline}."
            for name, experiment in run.summary.experiments.items()
            if experiment.coverage is not None
        ]
        return [*covered, *(f"{run.labelled(kernels_sentence(each))}." for each in run.summary.kernel_comparisons)]
    metrics = run.summary.metrics
    # All numbers of threads are compared in a section of their own.
    later = metrics.comparisons[1:] if metrics is not None else []
    said = run.first_of_phases if run.phases else []
    others = [c for c in later if not run.repeats(c.before, c.after) and c.after not in said]
    releases = [c for c in run.metrics.comparisons if other_executorch(run.manifest, c.before, c.after)]
    others = [c for c in others if c not in releases]
    found = [f"{run.labelled(comparison_sentence(c, busy=False))}." for c in releases]
    found += [_in_phase(run, c.after, c.shift.sentence) for c in _of_phases(run, run.summary.comparisons)]
    for compared in others[:_MOST_SHIFTS]:
        before, after = run.sides(compared.before, compared.after)
        value, note = factor(compared)
        found.append(f"{after} against {before}: {value} ({note}).")
    if len(others) > _MOST_SHIFTS:
        found.append(f"The section Latency has {len(others) - _MOST_SHIFTS} more comparisons.")
    found = [auto.sentence(run.auto), *found] if run.auto is not None else found
    # Where nothing is to be done, that is said there.
    return found + [told for name in _first(run) if _advice(run, name) and (told := at_the_roof(run, name))]


def _in_phase(run: RunView, name: str, said: str) -> str:
    """Return what is said of an experiment with its phase, if it has one."""
    return f"{run.phase(name)}: {said}" if run.phase(name) else said
