"""How sure we may be: Student's t, and intervals for ratios of times that were measured in turns."""

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
# Ratio, low, high; None where nothing can be said (an operator below the clock's resolution, a single turn).
Interval = tuple[float | None, float | None, float | None]


def student_t(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t: exact for 1 and 2 degrees of freedom, else a Cornish-Fisher expansion."""
    p = 0.5 + confidence / 2
    if freedom < 1:
        return math.inf
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z, v = NormalDist().inv_cdf(p), freedom
    t = z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
    return t + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)


def ratio_intervals(
    before: tuple[Numbers, npt.NDArray[np.int64]],
    after: tuple[Numbers, npt.NDArray[np.int64]],
    paired: bool,
    resolution_ns: float = 0.0,
    confidence: float = 0.95,
) -> list[Interval]:
    """For each row (a part) of executions in turns: before over after, with a t interval on the turns' log medians.

    A clock that counts in steps of `resolution_ns` may be off by half a step on either side, always in the same
    direction; no number of turns averages that away, so it widens the interval as a whole.
    """
    if len(before[0]) == 0:
        return []
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.median(before[0], axis=1), np.median(after[0], axis=1)
        ratio = middle[0] / middle[1]
        a, b = np.log(_turn_medians(*before)), np.log(_turn_medians(*after))
        if paired and a.shape == b.shape:
            variance, turns = _variance_of_mean(a - b), a.shape[1]
        else:
            variance, turns = _variance_of_mean(a) + _variance_of_mean(b), min(a.shape[1], b.shape[1])
        reach = student_t(confidence, turns - 1) * np.sqrt(variance)
        reach = reach + resolution_ns / 2 / middle[0] + resolution_ns / 2 / middle[1]
        low, high = ratio * np.exp(-reach), ratio * np.exp(reach)
    return [_interval(*row) for row in zip(ratio.tolist(), low.tolist(), high.tolist(), strict=True)]


def _interval(ratio: float, low: float, high: float) -> Interval:
    if not (math.isfinite(ratio) and ratio > 0):
        return None, None, None
    if not (math.isfinite(low) and math.isfinite(high)):
        return ratio, None, None
    return ratio, low, high


def _turn_medians(times: Numbers, turn: npt.NDArray[np.int64]) -> Numbers:
    """One column per turn: the median over the executions of that turn."""
    return np.stack([np.median(times[:, turn == number], axis=1) for number in np.unique(turn)], axis=1)


def _variance_of_mean(columns: Numbers) -> Numbers:
    if columns.shape[1] < 2:
        return np.full(len(columns), np.nan)
    result: Numbers = columns.var(axis=1, ddof=1) / columns.shape[1]
    return result
