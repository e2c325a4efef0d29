"""Steps of a series, and what is known of each: a regression is what comparing the programs side by side confirms."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.fleet.history.change_points import ChangePoint, change_points
from model_profiling.fleet.history.history_records import Point
from model_profiling.fleet.history.program_archive import KeptPrograms
from model_profiling.fleet.history.trends import ProgramComparison, Series, Step, StepState
from model_profiling.store.artifacts import MANIFEST

# A step is found to within so many points.
_NEAR = 2
# What changes all the time, or follows from something else that is named.
_RESTLESS = ("load_1m_5m_15m", "battery", "temperature_celsius", "thermal_status", "features_proof")


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
