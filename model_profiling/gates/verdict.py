"""The judgement of a gate, as data that every output shows alike."""

import math
from typing import Literal

import msgspec

from model_profiling.analysis.latency import Comparison
from model_profiling.errors import InputError


class Judgement(msgspec.Struct, frozen=True):
    """One comparison held against the limit. `outcome` is passed, failed, or unsure (fails only when strict)."""

    comparison: Comparison
    limit_percent: float
    outcome: Literal["passed", "failed", "unsure"]
    failed: bool
    sentence: str


def judge(comparisons: list[Comparison], limit_percent: float, strict: bool) -> list[Judgement]:
    """Hold each comparison against the limit; one that has no interval at all is no basis for a pass."""
    if not (math.isfinite(limit_percent) and limit_percent >= 0):
        raise InputError(f"--fail-if-slower {limit_percent:g} is not a limit", "Give a percentage of 0 or more.")
    return [_judge(comparison, limit_percent, strict) for comparison in comparisons]


def _judge(comparison: Comparison, limit_percent: float, strict: bool) -> Judgement:
    name, allowed = comparison.after, 1 / (1 + limit_percent / 100)
    if comparison.high is None:
        raise InputError(
            f"{name}: {comparison.turns} turns are too few to judge", "Measure both sides again, without --runs."
        )
    if comparison.contended:
        sentence = f"{name}: measured on a busy machine, so no verdict; stop other work and measure again"
        return Judgement(comparison, limit_percent, "unsure", strict, sentence)
    if comparison.high < allowed:
        return Judgement(
            comparison, limit_percent, "failed", True, f"{name} is slower by more than {limit_percent:g} %"
        )
    if comparison.low < allowed:
        sentence = f"{name}: slower by more than {limit_percent:g} % cannot be ruled out; take more runs"
        return Judgement(comparison, limit_percent, "unsure", strict, sentence)
    return Judgement(
        comparison, limit_percent, "passed", False, f"{name} is not slower by more than {limit_percent:g} %"
    )
