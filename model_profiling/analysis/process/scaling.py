"""What more threads bring: latency and speedup by number of threads, on and off, and the number that is best."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from model_profiling.analysis.timing.latency import Comparison, Verdict, compare
from model_profiling.base.records import by_key, record_of
from model_profiling.store.run_directory import ExperimentRecord, Manifest, Turn, without_threads

# What a config says of an experiment that may differ between numbers of threads: what they are measured with.
_OWN = ("name", "num_threads", "startup_launches", "num_runs", "traced_runs", "launches")
FEWEST: Literal["fewest threads"] = "fewest threads"
PointVerdict = Literal[Verdict, "fewest threads"]
_TOO_FEW = "too few turns to tell"


class ThreadPoint(msgspec.Struct, frozen=True):
    """One number of threads. `speedup` is how many times faster it is than the fewest threads, and `low` and `high`
    bound it (None: too few turns); `efficiency` is the speedup for each of the threads that were added."""

    experiment: str
    threads: int
    median_ms: float
    speedup: float
    low: float | None
    high: float | None
    # The fewest are compared with nothing.
    verdict: PointVerdict
    efficiency: float
    # Whether the verdict may be acted on: enough turns, and no other work that kept taking the processor away.
    reliable: bool


class ThreadCurve(msgspec.Struct, frozen=True):
    """Experiments that differ only in their threads, fewest first. `disabled` are the features they ran without.

    `best` is the fewest threads that no other number is faster than; None if that cannot be told, and `unknown` says
    why. `equal` are the other numbers that could not be told from it.
    """

    disabled: list[str]
    points: list[ThreadPoint]
    best: int | None
    equal: list[int] = []
    unknown: str = ""

    @property
    def best_point(self) -> ThreadPoint | None:
        return next((point for point in self.points if point.threads == self.best), None)


class ThreadSwitch(msgspec.Struct, frozen=True):
    """Two compared experiments with one number of threads: how many times faster `after` is than `before`."""

    threads: int
    before: str
    after: str
    ratio: float
    low: float
    high: float | None
    verdict: Verdict
    reliable: bool


class Scaling(msgspec.Struct, frozen=True):
    """All numbers of threads of a run. `cpus` is how many CPUs its processes were allowed to run on, and `sme_units` by
    how many CPUs each SME unit is shared; None and empty are not known. There may be more units if `sme_units_least`.
    """

    curves: list[ThreadCurve]
    switches: list[ThreadSwitch]
    cpus: int | None = None
    sme_units: list[int] = []
    sme_units_least: bool = False

    def curve_of(self, experiment: str) -> ThreadCurve | None:
        return next((c for c in self.curves if any(p.experiment == experiment for p in c.points)), None)


def scaling(
    manifest: Manifest, turns: Mapping[str, Sequence[Turn]], comparisons: Sequence[Comparison]
) -> Scaling | None:
    """Compare each number of threads with the fewest; None if no experiments differ only in their threads.

    `turns` are those that may be called latency, and `comparisons` the pairs of experiments that were compared.
    """
    found = [members for members in _alike(manifest, turns) if len(members) > 1]
    if not found or manifest.timing != "measured":
        return None
    curves = [_curve(members, turns) for members in found]
    swept = {record.name for members in found for record in members}
    switches = [
        record_of(ThreadSwitch, c, threads=manifest.experiments[c.after].threads)
        for c in comparisons
        if {c.before, c.after} <= swept
        and manifest.experiments[c.after].threads == manifest.experiments[c.before].threads
    ]
    known = [cpus for members in found for record in members if (cpus := allowed_cpus(manifest, record)) is not None]
    units = manifest.environment.get("sme_units")
    least = isinstance(units, dict) and units.get("at_least") is True
    return Scaling(curves, switches, min(known, default=None), sme_units(manifest), least)


def _alike(manifest: Manifest, turns: Mapping[str, Sequence[Turn]]) -> list[list[ExperimentRecord]]:
    """Return experiments with latency that differ only in their threads, fewest first.

    Where several of them have one number of threads, names tell which belong together; if they do not, nothing does.
    """
    asked = manifest.config.get("experiments")
    told = {e.get("name"): e for e in asked if isinstance(e, dict)} if isinstance(asked, list) else {}
    found: dict[object, list[ExperimentRecord]] = {}
    for name in turns:
        record = manifest.experiments[name]
        if turns[name] and record.mode != "trace":
            own = {key: value for key, value in told.get(name, {}).items() if key not in _OWN}
            facts = (record.disable_features, record.runner.sha256, record.workspace, record.weight_cache)
            found.setdefault(msgspec.json.encode((own, *facts), order="sorted"), []).append(record)
    parts: list[list[ExperimentRecord]] = []
    for members in found.values():
        if _distinct(members):
            parts.append(members)
            continue
        by_name = by_key((without_threads(record.name, record.threads)[0], record) for record in members)
        parts += [some for some in by_name.values() if _distinct(some)]
    return [sorted(members, key=lambda record: record.threads) for members in parts]


def _distinct(members: Sequence[ExperimentRecord]) -> bool:
    return len({record.threads for record in members}) == len(members)


def _curve(members: Sequence[ExperimentRecord], turns: Mapping[str, Sequence[Turn]]) -> ThreadCurve:
    def against(first: ExperimentRecord, second: ExperimentRecord) -> Comparison:
        sides = [(record.name, list(turns[record.name])) for record in (first, second)]
        return compare(sides[0], sides[1], paired=first.session == second.session)

    fewest = members[0]
    compared = [against(fewest, record) for record in members[1:]]
    ms = [float(np.median([ns for turn in turns[record.name] for ns in turn.ns])) / 1e6 for record in members]
    points = [ThreadPoint(fewest.name, fewest.threads, ms[0], 1.0, 1.0, 1.0, FEWEST, 1.0, True)]
    for record, median, found in zip(members[1:], ms[1:], compared, strict=True):
        own = {"experiment": record.name, "threads": record.threads, "median_ms": median, "speedup": found.ratio}
        low, efficiency = found.low if found.high is not None else None, found.ratio * fewest.threads / record.threads
        points.append(record_of(ThreadPoint, found, low=low, efficiency=efficiency, **own))
    disabled = fewest.features.disabled if fewest.features else fewest.disable_features
    if any(found.high is None for found in compared):
        return ThreadCurve(disabled, points, None, unknown=_TOO_FEW)
    fastest = members[min(range(len(members)), key=lambda place: points[place].median_ms)]
    best = next(r for r in members if r is fastest or against(r, fastest).verdict != "faster")
    others = [record for record in members if record is not best]
    equal = [record.threads for record in others if against(best, record).verdict == "no difference seen"]
    return ThreadCurve(disabled, points, best.threads, equal)


def allowed_cpus(manifest: Manifest, record: ExperimentRecord) -> int | None:
    """Return how many CPUs a process was allowed to run on, as it said itself, else those that the machine has."""
    cores = manifest.environment.get("cores")
    return record.cpus or (cores if isinstance(cores, int) and cores > 0 else None)


def too_many_threads(manifest: Manifest, record: ExperimentRecord) -> str:
    """Say so where threads have to wait for each other: there are more of them than CPUs they may run on."""
    cpus = allowed_cpus(manifest, record)
    if cpus is None or record.threads <= cpus or manifest.timing != "measured":
        return ""
    return f"{record.threads} threads on {cpus} CPUs: threads wait for each other, and latency shows that, too"


def sme_units(manifest: Manifest) -> list[int]:
    """Return by how many CPUs each SME unit of the machine is shared; empty if it does not say."""
    units = manifest.environment.get("sme_units")
    shared = units.get("shared_by") if isinstance(units, dict) else None
    return [n for n in shared if isinstance(n, int) and n > 0] if isinstance(shared, list) else []
