"""What more threads bring: latency and speedup by number of threads, which number is best, what does not scale."""

from model_profiling.analysis.advice.finding import Finding, FindingKind
from model_profiling.analysis.advice.threads import units_words
from model_profiling.analysis.compare.operator_scaling import CurveOperators, OperatorThreads
from model_profiling.analysis.process.scaling import FEWEST, Scaling, ThreadCurve, ThreadPoint, ThreadSwitch
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Name, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.content.first_screen import advice_block
from model_profiling.report.words import BUSY, counted_name, located_name

_SHOWN = 10
# More rows than this nobody reads on a page; the CSV has all.
_MOST_ROWS = 100
_CAPTION = (
    "Median latency by number of threads, and how many times faster that is than the fewest, with the 95 % interval; "
    "dashed: as many times faster as there are more threads."
)
# What is wrong with a number of threads that is not the first, and so has no advice of its own in the report.
_WRONG = (FindingKind.MORE_THREADS_SLOWER, FindingKind.SLOWER_WITH_THREADS)
COLUMNS = ("threads", "median", "times faster", "95 % interval", "parallel efficiency")


def section(run: RunView) -> Section | None:
    """Return the table of all numbers of threads, the picture, what is best, and the operators that lose most."""
    found = run.threads_compared
    if found is None:
        return None
    blocks: list[Block] = [Bullets([f"{sentence}." for sentence in sentences(run)]), Picture("threads", _CAPTION)]
    blocks.append(Table("threads", ("", *COLUMNS, *_switch_columns(found)), rows(run)))
    blocks += [advice_block(run, name, finding) for name, finding in thread_findings(run)]
    for side, curve in run.thread_curves:
        blocks += _operators(run, side, curve)
    return Section("threads", "Threads", blocks)


def rows(run: RunView) -> list[Row]:
    """Return one row for every number of threads of every side."""
    found = run.threads_compared
    if found is None:
        return []
    switches = {switch.after: switch for switch in found.switches}
    columns = _switch_columns(found)
    return [
        (side, *cells(point), *([_switch(switches.get(point.experiment))] if columns else []))
        for side, curve in run.thread_curves
        for point in curve.points
    ]


def cells(point: ThreadPoint) -> Row:
    """Return a number of threads as COLUMNS have it."""
    verdict = "~" if point.verdict == "no difference seen" else numbers.ratio(point.speedup)
    return (
        Number(str(point.threads), point.threads),
        Number(numbers.ms(point.median_ms), point.median_ms),
        Number("-" if point.high is None else verdict, point.speedup),
        "-" if point.verdict == FEWEST else numbers.interval(point.low, point.high),
        Number(f"{point.efficiency:.0%}", point.efficiency),
    )


def _switch_columns(found: Scaling) -> tuple[str, ...]:
    return ("on against off",) if found.switches else ()


def _switch(switch: ThreadSwitch | None) -> Number:
    if switch is None or switch.high is None:
        return Number("-", None)
    return Number(numbers.bounded_speedup(switch.ratio, switch.low, switch.high), switch.ratio)


def sentences(run: RunView) -> list[str]:
    """Return which number of threads is best for each side, and what SME units there are, where SME was switched."""
    found = run.threads_compared
    if found is None:
        return []
    said = [f"{side}: {_best(curve)}" for side, curve in run.thread_curves]
    known = units_words(found.sme_units)
    switched = {feature for curve in found.curves for feature in curve.disabled}
    return [*said, f"this machine has {known}"] if known and any(f.startswith("sme") for f in switched) else said


def _best(curve: ThreadCurve) -> str:
    best, fewest = curve.best_point, curve.points[0]
    if best is None:
        return f"the best number of threads is not known: {curve.unknown}"
    busy = "" if all(point.reliable for point in curve.points) else f"; {BUSY}"
    equal = " and ".join(map(str, curve.equal))
    if best is fewest:
        if not equal:
            return f"{counted(best.threads, 'thread')} is best, more are slower{busy}"
        return f"no difference seen between {best.threads} and {equal} threads; {best.threads} is enough{busy}"
    bounds = f"95 % interval {best.low:.2f} to {best.high:.2f}" if best.low and best.high else "no interval"
    gain = f"{best.speedup:.2f}x faster than {fewest.threads} ({bounds}), parallel efficiency {best.efficiency:.0%}"
    same = f"; no difference seen to {equal}" if equal else ""
    return f"{best.threads} threads are best, {gain}{same}{busy}"


def thread_findings(run: RunView) -> list[tuple[str, Finding]]:
    """Return what is wrong with the numbers of threads after the first, by experiment."""
    others = run.of_other_threads
    return [
        (name, finding)
        for name, experiment in run.summary.experiments.items()
        if name in others
        for finding in experiment.advice
        if finding.rule in _WRONG
    ]


def unscaled_operators(run: RunView, curve: ThreadCurve) -> list[OperatorThreads]:
    """Return the operators of a curve that more threads do not make faster, those that lose most first."""
    found = _traced(run, curve)
    return found.unscaled if found is not None else []


def _traced(run: RunView, curve: ThreadCurve) -> CurveOperators | None:
    name = curve.points[0].experiment
    return next((entry for entry in run.summary.operator_scaling if name in entry.experiments), None)


def _operators(run: RunView, side: str, curve: ThreadCurve) -> list[Block]:
    """Return the operators that lose most time because they do not become as many times faster as there are threads."""
    traced = _traced(run, curve)
    if traced is None or not traced.operators:
        return []
    ends = f"{counted(traced.many, 'thread')} against {traced.threads[0]}"
    text = f"Operators of {side}, {ends}, traced; lost is the time beyond perfect scaling:"
    columns = ("operator", *(counted(count, "thread") for count in traced.threads))
    table = Table(
        "thread_operators",
        (*columns, "times faster", "95 % interval", "lost", "with more threads"),
        [_operator(entry) for entry in traced.operators[:_MOST_ROWS]],
        short=_SHOWN,
    )
    return [Paragraph(text), table]


def _operator(entry: OperatorThreads) -> Row:
    times = [Number("-" if ms is None else numbers.ms(ms), ms) for ms in entry.ms]
    return (
        Name(located_name(counted_name(entry.instances, entry.operator), entry.where)),
        *times,
        Number(numbers.speedup(entry.speedup, entry.low, entry.high), entry.speedup),
        numbers.interval(entry.low, entry.high),
        Number(numbers.ms(entry.lost_ms), entry.lost_ms),
        entry.scales,
    )
