"""The judgement of a gate, as data that every output shows alike."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.base.errors import InputError

Gate = Literal["latency", "start-up", "peak memory", "metric"]
Outcome = Literal["passed", "failed", "unsure"]
_FLAGS: dict[Gate, str] = {
    "latency": "--fail-if-slower",
    "start-up": "--fail-if-startup-slower",
    "peak memory": "--fail-if-memory-above",
    "metric": "--max-drop",
}


class Limits(msgspec.Struct, frozen=True):
    """By how many percent the second side may be worse, and by how much a metric may drop; None: not judged."""

    slower: float | None = None
    startup_slower: float | None = None
    memory_above: float | None = None
    drop: float | None = None

    @property
    def given(self) -> dict[Gate, float]:
        """The limits that were given, by gate."""
        limits = zip(_FLAGS, (self.slower, self.startup_slower, self.memory_above, self.drop), strict=True)
        return {gate: limit for gate, limit in limits if limit is not None}


class Judgement(msgspec.Struct, frozen=True):
    """One comparison held against a limit, which is of a metric in its own unit. `outcome` is passed, failed, or unsure
    (fails only when strict)."""

    before: str
    after: str
    limit_percent: float
    outcome: Outcome
    failed: bool
    sentence: str
    gate: Gate = "latency"

    def of(self, pair: PairComparison) -> bool:
        return (self.before, self.after) == (pair.latency.before, pair.latency.after)


def conclusion(judgements: Sequence[Judgement], strict: bool) -> str:
    """Return the last word of a gate: failed, passed, or that there is no verdict and what that means for CI."""
    unsure = [judgement for judgement in judgements if judgement.outcome == "unsure"]
    if any(judgement.outcome == "failed" for judgement in judgements):
        return "failed"
    if not unsure:
        return "passed"
    count = "" if len(unsure) == len(judgements) else f" for {len(unsure)} of {len(judgements)} comparisons"
    return f"no verdict{count}, " + ("which --strict counts as failed" if strict else "which passes without --strict")


def judge(pairs: Sequence[PairComparison], limits: Limits, strict: bool) -> list[Judgement]:
    """Hold each pair against each limit; one that has no interval at all is no basis for a pass."""
    for gate, limit in limits.given.items():
        if not (math.isfinite(limit) and limit >= 0):
            raise InputError(f"{_FLAGS[gate]} {limit:g} is not a limit", "Give a number of 0 or more.")
    found = []
    for pair in pairs:
        sides = (pair.latency.before, pair.latency.after)
        for gate, limit in limits.given.items():
            outcome, sentence = _judged(pair, gate, limit)
            failed = outcome == "failed" or (outcome == "unsure" and strict)
            found.append(Judgement(*sides, limit, outcome, failed, sentence, gate))
    return found


def _judged(pair: PairComparison, gate: Gate, limit: float) -> tuple[Outcome, str]:
    if gate == "latency":
        told = pair.told if pair.told.high is not None else pair.latency
        return _speed(pair, gate, told, "slower", limit)
    if gate == "start-up":
        return _speed(pair, gate, _startup(pair), "slower to its first result", limit)
    return _memory(pair, limit) if gate == "peak memory" else _metric(pair, limit)


def _startup(pair: PairComparison) -> Comparison:
    if pair.startup is None:
        raise InputError(
            f"{pair.latency.after}: there is no start-up to judge; {_why(pair, 'startup_unknown')}",
            "Measure both sides again, without --startup-launches 0.",
        )
    sides = [measured.startup.page_cache for measured in (pair.before, pair.after) if measured and measured.startup]
    if sorted(sides) == ["cold", "warm"]:
        raise InputError(
            f"{pair.latency.after}: the page cache was {sides[0]} before and {sides[1]} after, so start-up cannot be "
            "judged",
            "Measure both sides with the same --page-cache.",
        )
    return pair.startup.first_result


def _why(pair: PairComparison, reason: Literal["startup_unknown", "memory_unknown"]) -> str:
    """Return which side lacks it, and why."""
    sides = (("before", pair.before), ("after", pair.after))
    told = [
        f"{side}: {getattr(measured, reason)}" for side, measured in sides if measured and getattr(measured, reason)
    ]
    return "; ".join(told) or "the two sides were measured in different ways"


def _speed(pair: PairComparison, gate: Gate, found: Comparison, claim: str, limit: float) -> tuple[Outcome, str]:
    name = pair.latency.after
    if found.high is None:
        what = "turns" if gate == "latency" else "start-up launches"
        hint = "without --runs" if gate == "latency" else "without --startup-launches"
        raise InputError(f"{name}: {found.turns} {what} are too few to judge", f"Measure both sides again, {hint}.")
    if found.contended:
        what = "" if gate == "latency" else f"{gate} was "
        return "unsure", f"{name}: {what}measured on a busy machine, so no verdict; stop other work and measure again"
    bounds = (1 / found.high - 1) * 100, (1 / found.low - 1) * 100
    more = "take more runs" if gate == "latency" else "take more start-up launches"
    return _held(name, bounds, claim, limit, more)


def _memory(pair: PairComparison, limit: float) -> tuple[Outcome, str]:
    name, found = pair.latency.after, pair.memory
    if found is None:
        raise InputError(
            f"{name}: there is no peak memory to judge; {_why(pair, 'memory_unknown')}",
            "Measure both sides again with the kit's own runner.",
        )
    if found.low_percent is None or found.high_percent is None:
        raise InputError(
            f"{name}: {found.processes} processes are too few to judge peak memory",
            "Measure both sides again, without --launches.",
        )
    claim = "above the peak memory of its baseline"
    return _held(name, (found.low_percent, found.high_percent), claim, limit, "take more launches")


def _metric(pair: PairComparison, limit: float) -> tuple[Outcome, str]:
    found = pair.metric
    if found is None:
        raise InputError(f"{pair.latency.after}: there is no metric to judge", "Give the metric and its data.")
    after, what = found.after, f"{pair.latency.after}: a drop of {found.name} by more than {limit:g}"
    if after.high is None:
        return "unsure", f"{what}: there is no interval to judge by; {after.value:.4g} now, {found.before:.4g} before"
    if after.verdict == "not told":
        return "unsure", f"{what} cannot be ruled out by {found.samples} samples; give more"
    return ("passed", f"{what} is ruled out") if after.verdict == "within" else ("failed", f"{what} is seen")


def _held(name: str, bounds: tuple[float, float], claim: str, limit: float, more: str) -> tuple[Outcome, str]:
    """Return failed if the whole interval is above the limit, unsure if a part of it is."""
    claim = f"{claim} by more than {limit:g} %"
    if bounds[0] > limit:
        return "failed", f"{name} is {claim}"
    if bounds[1] > limit:
        return "unsure", f"{name}: {claim} cannot be ruled out; {more}"
    return "passed", f"{name} is not {claim}"
