"""Two profiles held against each other: category by category, operator by operator, and what dominates now."""

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.compare.aspects import base_name
from model_profiling.analysis.compare.kernel_changes import KernelComparison
from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.process.memory import MemoryComparison
from model_profiling.analysis.process.startup import StartupComparison
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.categories import CATEGORIES
from model_profiling.analysis.timing.intervals import XNNPACK_CLOCK_NS, Interval, mean_reach, part_intervals
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.analysis.timing.profile import RUNTIME, Part, Profile, Where
from model_profiling.formats.graph_terms import CUSTOM_OPERATORS
from model_profiling.store.run_directory import RunnerRecord

# An operator that cannot be this many times faster was not touched, as far as anyone would notice.
TOUCHED = 1.1
# A category's share of the time that grew by less is not worth a word.
_LEAST_GROWTH = 0.01


class Change(msgspec.Struct, frozen=True):
    """Before and after of one part, as means over typical executions, which add up.

    `ratio` is how many times faster, `before_ms` over `after_ms`; low and high bound it; None: cannot be said.
    """

    name: str
    before_ms: float
    after_ms: float
    before_share: float
    after_share: float
    ratio: float | None
    low: float | None
    high: float | None


class OperatorChange(msgspec.Struct, frozen=True):
    """One operator at one place of the graph, under whatever name each side gave it ('' where it has none)."""

    before: str
    after: str
    category: Part
    kind: str
    where: Where
    instruction: int
    change: Change
    # Their rows in the breakdowns of the two experiments; None where one has it not.
    before_row: int | None = None
    after_row: int | None = None
    # Where it is from, as far as the ETRecord tells.
    module: str = ""
    source_line: str = ""

    @property
    def name(self) -> str:
        return self.after or self.before


class Shift(msgspec.Struct, frozen=True):
    """Where the bottleneck was and where it is."""

    before: str
    after: str
    before_share: float
    after_share: float
    moved: bool
    sentence: str


class ProfileComparison(msgspec.Struct, frozen=True):
    before: str
    after: str
    paired: bool
    execute: Change
    categories: list[Change]
    operators: list[OperatorChange]
    shift: Shift
    # CONV and GEMM operators that did not become faster although acceleration was switched on.
    untouched: list[OperatorChange]
    # Why nothing can be said of how parts changed; '' where it can.
    unreliable: str = ""


class PairComparison(msgspec.Struct, frozen=True, tag="comparison", tag_field="kind"):
    """One pair of `compare --json`: the latency of the two, where their time goes, and the metrics of each; start-up
    and peak memory where both sides have them. Of one program under two ExecuTorch versions also whether its outputs
    are the same (None: none were kept), its kernels, and the runner of each."""

    latency: Comparison
    profile: ProfileComparison
    before: ExperimentMetrics | None = None
    after: ExperimentMetrics | None = None
    startup: StartupComparison | None = None
    memory: MemoryComparison | None = None
    schema: int = 1
    outputs: Agreement | None = None
    kernels: KernelComparison | None = None
    runners: list[RunnerRecord] = []
    # What the difference consists of, by module and line.
    changes: ProgramChanges | None = None
    # The outputs of each side against eager PyTorch's; empty unless both were kept.
    accuracy: list[Agreement] = []


