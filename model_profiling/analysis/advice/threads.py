"""Rules about the number of threads, where a run measured several: which is best, and what sharing SME units costs.

These gains are as measured: latency with another number of threads, in the same run.
"""

from collections.abc import Iterator, Sequence

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.compare.operator_scaling import CurveOperators, ThreadEvidence
from model_profiling.base.units import counted, shown_ms

_MOST_LINES = 3
_SME = "sme"


def thread_count(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where another number of threads is faster than the one that was used."""
    threads = evidence.threads
    best = threads.curve.best_point if threads is not None else None
    if threads is None or best is None or best.threads == threads.point.threads:
        return
    used = threads.point
    gain = used.median_ms / best.median_ms
    if gain <= 1 or used.threads in threads.curve.equal or not all(point.reliable for point in (used, best)):
        return
    faster = f"{_threads(best.threads)}: {gain:.2f}x faster than {_threads(used.threads)}"
    lines = [
        f"{_threads(point.threads)}: {shown_ms(point.median_ms)}, parallel efficiency {point.efficiency:.0%}"
        for point in threads.curve.points
    ]
    remarks = [*lines, *_unscaled(threads.operators)]
    if best.threads < used.threads:
        title = f"more threads are slower; use {faster}"
        cpus = threads.scaling.cpus
        remarks += [f"there are {counted(cpus, 'CPU')}"] if cpus is not None and used.threads > cpus else []
        remarks += _shared(threads)
        step = f"Load the model with {_threads(best.threads)}; other work can have the rest of the CPUs."
        yield _finding(evidence, FindingKind.MORE_THREADS_SLOWER, title, gain, remarks, step)
    else:
        step = f"Load the model with {_threads(best.threads)}, if so many CPUs are free where it runs."
        yield _finding(evidence, FindingKind.THREAD_COUNT, f"use {faster}", gain, remarks, step)


def slower_with_threads(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a feature makes few threads faster and many slower: SME units are shared by CPUs."""
    threads = evidence.threads
    if threads is None:
        return
    here = next((s for s in threads.switches if s.after == threads.point.experiment), None)
    if here is None or here.verdict != "slower" or not here.reliable:
        return
    fewer = [s for s in threads.switches if s.threads < here.threads and s.verdict == "faster" and s.reliable]
    if not fewer:
        return
    name = threads.spoken or here.after
    at = f"{fewer[0].ratio:.2f}x faster with {_threads(fewer[0].threads)}"
    title = f"{name} is {1 / here.ratio:.2f}x slower with {_threads(here.threads)}, and {at}"
    lines = [f"{_threads(s.threads)}: {name} on is {s.ratio:.2f} times as fast as off" for s in threads.switches]
    best = threads.curve.best
    use = _threads(best) if best is not None and best < here.threads else _threads(fewer[-1].threads)
    step = f"Use {use} with {name} on, or switch it off for {_threads(here.threads)}."
    yield _finding(evidence, FindingKind.SLOWER_WITH_THREADS, title, 1 / here.ratio, [*lines, *_shared(threads)], step)


def units_words(units: Sequence[int], least: bool = False) -> str:
    """Return `at least 2 SME units, shared by 4 and 2 CPUs`; empty if they are not known."""
    if not units:
        return ""
    if all(cpus == 1 for cpus in units):
        return f"{counted(len(units), 'SME unit')}, each of one CPU"
    count = f"{'at least ' if least else ''}{counted(len(units), 'SME unit')}"
    return f"{count}, shared by {' and '.join(map(str, units))} CPUs"


def _shared(threads: ThreadEvidence) -> list[str]:
    """Return what is known of SME units, where SME is in use."""
    if not any(feature.startswith(_SME) for feature in threads.switched):
        return []
    known = units_words(threads.scaling.sme_units, threads.scaling.sme_units_least)
    return [f"this machine has {known}" if known else "SME units are shared by the CPUs of a cluster"]


def _unscaled(operators: CurveOperators | None) -> list[str]:
    """Return the costliest operators that more threads do not make faster."""
    if operators is None:
        return []
    many = operators.threads.index(operators.many)
    return [
        f"{o.operator} is {o.scales} with {_threads(operators.many)}: {shown_ms(o.ms[many] or 0.0)} instead of "
        f"{shown_ms(o.ms[0] or 0.0)}"
        for o in operators.unscaled[:_MOST_LINES]
    ]


def _threads(count: int) -> str:
    return counted(count, "thread")


def _finding(
    evidence: Evidence, rule: FindingKind, title: str, gain: float, remarks: list[str], next_step: str
) -> Finding:
    """Return a finding about the whole: no operator of its own, so that others may claim all of them."""
    whole = evidence.breakdown.execute_ms
    return Finding(rule, title, remarks, whole, 1.0, gain, next_step, "measurement", whole * (1 - 1 / gain))
