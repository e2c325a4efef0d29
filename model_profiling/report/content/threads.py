"""What more threads bring: latency and speedup by number of threads, which number is best, what does not scale."""

from model_profiling.analysis.advice.finding import Finding, FindingKind
from model_profiling.analysis.advice.threads import units_words
from model_profiling.analysis.compare.operator_scaling import OperatorThreads
from model_profiling.analysis.process.scaling import FEWEST, ThreadCurve, ThreadPoint, ThreadSwitch
from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Name, Number, Paragraph, Picture, Row, Section, Table
from model_profiling.report.content.dumps import advice_blocks
from model_profiling.report.words import BUSY, operator_name

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
    said, switches = sentences(run), {switch.after: switch for switch in found.switches}
    rows: list[Row] = [
        (side, *cells(point), *([_switch(switches.get(point.experiment))] if switches else []))
        for side, curve in run.thread_curves
        for point in curve.points
    ]
    columns = ("", *COLUMNS, *(("on against off",) if switches else ()))
    blocks: list[Block] = [Bullets([f"{sentence}." for sentence in said]), Picture("threads", _CAPTION)]
    blocks.append(Table("threads", columns, rows))
    blocks += advice_blocks(found for _, found in thread_findings(run))
    blocks += [block for side, curve in run.thread_curves for block in _operators(run, side, curve)]
    return Section("threads", "Threads", blocks, True, "; ".join(said[:2]))


def cells(point: ThreadPoint) -> Row:
    """Return a number of threads as COLUMNS have it."""
    verdict = "~" if point.verdict == "no difference seen" else numbers.ratio(point.speedup)
    return (
        numbers.count_cell(point.threads),
        numbers.ms_cell(point.median_ms),
        Number("-" if point.high is None else verdict, point.speedup),
        "-" if point.verdict == FEWEST else numbers.interval(point.low, point.high),
        Number(f"{point.efficiency:.0%}", point.efficiency),
    )


def _switch(switch: ThreadSwitch | None) -> Number:
    return numbers.UNKNOWN if switch is None or switch.high is None else numbers.speedup_cell(switch)


def sentences(run: RunView) -> list[str]:
    """Return which number of threads is best for each side, and what SME units there are, where SME was switched."""
    found = run.threads_compared
    if found is None:
        return []
    said = [f"{side}: {_best(curve)}" for side, curve in run.thread_curves]
    known = units_words(found.sme_units, found.sme_units_least)
    switched = any(feature.startswith("sme") for curve in found.curves for feature in curve.disabled)
    return [*said, f"this machine has {known}"] if known and switched else said


def _best(curve: ThreadCurve) -> str:
    best, fewest = curve.best_point, curve.points[0]
    if best is None:
        return f"the best number of threads is not known: {curve.unknown}"
    busy = "" if all(point.reliable for point in curve.points) else f"; {BUSY}"
    equal = " and ".join(map(str, curve.equal))
    if best is fewest:
        alone = f"{counted(best.threads, 'thread')} is best, more are slower"
        enough = f"no difference seen between {best.threads} and {equal} threads; {best.threads} is enough"
        return f"{enough if equal else alone}{busy}"
    bounds = f"95 % interval {best.low:.2f} to {best.high:.2f}" if best.low and best.high else "no interval"
    gain = f"{best.speedup:.2f}x faster than {fewest.threads} ({bounds}), parallel efficiency {best.efficiency:.0%}"
    same = f"; no difference seen to {equal}" if equal else ""
    return f"{best.threads} threads are best, {gain}{same}{busy}"


def thread_findings(run: RunView) -> list[tuple[str, Finding]]:
    """Return what is wrong with the numbers of threads after the first, by experiment."""
    others = [item for item in run.summary.experiments.items() if item[0] in run.of_other_threads]
    return [(name, found) for name, each in others for found in each.advice if found.rule in _WRONG]


def _operators(run: RunView, side: str, curve: ThreadCurve) -> list[Block]:
    """Return the operators that lose most time because they do not become as many times faster as there are threads."""
    name = curve.points[0].experiment
    traced = next((entry for entry in run.summary.operator_scaling if name in entry.experiments), None)
    if traced is None or not traced.operators:
        return []
    ends = f"{counted(traced.many, 'thread')} against {traced.threads[0]}"
    text = f"Operators of {side}, {ends}, traced; lost is the time beyond perfect scaling:"
    rest = ("times faster", "95 % interval", "lost", "with more threads")
    columns = ("operator", *(counted(count, "thread") for count in traced.threads), *rest)
    rows = [_operator(entry) for entry in traced.operators[:_MOST_ROWS]]
    return [Paragraph(text), Table("thread_operators", columns, rows, short=_SHOWN)]


def _operator(entry: OperatorThreads) -> Row:
    name = Name(operator_name(entry.operator, entry.where, entry.instances))
    faster = Number(numbers.speedup(entry.speedup, entry.low, entry.high), entry.speedup)
    told = (faster, numbers.interval(entry.low, entry.high), numbers.ms_cell(entry.lost_ms), entry.scales)
    return (name, *map(numbers.ms_cell, entry.ms), *told)
