"""Which operators more threads make faster and which they do not, from executions with a tracer."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from model_profiling.analysis.compare.comparison import TOUCHED, OperatorGroup, compare_profiles, operator_groups
from model_profiling.analysis.compare.program_changes import ProfiledProgram
from model_profiling.analysis.process.scaling import Scaling, ThreadCurve, ThreadPoint, ThreadSwitch
from model_profiling.analysis.timing.profile import Part, Where
from model_profiling.store.run_directory import Manifest

Scales = Literal["faster", "no faster", "slower", "not known"]


class OperatorThreads(msgspec.Struct, frozen=True):
    """One operator, all its places in the graph together. `ms` is its time with each number of threads, in order.

    `speedup`, bounded by `low` and `high`, is that of many threads against the fewest, and `lost_ms` is how much longer
    it takes with many than if it had become as many times faster as there are more threads.
    """

    operator: str
    category: Part
    where: Where
    instances: int
    ms: list[float | None]
    speedup: float | None
    low: float | None
    high: float | None
    lost_ms: float
    scales: Scales


class CurveOperators(msgspec.Struct, frozen=True):
    """The operators of experiments that differ only in their threads, those first that lose most time.

    `many` are the threads that are compared with the fewest: the most of those for which there are CPUs.
    """

    threads: list[int]
    experiments: list[str]
    many: int
    operators: list[OperatorThreads]

    @property
    def unscaled(self) -> list[OperatorThreads]:
        """Those that more threads do not make faster; what ExecuTorch does between operators has one thread anyway."""
        return [o for o in self.operators if o.where != "runtime" and o.scales in ("no faster", "slower")]


def operator_scaling(
    curve: ThreadCurve, cpus: int | None, manifest: Manifest, sides: Mapping[str, ProfiledProgram]
) -> CurveOperators | None:
    """Compare operators between the fewest threads and many; None if one of them has no traced executions."""
    names = [point.experiment for point in curve.points]
    if not all(name in sides for name in names):
        return None
    threads = [point.threads for point in curve.points]
    # Threads that wait for each other's CPU say nothing of operators; where there are no others, they have to do.
    many = max((count for count in threads[1:] if cpus is None or count <= cpus), default=threads[1])
    at = names[threads.index(many)]
    fewest, most = sides[names[0]], sides[at]
    paired = manifest.experiments[names[0]].session == manifest.experiments[at].session
    compared = compare_profiles(fewest, most, paired)
    times = [{(o.operator, o.where): o.ms for o in sides[name].breakdown.operators} for name in names]
    found = [
        _operator(group, [by_name.get((group.name, group.where)) for by_name in times], many / threads[0])
        for group in operator_groups(compared, fewest.profile, most.profile)
    ]
    return CurveOperators(threads, names, many, sorted(found, key=lambda entry: -entry.lost_ms))


def _operator(group: OperatorGroup, ms: list[float | None], times_more: float) -> OperatorThreads:
    change = group.change
    lost = max(0.0, change.after_ms - change.before_ms / times_more)
    bounds = change.ratio, change.low, change.high
    size = len(group.members)
    return OperatorThreads(
        group.name, group.category, group.where, size, ms, *bounds, lost, _scales(change.low, change.high)
    )


def _scales(low: float | None, high: float | None) -> Scales:
    if low is None or high is None:
        return "not known"
    if high < 1 / TOUCHED:
        return "slower"
    return "no faster" if high < TOUCHED else "faster" if low > 1 else "not known"


class ThreadEvidence(msgspec.Struct, frozen=True):
    """An experiment among those that differ from it only in their threads. `switched` are the features that it has and
    the one it is compared with has not, and `spoken` is what people call them."""

    point: ThreadPoint
    curve: ThreadCurve
    scaling: Scaling
    operators: CurveOperators | None
    switched: list[str]
    spoken: str

    @property
    def switches(self) -> list[ThreadSwitch]:
        """Its comparison, and those of the others of its curve, fewest threads first."""
        mine = {point.experiment for point in self.curve.points}
        return sorted((s for s in self.scaling.switches if s.after in mine), key=lambda switch: switch.threads)
