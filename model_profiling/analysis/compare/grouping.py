"""Operators that occur several times, together: sixteen lookups are one row that unfolds."""

import msgspec
import numpy as np

from model_profiling.analysis.compare.comparison import Change, OperatorChange, ProfileComparison, compared_parts
from model_profiling.analysis.timing.breakdown import Breakdown, OperatorTime
from model_profiling.analysis.timing.intervals import XNNPACK_CLOCK_NS, Interval
from model_profiling.analysis.timing.profile import Part, Profile, Where


class OperatorGroup(msgspec.Struct, frozen=True):
    """The places of one operator in the graph, costliest first, and how all of them together changed."""

    name: str
    category: Part
    where: Where
    change: Change
    members: list[OperatorChange]


def operator_groups(comparison: ProfileComparison, before: Profile, after: Profile) -> list[OperatorGroup]:
    """Group operators of one name now; the interval of a group is that of its summed times.

    What only one side has stands apart: its sum compares with nothing.
    """
    found: dict[tuple[str, Where, Part, bool], list[OperatorChange]] = {}
    for entry in comparison.operators:
        name = _name(after, entry.after_row) or _name(before, entry.before_row)
        both = entry.before_row is not None and entry.after_row is not None
        found.setdefault((name, entry.where, entry.category, both), []).append(entry)
    several = [members for (*_, both), members in found.items() if both and len(members) > 1]
    bounds = dict(zip(map(id, several), _bounds(several, comparison, before, after), strict=True))
    groups = []
    for (name, where, category, _), members in found.items():
        changes = [member.change for member in members]
        change = changes[0] if len(members) == 1 else _summed(name, changes, bounds.get(id(members)))
        groups.append(OperatorGroup(name, category, where, change, members))
    return sorted(groups, key=lambda group: -max(group.change.before_ms, group.change.after_ms))


def _summed(name: str, changes: list[Change], bounds: Interval | None) -> Change:
    return Change(
        name,
        sum(change.before_ms for change in changes),
        sum(change.after_ms for change in changes),
        sum(change.before_share for change in changes),
        sum(change.after_share for change in changes),
        *(bounds or (None, None, None)),
    )


def _name(profile: Profile, row: int | None) -> str:
    return "" if row is None else profile.instances[row].operator


def _bounds(
    groups: list[list[OperatorChange]], comparison: ProfileComparison, before: Profile, after: Profile
) -> list[Interval]:
    if not groups:
        return []
    times = [
        np.array([profile.launch_times[[getattr(member, row) for member in members]].sum(axis=0) for members in groups])
        for profile, row in ((before, "before_row"), (after, "after_row"))
    ]
    shown = [(sum(m.change.before_ms for m in group), sum(m.change.after_ms for m in group)) for group in groups]
    # Each operator's clock may be off by a step, all in one direction.
    clock = np.array([XNNPACK_CLOCK_NS * len(members) for members in groups])
    return compared_parts(comparison, before, after).intervals(times, shown, clock)


def instance_groups(breakdown: Breakdown) -> list[tuple[OperatorTime, list[int]]]:
    """Return each operator of one experiment with the rows of its places in the graph, costliest first."""
    members: dict[tuple[str, Where], list[int]] = {}
    for row, entry in sorted(enumerate(breakdown.instances), key=lambda item: -item[1].ms):
        members.setdefault((entry.operator, entry.where), []).append(row)
    return [(operator, members[operator.operator, operator.where]) for operator in breakdown.operators]
