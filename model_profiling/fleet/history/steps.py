"""Steps of a series, and what is known of each: a regression is what comparing the programs side by side confirms."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.fleet.history.history_records import Point
from model_profiling.fleet.history.trends import KeptPrograms, ProgramComparison, Series, Step, StepState
from model_profiling.store.artifacts import MANIFEST

# Steps in a noisy series, by ranks: no assumption on how values are distributed, and outliers count once.
#
# Of every way to split a series in two, the one whose sides differ most in rank is held against the same of shuffled
# series. What is found is a candidate; whether the program became slower, only measuring it side by side tells.
Floats = npt.NDArray[np.float64]
# A series without a step is taken for one with a step with at most this probability.
_ALPHA = 0.003
_SHUFFLES = 1999
# Of longer series the last so many are looked at.
_MOST = 1000
# Shuffled series of up to so many values are of the very length, longer ones of the next of a few lengths.
_EXACT = 40
# A step has so many runs on both sides: fewer cannot be told from chance.
_LEAST_SIDE = 5
# Values in one block of shuffles: memory stays small for long series.
_BLOCK = 1 << 21
_SEED = 22
# So many runs on both sides of a place tell a step from a drift, and by how much the step has to fit better: twice the
# logarithm of the ratio of likelihoods.
_WINDOW = 15
# In median absolute deviations; of a normal distribution one value in 150 is beyond.
_OUTLIER = 4.0
_CLEARLY = 6.0
# A step is found to within so many points.
_NEAR = 2
# What changes all the time, or follows from something else that is named.
_RESTLESS = ("load_1m_5m_15m", "battery", "temperature_celsius", "thermal_status", "features_proof")


@dataclass(frozen=True)
class ChangePoint:
    """`index` is the first value after the step. `percent` is how much larger the median is after it."""

    index: int
    percent: float
    before: float
    after: float
    p_value: float


def change_points(values: list[float]) -> list[ChangePoint]:
    """Return all steps of a series, in order."""
    left_out = max(0, len(values) - _MOST)
    series = np.asarray(values[left_out:], dtype=np.float64)
    seen = _splits(series, 1.0)
    if not seen:
        return []
    # Neighbours that resemble each other look like steps; how much they do is seen once steps are taken out.
    inflation = _inflation(series, seen)
    edges = _splits(series, inflation)
    found = []
    for start, index, end in zip([0, *edges], edges, [*edges[1:], len(series)], strict=False):
        place, p_value = _split(series[start:end], inflation) or (0, 1.0)
        before, after = np.median(series[start:index]), np.median(series[index:end])
        if place and before > 0:  # still a step, now that its neighbours are known
            percent = float(after / before - 1) * 100
            found.append(ChangePoint(left_out + start + place, percent, float(before), float(after), p_value))
    return found


def _splits(series: Floats, inflation: float) -> list[int]:
    waiting, found = [(0, len(series))], []
    while waiting:
        first, last = waiting.pop()
        if (split := _split(series[first:last], inflation)) is not None:
            place = first + split[0]
            found.append(place)
            waiting += [(first, place), (place, last)]
    return sorted(found)


def _split(part: Floats, inflation: float) -> tuple[int, float] | None:
    """Return the best place to split, and how likely a series without a step has one as good; None if it is."""
    n = len(part)
    if n < 2 * _LEAST_SIDE:
        return None
    ranks = _ranks(part)
    statistics = np.abs(_standardised(ranks[None, :])[0])
    best = int(np.argmax(statistics))
    place = _refined(part, best + _LEAST_SIDE)
    reached = float(statistics[best]) / inflation
    null = _null(n) if len(np.unique(ranks)) > n // 2 else _shuffled(ranks)
    p_value = float(1 + np.count_nonzero(null >= reached)) / (len(null) + 1)
    return (place, p_value) if p_value <= _ALPHA and _is_step(part, place) else None


def _refined(part: Floats, place: int) -> int:
    """Return the place near `place` where the two sides, each around its median, fit the values best."""
    near = range(max(_LEAST_SIDE, place - 3), min(len(part) - _LEAST_SIDE, place + 3) + 1)

    def misfit(at: int) -> float:
        return sum(float(np.abs(side - np.median(side)).sum()) for side in (part[:at], part[at:]))

    return min(near, key=misfit)


def _ranks(part: Floats) -> Floats:
    values, places, counts = np.unique(part, return_inverse=True, return_counts=True)
    del values
    last = np.cumsum(counts)
    return ((2 * last - counts + 1) / 2)[places].astype(np.float64)


def _standardised(ranks: Floats) -> Floats:
    """Return for each row and each place to split it: how far the ranks before it are from what chance gives them.

    Divided by what that has as its standard deviation if the order is a matter of chance (Mann-Whitney).
    """
    n = ranks.shape[1]
    sizes = np.arange(_LEAST_SIDE, n - _LEAST_SIDE + 1, dtype=np.float64)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred, axis=1)[:, _LEAST_SIDE - 1 : n - _LEAST_SIDE]
    variance = centred[:1].var() * n / (n - 1)
    if variance == 0:
        return np.zeros_like(sums)  # all values are equal
    deviations = np.sqrt(variance * sizes * (n - sizes) / n)
    return np.asarray(sums / deviations, dtype=np.float64)


def _shuffled(ranks: Floats) -> Floats:
    n = len(ranks)
    rng = np.random.default_rng(_SEED)
    rows = max(1, _BLOCK // n)
    found = []
    for start in range(0, _SHUFFLES, rows):
        block = np.tile(ranks, (min(rows, _SHUFFLES - start), 1))
        found.append(np.abs(_standardised(rng.permuted(block, axis=1))).max(axis=1))
    return np.concatenate(found)


def _null(n: int) -> Floats:
    """Return the same for series of `n` values that differ: it depends on nothing else, and grows a little with `n`."""
    length = n if n <= _EXACT else math.ceil(_EXACT * 1.1 ** math.ceil(math.log(n / _EXACT, 1.1)))
    return _null_of(length)


@functools.lru_cache(maxsize=128)
def _null_of(length: int) -> Floats:
    return _shuffled(np.arange(1, length + 1, dtype=np.float64))


def _inflation(series: Floats, edges: list[int]) -> float:
    """Return by how much neighbours that resemble each other (drift, a machine that is busy for hours) inflate the
    statistic: as in an AR(1) series with the correlation that is left once steps are taken out."""
    parts = [series[start:end] for start, end in zip([0, *edges], [*edges, len(series)], strict=True)]
    rest = _ranks(np.concatenate([part - np.median(part) for part in parts if len(part)] or [series]))
    rest -= rest.mean()
    total = float(rest @ rest)
    # What a median takes out of each part makes its rest look less alike than it is; and a correlation is taken for
    # one where it is above its standard error, or few runs would hide every step.
    expected = len(parts) / len(rest) - 1 / math.sqrt(len(rest))
    correlation = float(rest[:-1] @ rest[1:]) / total + expected if total else 0.0
    correlation = min(max(correlation, 0.0), 0.95)
    return float(np.sqrt((1 + correlation) / (1 - correlation)))


def _is_step(part: Floats, place: int) -> bool:
    """Return whether the values around a place are those of a step, not of a drift, which a line follows better."""
    sides = [_cut(side) for side in (part[max(0, place - _WINDOW) : place], part[place : place + _WINDOW])]
    step = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    window = np.concatenate(sides)
    times = np.arange(len(window)) - (len(window) - 1) / 2
    centred = window - window.mean()
    line = float(centred @ centred) - float(times @ centred) ** 2 / float(times @ times)
    return line > 0 and (step <= 0 or len(window) * math.log(line / step) > _CLEARLY)


def _cut(side: Floats) -> Floats:
    middle = np.median(side)
    reach = _OUTLIER * float(np.median(np.abs(side - middle)))
    return np.clip(side, middle - reach, middle + reach)


class _Manifest(msgspec.Struct, frozen=True):
    environment: dict[str, Any] = {}
    kit_version: str = ""
    labels: dict[str, str] = {}


def with_steps(series: Series, kept: KeptPrograms) -> Series:
    found = change_points([point.median_ms for point in series.points])
    return msgspec.structs.replace(series, steps=[_step(series, change, kept) for change in found])


def _step(series: Series, change: ChangePoint, kept: KeptPrograms) -> Step:
    last, first = _sides(series.points, change.index)
    before, after = series.points[last], series.points[first]
    comparison = kept.comparison(series, before.sha256, after.sha256)
    state = _state(before, after, comparison, change.percent, kept)
    versions = (before.executorch, after.executorch) if before.executorch and after.executorch else None
    since = f" since ExecuTorch {versions[1]}" if versions is not None and versions[0] != versions[1] else ""
    differences = _differences(before, after, versions) if state in ("same program", "refuted") else []
    size = (change.percent, change.before, change.after, change.p_value)
    sides = (before.sha256, after.sha256, before.path, after.path)
    commits = (before.revision.commit, after.revision.commit)
    said = _sentence(change, state, comparison, differences, since)
    when = series.points[change.index].created
    return Step(change.index, when, *size, state, *sides, commits, said, differences, comparison, versions)


def _sides(points: Sequence[Point], index: int) -> tuple[int, int]:
    """Return the points on both sides of a step: where the program changed, or else the ExecuTorch that ran it, if one
    did so at the step or next to it."""
    near = sorted(range(max(1, index - _NEAR), min(len(points) - 1, index + _NEAR) + 1), key=lambda i: abs(i - index))
    programs = [i for i in near if points[i - 1].sha256 != points[i].sha256]
    versions = [i for i in near if i in version_changes(points)]
    changed = next(iter([*programs, *versions]), index)
    return changed - 1, changed


def version_changes(points: Sequence[Point]) -> dict[int, str]:
    """Return the points that ran with another ExecuTorch than the one before, where both are known, in words."""
    return {
        place: f"ExecuTorch {after.executorch} from here on, {before.executorch} before"
        for place, (before, after) in enumerate(itertools.pairwise(points), 1)
        if before.executorch and after.executorch and before.executorch != after.executorch
    }


def _state(
    before: Point, after: Point, comparison: ProgramComparison | None, percent: float, kept: KeptPrograms
) -> StepState:
    if before.sha256 == after.sha256:
        return "same program"
    if comparison is not None and comparison.latency.reliable:
        return "confirmed" if (comparison.slower if percent > 0 else comparison.faster) else "refuted"
    if not (kept.is_kept(before.sha256) and kept.is_kept(after.sha256)):
        return "program not kept"
    return "candidate"


def _sentence(
    change: ChangePoint, state: StepState, comparison: ProgramComparison | None, differences: Sequence[str], since: str
) -> str:
    what = f"{abs(change.percent):.1f} % {'slower' if change.percent > 0 else 'faster'}{since}"
    kind = "regression" if change.percent > 0 else "improvement"
    match state:
        case "confirmed":
            assert comparison is not None
            return f"{kind}: {what}; side by side the programs differ by {comparison.percent:+.1f} %"
        case "refuted":
            also = f"; between the runs, {'; '.join(differences)}" if differences else ""
            return f"{what}, but not the program: side by side the two programs show no such difference{also}"
        case "same program":
            why = f": {'; '.join(differences)}" if differences else ", and nothing that was recorded changed"
            cause = "ExecuTorch or the machine" if since else "the machine or its environment"
            return f"{what} with the same program: {cause} changed{why}"
        case "program not kept":
            return f"{what}: a candidate that cannot be confirmed, because a program was not kept"
        case _:
            tried = "compared while the machine was too busy to tell" if comparison is not None else "not confirmed yet"
            return f"{what}: a candidate, {tried}"


def _differences(before: Point, after: Point, versions: tuple[str, str] | None) -> list[str]:
    one, other = (_manifest(point.path) for point in (before, after))
    if one is None or other is None:
        return []
    sides: list[dict[str, Any]] = [
        {"kit": side.kit_version, **side.environment, **{f"label {key}": value for key, value in side.labels.items()}}
        for side in (one, other)
    ]
    for side, version in zip(sides, versions or (), strict=False):
        side["ExecuTorch"] = version
    return [
        f"{key} was {_shown(sides[0].get(key))}, then {_shown(sides[1].get(key))}"
        for key in sorted({*sides[0], *sides[1]} - {*_RESTLESS})
        if sides[0].get(key) != sides[1].get(key)
    ]


def _shown(value: object) -> str:
    return "not known" if value is None else str(value)[:80]


def _manifest(path: str) -> _Manifest | None:
    try:
        return files.read_json(Path(path) / MANIFEST, _Manifest, "manifest")
    except KitError:
        return None
