"""Two profiles held against each other: category by category, operator by operator, and what dominates now."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import Agreement
from model_profiling.analysis.compare.aspects import base_name
from model_profiling.analysis.compare.matching import Pair, pair_in_order
from model_profiling.analysis.compare.metrics import ExperimentMetrics
from model_profiling.analysis.compare.program_changes import PairedTimes, ProfiledProgram, ProgramChanges, Rows
from model_profiling.analysis.process.memory import MemoryComparison
from model_profiling.analysis.process.startup import StartupComparison
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence
from model_profiling.analysis.timing.breakdown import Breakdown, OperatorTime
from model_profiling.analysis.timing.categories import CATEGORIES
from model_profiling.analysis.timing.intervals import Interval, Numbers, mean_reach
from model_profiling.analysis.timing.latency import Comparison, Verdict, judge
from model_profiling.analysis.timing.profile import RUNTIME, Part, Profile, Where
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.records import by_key
from model_profiling.formats.graph_terms import CUSTOM_OPERATORS
from model_profiling.store.artifacts import ExportPaths, RewriteChoice
from model_profiling.store.made_by import RunnerRecord

# An operator that cannot be this many times faster was not touched, as far as anyone would notice.
TOUCHED = 1.1
# A category's share of the time that grew by less is not worth a word.
_LEAST_GROWTH = 0.01


class KernelChange(msgspec.Struct, frozen=True):
    """An operator with other kernels, by their names; a side on which it called none, or is not there, has none."""

    operator: str
    instruction: int
    before: list[str]
    after: list[str]


class KernelComparison(msgspec.Struct, frozen=True):
    """The operators of two experiments that call other kernels, of so many; `unknown` says why nobody can tell."""

    before: str
    after: str
    operators: int | None
    changed: list[KernelChange]
    unknown: str = ""


def compare_kernels(
    before: tuple[str, KernelEvidence | None], after: tuple[str, KernelEvidence | None], no_trace: str = ""
) -> KernelComparison:
    """Compare two traces operator by operator; `no_trace` says why there is none where one is missing."""
    (one, old), (other, new) = before, after
    why = no_trace or "there is no kernel trace"
    unknown = why if old is None or new is None else old.unknown or new.unknown
    if unknown or old is None or new is None:
        return KernelComparison(one, other, None, [], unknown)
    # The n-th of a kind within an instruction, whatever dtype it runs in.
    pairs = pair_in_order(
        old.operators, new.operators, lambda each: (each.execution, each.instruction, each.name.split(" (")[0])
    )
    changed = []
    for at in pairs:
        was, now = (
            evidence.operators[place] if place is not None else None
            for evidence, place in zip((old, new), at, strict=True)
        )
        kernels = [sorted({call.kernel for call in each.kernels}) if each else [] for each in (was, now)]
        either = now or was
        assert either is not None
        if kernels[0] != kernels[1]:
            changed.append(KernelChange(either.name, either.instruction, *kernels))
    return KernelComparison(one, other, len(pairs), changed)


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


DropVerdict = Literal["within", "beyond", "not told", ""]


class MetricValue(msgspec.Struct, frozen=True):
    """What the user's metric says of a program, and how much worse that is than the baseline, with its 95 % interval
    over samples (None: not known).

    `within` the drop that was allowed and `beyond` it are said of whole intervals; where one holds it, the samples are
    too few to tell. '' where nobody said what is allowed.
    """

    value: float | None
    drop: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: DropVerdict = "within"
    # Why there is no value.
    failure: str = ""

    @property
    def significant(self) -> bool:
        """Whether it differs from the baseline by its whole interval."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class MetricChange(msgspec.Struct, frozen=True):
    """What the user's metric, `name`, says of both sides, of so many samples; beside an export `before` is eager's."""

    name: str
    samples: int
    lower_is_better: bool
    before: float
    after: MetricValue


class MetricRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lies beside a .pte; `made_from` is a hash of that, and of the files of the metric and its samples."""

    change: MetricChange
    made_from: str


def metric_sources(metric: str, data: str, pte: Path) -> str:
    digest = hashlib.sha256(program_sha256(pte).encode())
    for text in (metric, data):
        path = Path(text).expanduser()
        for file in sorted(path.glob("*.npz")) if path.is_dir() else [Path(str(path).rpartition(":")[0])]:
            digest.update(f"{text}\0{files.sha256(file)}\0".encode())
    return digest.hexdigest()


def read_metric(metric: str, data: str, lower_is_better: bool, export: ExportPaths) -> MetricChange | None:
    """Return what is known of a program by this metric; None if something has changed since, or nobody asked."""
    try:
        known = files.read_json(export.metric, MetricRecord, "metric")
        same = known.made_from == metric_sources(metric, data, export.pte)
        return known.change if same and known.change.lower_is_better == lower_is_better else None
    except (KitError, OSError):
        return None


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
    # What must be known before anything else of two programs that are compared, such as that they are of two models.
    warnings: list[str] = []
    metric: MetricChange | None = None

    @property
    def told(self) -> Comparison:
        """The latency on the basis that its parts have: undisturbed times of a busy machine."""
        return undisturbed(self.latency, self.profile)


def undisturbed(latency: Comparison, profile: ProfileComparison) -> Comparison:
    """Return a comparison as it is told: of a busy machine that of undisturbed times, which the tracer's stopped clock
    has, so that headline and parts are of one basis; as it is where nothing better is known."""
    whole = profile.execute
    if not latency.contended or profile.unreliable or not whole.before_ms or not whole.after_ms:
        return latency
    # Too few launches bound nothing.
    ratio, low, high = whole.before_ms / whole.after_ms, 0.0, None
    verdict: Verdict = "no difference seen"
    width = None
    if whole.ratio is not None and whole.low is not None and whole.high is not None:
        ratio, low, high = whole.ratio, whole.low, whole.high
        verdict, width = judge(ratio, low, high)
    # Executions and undisturbed times estimate one thing: where they disagree, neither is certain.
    estimate = latency.estimate and (min(latency.estimate[0], ratio), max(latency.estimate[1], ratio))
    return msgspec.structs.replace(
        latency,
        **{"ratio": ratio, "low": low, "high": high, "verdict": verdict, "resolution_percent": width},
        **{"contended": False, "before_ms": whole.before_ms, "after_ms": whole.after_ms, "estimate": estimate},
    )


def compare_profiles(before: ProfiledProgram, after: ProfiledProgram, paired: bool) -> ProfileComparison:
    """Compare all parts of two profiles; `paired` means that equal turns were measured side by side."""
    old, new = before.breakdown, after.breakdown
    unreliable = old.unreliable or new.unreliable
    parts = PairedTimes(before.profile, after.profile, paired, unreliable)
    names: tuple[Part, ...] = (*CATEGORIES, RUNTIME)
    members: dict[Part, Rows] = {name: ([], []) for name in names}
    for side, breakdown in enumerate((old, new)):
        for row, instance in enumerate(breakdown.instances):
            members[instance.category][side].append(row)
    sides = [(old.category(name), new.category(name)) for name in names]
    times, among = [(was.ms, now.ms) for was, now in sides], _claims(old.instances, new.instances)
    bounds = parts.ratios(list(members.values()), times, among)
    categories = [
        Change(name, was.ms, now.ms, was.share, now.share, *interval)
        for name, (was, now), interval in zip(names, sides, bounds, strict=True)
    ]
    operators = _operators(old, new, parts)
    shown = (old.execute_ms, new.execute_ms)
    everything = list(range(len(old.instances))), list(range(len(new.instances)))
    # The whole is one claim, and a reader's first: the correction for many comparisons is the parts'.
    whole = parts.ratios([everything], [shown], 1)[0]
    shares = [times / np.maximum(times.sum(axis=0), 1e-9) for times in parts.times(list(members.values()))]
    return ProfileComparison(
        before=before.name,
        after=after.name,
        paired=paired,
        execute=Change("Method::execute", *shown, 1.0, 1.0, *whole),
        categories=categories,
        operators=sorted(operators, key=lambda entry: -max(entry.change.before_ms, entry.change.after_ms)),
        shift=_shift(old, new, dict(zip(names, zip(*shares, strict=True), strict=True)), parts),
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


def _operators(before: Breakdown, after: Breakdown, parts: PairedTimes) -> list[OperatorChange]:
    """Match operators by place: the n-th of a kind within an instruction, whatever dtype it runs in."""
    old, new = before.instances, after.instances
    pairs = pair_in_order(old, new, lambda each: (each.chain, each.instruction, base_name(each)))
    common = [(one, other) for one, other in pairs if one is not None and other is not None]
    shown = [(old[one].ms, new[other].ms) for one, other in common]
    limits = parts.ratios([([one], [other]) for one, other in common], shown, _claims(old, new), parts.clock_ns)
    bounds: dict[Pair, Interval] = dict(zip(common, limits, strict=True))
    changes = []
    for at in pairs:
        was, now = old[at[0]] if at[0] is not None else None, new[at[1]] if at[1] is not None else None
        either = now or was
        assert either is not None
        ms = (was.ms if was else 0.0, now.ms if now else 0.0)
        shares = (was.share if was else 0.0, now.share if now else 0.0)
        change = Change(either.name, *ms, *shares, *bounds.get(at, (None, None, None)))
        names = (was.name if was else "", now.name if now else "")
        changes.append(
            OperatorChange(
                *(*names, either.category, either.kind, either.where, either.instruction, change, *at),
                module=either.module,
                source_line=either.source_line,
            )
        )
    return changes


def _claims(before: Sequence[object], after: Sequence[object]) -> int:
    """Return how many parts are compared: operators, categories and Runtime."""
    return max(len(before), len(after)) + len(CATEGORIES) + 1


_Shares = dict[Part, tuple[Numbers, Numbers]]


def _shift(before: Breakdown, after: Breakdown, shares: _Shares, parts: PairedTimes) -> Shift:
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


def _is_above(one: Numbers, other: Numbers, paired: bool, among: int) -> bool | None:
    """Return whether the mean of one row of launches is above that of another; None if launches are too few to tell."""
    reach = mean_reach(one[None, :], other[None, :], paired, among)
    return None if reach is None else bool(one.mean() - other.mean() > reach[0])


class AutoComparison(msgspec.Struct, frozen=True, tag="auto_comparison", tag_field="kind"):
    """`pte_sha256` is the program of the run, `auto_sha256` the one at `pte` with `choices` applied.

    `pairs` has one comparison, of a language model one for each phase; none where `reason` says why.
    """

    pte_sha256: str
    pte: str = ""
    auto_sha256: str = ""
    choices: list[RewriteChoice] = []
    pairs: list[PairComparison] = []
    reason: str = ""
    schema: int = 1

    @property
    def outputs_agree(self) -> bool | None:
        """Whether the outputs of both programs are right, against eager PyTorch; None if nobody could compare them."""
        verdicts = [each.verdict for pair in self.pairs for each in pair.accuracy]
        return all(verdict == "agrees" for verdict in verdicts) if verdicts else None


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
    rows = [([m.before_row or 0 for m in members], [m.after_row or 0 for m in members]) for members in several]
    sums = {id(members): _summed(members) for members in several}
    parts = PairedTimes(before, after, comparison.paired, comparison.unreliable)
    # Each operator's clock may be off by a step, all in one direction.
    clock = np.array([parts.clock_ns * len(members) for members in several])
    among = _claims(before.instances, after.instances)
    bounds = parts.ratios(rows, [(each[0], each[1]) for each in sums.values()], among, clock)
    limits = dict(zip(sums, bounds, strict=True))
    groups = []
    for (name, where, category, _), members in found.items():
        change = members[0].change
        if len(members) > 1:
            change = Change(name, *_summed(members), *limits.get(id(members), (None, None, None)))
        groups.append(OperatorGroup(name, category, where, change, members))
    return sorted(groups, key=lambda group: -max(group.change.before_ms, group.change.after_ms))


def _summed(members: list[OperatorChange]) -> tuple[float, float, float, float]:
    columns = ("before_ms", "after_ms", "before_share", "after_share")
    before, after, *shares = (sum(getattr(member.change, column) for member in members) for column in columns)
    return before, after, shares[0], shares[1]


def _name(profile: Profile, row: int | None) -> str:
    return "" if row is None else profile.instances[row].operator


def instance_groups(breakdown: Breakdown) -> list[tuple[OperatorTime, list[int]]]:
    """Return each operator of one experiment with the rows of its places in the graph, costliest first."""
    rows = sorted(enumerate(breakdown.instances), key=lambda item: -item[1].ms)
    members = by_key(((entry.operator, entry.where), row) for row, entry in rows)
    return [(operator, members[operator.operator, operator.where]) for operator in breakdown.operators]