def compare_profiles(
    before: tuple[str, Profile, Breakdown], after: tuple[str, Profile, Breakdown], paired: bool
) -> ProfileComparison:
    """Compare all parts of two profiles; `paired` means that equal turns were measured side by side."""
    (before_name, old, old_breakdown), (after_name, new, new_breakdown) = before, after
    unreliable = old_breakdown.unreliable or new_breakdown.unreliable
    rows = [_rows_by_category(profile) for profile in (old, new)]
    names: tuple[Part, ...] = (*CATEGORIES, RUNTIME)
    times = [
        np.stack([profile.launch_times[members[name]].sum(axis=0) for name in names])
        for profile, members in zip((old, new), rows, strict=True)
    ]
    sides = [(old_breakdown.category(name), new_breakdown.category(name)) for name in names]
    parts = _Parts(old, new, paired, unreliable)
    bounds = parts.intervals(times, [(was.ms, now.ms) for was, now in sides])
    categories = [
        Change(name, was.ms, now.ms, was.share, now.share, *interval)
        for name, (was, now), interval in zip(names, sides, bounds, strict=True)
    ]
    operators = _operators(before, after, parts)
    shown = (old_breakdown.execute_ms, new_breakdown.execute_ms)
    wholes = [side.sum(axis=0)[None, :] for side in times]
    whole = parts.intervals(wholes, [shown])[0]
    shares = [side / np.maximum(side.sum(axis=0), 1e-9) for side in times]
    return ProfileComparison(
        before=before_name,
        after=after_name,
        paired=paired,
        execute=Change("Method::execute", *shown, 1.0, 1.0, *whole),
        categories=categories,
        operators=sorted(operators, key=lambda entry: -max(entry.change.before_ms, entry.change.after_ms)),
        shift=_shift(old_breakdown, new_breakdown, dict(zip(names, zip(*shares, strict=True), strict=True)), parts),
        untouched=[entry for entry in operators if _untouched(entry)],
        unreliable=unreliable,
    )


def _untouched(entry: OperatorChange) -> bool:
    if (entry.after or entry.before).startswith(CUSTOM_OPERATORS):
        return False  # operators of their own: XNNPACK's kernels are none of theirs
    if entry.category not in ("CONV", "GEMM") or not entry.before or not entry.after:
        return False
    high = entry.change.high
    return high is not None and high < TOUCHED


def _rows_by_category(profile: Profile) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {name: [] for name in (*CATEGORIES, RUNTIME)}
    for row, instance in enumerate(profile.instances):
        rows[instance.category].append(row)
    return rows


def _operators(
    before: tuple[str, Profile, Breakdown], after: tuple[str, Profile, Breakdown], parts: "_Parts"
) -> list[OperatorChange]:
    """Match operators by place: the n-th of a kind within an instruction, whatever dtype it runs in."""
    (_, old, old_breakdown), (_, new, new_breakdown) = before, after
    old_rows, new_rows = _places(old), _places(new)
    common = [place for place in old_rows if place in new_rows]
    times = [old.launch_times[[old_rows[p] for p in common]], new.launch_times[[new_rows[p] for p in common]]]
    shown = [(old_breakdown.instances[old_rows[p]].ms, new_breakdown.instances[new_rows[p]].ms) for p in common]
    bounds = dict(zip(common, parts.intervals(times, shown, XNNPACK_CLOCK_NS), strict=True))
    changes = []
    for place in [*old_rows, *(place for place in new_rows if place not in old_rows)]:
        was = old_breakdown.instances[old_rows[place]] if place in old_rows else None
        now = new_breakdown.instances[new_rows[place]] if place in new_rows else None
        either = now or was
        assert either is not None
        change = Change(
            either.name,
            was.ms if was else 0.0,
            now.ms if now else 0.0,
            was.share if was else 0.0,
            now.share if now else 0.0,
            *bounds.get(place, (None, None, None)),
        )
        names = (was.name if was else "", now.name if now else "")
        at = (old_rows.get(place), new_rows.get(place))
        changes.append(
            OperatorChange(
                *(*names, either.category, either.kind, either.where, either.instruction, change, *at),
                module=either.module,
                source_line=either.source_line,
            )
        )
    return changes


def _places(profile: Profile) -> dict[tuple[int, int, str, int], int]:
    """Return each instance's row by chain, instruction, base name, and count among the same."""
    seen: dict[tuple[int, int, str], int] = {}
    places = {}
    for row, instance in enumerate(profile.instances):
        base = (instance.chain, instance.instruction, base_name(instance))
        seen[base] = seen.get(base, 0) + 1
        place = (*base, seen[base])
        places[place] = row
    return places


