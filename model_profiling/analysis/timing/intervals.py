"""How sure we may be of a ratio of times that were measured in several launches of each program.

Where its memory happens to lie slows a whole process by a percent or two for as long as it lives (address-space
placement), so executions of one launch share their luck and only launches are independent. Each launch counts once, by
its median. The interval is that of the rank tests of Wilcoxon (launches side by side) and of Mann and Whitney (launches
on their own): exact for any distribution that is symmetric about its middle, and one disturbed launch barely moves it.
Fewer launches than such an interval takes show nothing of how launches differ: then that spread is assumed.

The parts of a profile are many, so that their bounds are wider: all of them hold together. Ranks of a few launches
cannot say that; there the bounds are Student's.
"""

import functools
import math

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
# Ratio, low, high; None where nothing can be said (an operator below the clock's resolution, a single turn).
Interval = tuple[float | None, float | None, float | None]

# The standard deviation between launches where it could not be measured: the largest that was seen on networks of about
# one millisecond, which are hit hardest (0.7 to 2.6 %).
ASSUMED_SPREAD = 0.026
# Launches of one sitting have things in common that they cannot show by differing. Intervals that miss the long-run
# ratio miss it by up to this (benchmarks/verdicts.py), so all are that much wider; and no difference is claimed that
# is not that much larger again.
IN_COMMON = 0.0025
# Ways are counted exactly, in floating point, as long as there are no more than two to the power of this.
_MOST_COUNTED = 53
# Launches of which all pairs are still worth it.
_MOST_LAUNCHES = 1000
CONFIDENCE = 0.95


