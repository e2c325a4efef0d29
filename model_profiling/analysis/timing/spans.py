"""One execution as nested spans: the method, its delegate and operator calls, and the operators inside them."""

from dataclasses import dataclass

import numpy as np

from model_profiling.analysis.timing.profile import AT_ONCE, Profile, lower_median
from model_profiling.base.records import sum_by_key


@dataclass(frozen=True)
class Span:
    """`depth` 0 is the method, 1 a call, 2 an operator. `row` is the operator's place in the breakdown's instances."""

    name: str
    category: str
    kind: str
    where: str
    dtype: str
    algorithm: str
    start_us: float
    duration_us: float
    depth: int
    row: int


def typical_execution(profile: Profile) -> int:
    """Return the execution whose operators are nearest to their medians: the smallest sum of absolute differences.

    One whose total is typical may have one operator interrupted and another one faster than ever.
    """
    away = np.zeros(profile.executions)
    step = max(1, AT_ONCE // max(1, profile.executions))
    for start in range(0, len(profile.times), step):
        rows = profile.times[start : start + step]
        away += np.abs(rows - lower_median(rows)).sum(axis=0)
    return int(np.argmin(away))


@dataclass(frozen=True)
class Timeline:
    """One execution of an experiment, spans in order; `execution` is its number in the dump."""

    execution: int
    spans: list[Span]


def typical_timeline(profile: Profile) -> Timeline:
    execution = typical_execution(profile)
    return Timeline(execution, spans(profile, execution))


def spans(profile: Profile, execution: int) -> list[Span]:
    """Return all spans of one execution by start, parents first.

    A runtime row of the profile is a parent's own time; the parent itself lasts that long and as long as its children.
    """
    times = (profile.times[:, execution] / 1e3).tolist()
    starts = (profile.starts[:, execution] / 1e3).tolist()
    own = [(i, time) for i, time in zip(profile.instances, times, strict=True) if i.where != "runtime"]
    inside = sum_by_key(((i.chain, i.instruction), time) for i, time in own)
    called = {(i.chain, i.instruction) for i in profile.instances if i.where == "runtime" and i.name != "method"}
    found = []
    for row, instance in enumerate(profile.instances):
        place = (instance.chain, instance.instruction)
        duration, depth = times[row], 2 if place in called else 1
        if instance.name == "method" and instance.where == "runtime":
            duration, depth = float(profile.execute[execution]) / 1e3, 0
        elif instance.where == "runtime":
            duration, depth = duration + inside.get(place, 0.0), 1
        kind = instance.kind_of
        labels = (instance.category, kind.kind, instance.where, kind.dtype, kind.algorithm)
        found.append(Span(instance.name, *labels, starts[row], duration, depth, row))
    return sorted(found, key=lambda span: (span.start_us, span.depth))