class _Parts:
    """Two profiles whose parts are compared: how sure one may be of each, so that all of it holds together."""

    def __init__(self, old: Profile, new: Profile, paired: bool, unreliable: str) -> None:
        self.unreliable = unreliable
        self.paired = paired and np.array_equal(old.launches, new.launches)
        # Operators, categories and the whole.
        self.count = max(len(old.instances), len(new.instances)) + len(CATEGORIES) + 2

    def intervals(
        self,
        times: list[npt.NDArray[np.float64]],
        shown: list[tuple[float, float]],
        resolution_ns: float | npt.NDArray[np.float64] = 0.0,
    ) -> list[Interval]:
        """Return for each row of launches' times: the ratio of the two times shown, and its bounds."""
        if self.unreliable:
            return [(None, None, None)] * len(shown)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.divide(*np.array(shown, dtype=np.float64).reshape(-1, 2).T)
        return part_intervals(times[0], times[1], ratio, self.paired, self.count, resolution_ns)


def compared_parts(comparison: ProfileComparison, old: Profile, new: Profile) -> _Parts:
    """Return the same two profiles as in a comparison, for parts that it has not."""
    return _Parts(old, new, comparison.paired, comparison.unreliable)


_Shares = dict[Part, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]


def _shift(before: Breakdown, after: Breakdown, shares: _Shares, parts: _Parts) -> Shift:
    """Say in words what dominated, what dominates, and what grew most, as far as launches agree on it.

    `shares` are those of the categories in each launch of both sides.
    """
    was, now = before.dominant, after.dominant
    if parts.unreliable:
        sentence = f"Whether the bottleneck moved cannot be told: {parts.unreliable}."
        return Shift(was.category, now.category, was.share, now.share, False, sentence)
    lead = _is_above(shares[was.category][0], shares[now.category][0], True, len(shares))
    led = _is_above(shares[now.category][1], shares[was.category][1], True, len(shares))
    told = {
        entry.category: _is_above(*shares[entry.category][::-1], parts.paired, len(shares))
        for entry in after.categories
    }
    if now.category != was.category:
        fell = f"{was.category} ({was.share:.0%} of the time before, {after.category(was.category).share:.0%} now)"
        rose = f"{now.category} ({before.category(now.category).share:.0%} before, {now.share:.0%} now)"
        moved = bool(lead and led)
        sentence = f"The bottleneck moved from {fell} to {rose}."
        if not moved:
            why = "launches are too few to tell" if lead is None or led is None else "this run does not tell them apart"
            sentence = f"No shift seen: {fell} and {rose} take most of the time, and {why}."
        return Shift(was.category, now.category, was.share, now.share, moved, sentence)
    fewer = _is_above(*shares[now.category], parts.paired, len(shares))
    if told[now.category] or fewer:
        sentence = f"{now.category} dominated and still does ({was.share:.0%} of the time before, {now.share:.0%} now)"
    else:
        sentence = f"{now.category} takes most of the time in both ({was.share:.0%} before, {now.share:.0%} now)"
    grown = max(after.categories, key=lambda entry: entry.share - before.category(entry.category).share)
    if told[grown.category] and grown.category != now.category:
        earlier = before.category(grown.category).share
        if grown.share - earlier >= _LEAST_GROWTH:
            sentence += f"; {grown.category} grew most, from {earlier:.0%} to {grown.share:.0%}"
    return Shift(was.category, now.category, was.share, now.share, False, f"{sentence}.")


def _is_above(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64], paired: bool, among: int) -> bool | None:
    """Return whether the mean of one row of launches is above that of another; None if launches are too few to tell."""
    reach = mean_reach(one[None, :], other[None, :], paired, among)
    return None if reach is None else bool(one.mean() - other.mean() > reach[0])