@functools.lru_cache
def signed_rank_cut(launches: int) -> int:
    """Return how many of the pairwise averages lie outside on each side; 0 where so few launches bound nothing."""
    tail = (1 - CONFIDENCE) / 2
    if launches > _MOST_COUNTED:
        spread = math.sqrt(launches * (launches + 1) * (2 * launches + 1) / 24)
        return int(launches * (launches + 1) / 4 + _normal_quantile(tail) * spread)
    ways = np.zeros(launches * (launches + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, launches + 1):
        ways[rank:] += ways[:-rank].copy()
    return int(np.sum(np.cumsum(ways) <= tail * 2.0**launches))


@functools.lru_cache
def rank_sum_cut(first: int, second: int) -> int:
    """Return the same of all differences between two sets of launches that have nothing in common."""
    tail, total = (1 - CONFIDENCE) / 2, math.comb(first + second, first)
    if total > 2**_MOST_COUNTED:
        spread = math.sqrt(first * second * (first + second + 1) / 12)
        return int(first * second / 2 + _normal_quantile(tail) * spread)
    ways = np.zeros(first * second + 1)
    ways[0] = 1
    # The Gaussian binomial coefficient: times (1 - q^(second + i)), divided by (1 - q^i).
    for i in range(1, first + 1):
        ways[second + i :] -= ways[: max(0, len(ways) - second - i)].copy()
        for start in range(min(i, len(ways))):
            ways[start::i] = np.cumsum(ways[start::i])
    return int(np.sum(np.cumsum(ways) <= tail * total))


def enough_launches(before: int, after: int, paired: bool) -> bool:
    """Return whether so many launches of each side bound anything by themselves."""
    return (signed_rank_cut(before) if paired else rank_sum_cut(before, after)) > 0


def log_ratio_bounds(before: Numbers, after: Numbers, paired: bool) -> tuple[float, float] | None:
    """Return bounds of log(before / after) from launches' log medians; None if the launches are too few."""
    before, after = _fewer(before), _fewer(after)
    if paired:
        i, j = np.triu_indices(len(before))
        difference = before - after
        cut, averages = signed_rank_cut(len(before)), (difference[i] + difference[j]) / 2
    else:
        cut, averages = rank_sum_cut(len(before), len(after)), np.subtract.outer(before, after).ravel()
    averages.sort()
    return (float(averages[cut - 1]), float(averages[-cut])) if cut else None


def _fewer(launches: Numbers) -> Numbers:
    """Return the same with neighbouring launches merged where there are too many for all pairs."""
    if len(launches) <= _MOST_LAUNCHES:
        return launches
    return np.array([part.mean() for part in np.array_split(launches, _MOST_LAUNCHES)])


def assumed_reach(before: Numbers, after: Numbers, launches: tuple[int, int], paired: bool) -> float:
    """Return how far log(before / after) may be off where launches are too few: what turns show, and an assumed spread.

    `before` and `after` are turns' log medians. Two turns at least are needed to say anything.
    """
    variance, freedom = _variance(before[None, :], after[None, :], paired)
    within = student_t(CONFIDENCE, freedom) * math.sqrt(variance[0])
    between = ASSUMED_SPREAD * math.sqrt(1 / launches[0] + 1 / launches[1])
    return math.hypot(within, _normal_quantile(0.5 + CONFIDENCE / 2) * between)


def _normal_quantile(p: float) -> float:
    from statistics import NormalDist  # loads much, and profiles need nothing of it

    return NormalDist().inv_cdf(p)


def student_t(confidence: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t, by halving: the share of it within +-t has a closed form."""
    if freedom < 1:
        return math.inf
    low, high = 0.0, 1.0
    while _within_t(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within_t(middle, freedom) < confidence else (low, middle)
    return high


def _within_t(t: float, freedom: int) -> float:
    """Return the probability of a Student's t between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    if odd:
        return (angle + (math.sin(angle) * total if freedom > 1 else 0.0)) * 2 / math.pi
    return math.sin(angle) * total


def mean_reach(before: Numbers, after: Numbers, paired: bool, among: int) -> Numbers | None:
    """Return how far the mean of each row of `before - after` may be off, so that all of `among` bounds hold.

    A column is a launch. None where there are too few launches to bound anything.
    """
    sizes = before.shape[1], after.shape[1]
    paired = paired and sizes[0] == sizes[1]
    if not enough_launches(*sizes, paired):
        return None
    variance, freedom = _variance(before, after, paired)
    result: Numbers = student_t(1 - (1 - CONFIDENCE) / max(1, among), freedom) * np.sqrt(variance)
    return result


def _variance(before: Numbers, after: Numbers, paired: bool) -> tuple[Numbers, int]:
    """Return the variance of the mean of each row of `before - after`, and its degrees of freedom."""
    columns = [before - after] if paired else [before, after]
    size = min(each.shape[1] for each in columns)
    if size < 2:
        return np.full(len(before), np.nan), 0
    return np.sum([each.var(axis=1, ddof=1) / each.shape[1] for each in columns], axis=0), size - 1


def part_intervals(
    before: Numbers, after: Numbers, ratio: Numbers, paired: bool, among: int, resolution_ns: float | Numbers = 0.0
) -> list[Interval]:
    """Return for each part (a row with a column per launch) the `ratio` that is shown, and bounds that hold it.

    A profile has many parts, and of bounds that hold at 95 % each some would miss: these hold all together, `among` so
    many. With too few launches there is no ratio. A clock that counts in steps of `resolution_ns` may be off by half a
    step on either side, always in the same direction; no number of launches averages that away.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sides = np.log(before), np.log(after)
        reach = mean_reach(*sides, paired, among) if len(ratio) else None
        if reach is None:
            return [(None, None, None)] * len(ratio)
        middle = sides[0].mean(axis=1) - sides[1].mean(axis=1)
        reach = reach + 2 * IN_COMMON
        reach = reach + resolution_ns / 2 / before.mean(axis=1) + resolution_ns / 2 / after.mean(axis=1)
        # The ratio shown and the middle of the launches estimate one thing: where they disagree, neither is certain.
        low = np.minimum(np.exp(middle - reach), ratio)
        high = np.maximum(np.exp(middle + reach), ratio)
    return [_interval(*row) for row in zip(ratio.tolist(), low.tolist(), high.tolist(), strict=True)]


def _interval(ratio: float, low: float, high: float) -> Interval:
    if not (math.isfinite(ratio) and ratio > 0):
        return None, None, None
    return (ratio, low, high) if math.isfinite(low) and math.isfinite(high) else (ratio, None, None)


def difference_intervals(
    before: Numbers, after: Numbers, shown: Numbers, paired: bool, among: int, resolution_ns: Numbers
) -> tuple[Numbers, Numbers] | None:
    """Return bounds of `after - before` for each part, which hold all together and hold `shown`; a part that one side
    does not have took no time there. None where launches are too few, as in `part_intervals`."""
    reach = mean_reach(before, after, paired, among) if len(shown) else None
    if reach is None:
        return None
    sides = before.mean(axis=1), after.mean(axis=1)
    reach = reach + IN_COMMON * (sides[0] + sides[1]) + resolution_ns / 2
    middle = sides[1] - sides[0]
    return np.minimum(middle - reach, shown), np.maximum(middle + reach, shown)
