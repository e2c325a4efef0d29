"""A ratio comes with an interval that means what it says."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from model_profiling.analysis.timing.intervals import ASSUMED_SPREAD, enough_launches, rank_sum_cut, signed_rank_cut
from model_profiling.analysis.timing.latency import Comparison, compare, summarise
from model_profiling.pipeline.schedule import LEAST_LAUNCHES
from model_profiling.report.words import comparison_sentence
from model_profiling.store.run_directory import Turn

pytestmark = pytest.mark.fast

Placement = Callable[[np.random.Generator, int], np.ndarray]

# How much slower a launch is than the typical one, which depends on where its memory lies: as seen on small networks,
# with two levels, and now and then disturbed by a neighbour.
PLACEMENTS: dict[str, Placement] = {
    "alike": lambda generator, count: generator.normal(0, 0.002, count),
    "normal": lambda generator, count: generator.normal(0, 0.02, count),
    "two levels": lambda generator, count: 0.05 * (generator.random(count) < 0.4) + generator.normal(0, 0.002, count),
    "disturbed": lambda generator, count: (
        generator.normal(0, 0.005, count) + (generator.random(count) < 0.1) * generator.exponential(0.3, count)
    ),
}


def side(
    generator: np.random.Generator, placement: Placement, scale: float, drift: np.ndarray, turns: int = 1, runs: int = 3
) -> list[Turn]:
    """Executions of one experiment: a launch per level of drift, each with its placement, and noise of their own."""
    made = []
    for launch, shift in enumerate(placement(generator, len(drift))):
        for turn in range(turns):
            noise = generator.normal(1, 0.01, runs) + (generator.random(runs) < 0.05) * generator.exponential(0.5, runs)
            ns = [int(1e6 * scale * drift[launch] * math.exp(shift) * value) for value in noise]
            made.append(Turn(launch * turns + turn, float(launch), ns, launch=launch))
    return made


def wandering(generator: np.random.Generator, count: int = 20) -> np.ndarray:
    return np.exp(np.cumsum(generator.normal(0, 0.02, count)))


def compared(seed: int, placement: str, scale: float = 1.0, launches: int = 20, paired: bool = True) -> Comparison:
    generator = np.random.default_rng(seed)
    drift = wandering(generator, launches) if paired else np.ones(launches)
    sides = [side(generator, PLACEMENTS[placement], factor, drift) for factor in (scale, 1.0)]
    return compare(("old", sides[0]), ("new", sides[1]), paired)


@pytest.mark.wide
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_intervals_hold_the_truth_and_equal_things_are_rarely_called_different(placement: str, paired: bool) -> None:
    results = [compared(seed, placement, paired=paired) for seed in range(200)]
    held = sum(result.low <= 1 <= (result.high or 0) for result in results)
    claimed = sum(result.verdict != "no difference seen" for result in results)
    assert held >= 200 * 0.92
    assert claimed <= 200 * 0.05


@pytest.mark.parametrize("launches", [6, 40])
def test_intervals_hold_the_truth_with_few_launches_and_with_many(launches: int) -> None:
    results = [compared(seed, "normal", 1.3, launches) for seed in range(100)]
    assert sum(result.low <= 1.3 <= (result.high or 0) for result in results) >= 100 * 0.92


def test_turns_of_one_launch_are_not_taken_for_independent_evidence() -> None:
    """One process per side, as slow as where its memory lies makes it: no number of turns shows that."""
    claimed = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        sides = [side(generator, PLACEMENTS["normal"], 1.0, np.ones(1), turns=20) for _ in range(2)]
        result = compare(("a", sides[0]), ("b", sides[1]), paired=True)
        assert result.launch_spread_percent is None and (result.resolution_percent or 0) > ASSUMED_SPREAD * 100
        claimed += result.verdict != "no difference seen"
    assert claimed <= 100 * 0.05


def test_two_percent_are_found_where_launches_differ_by_two() -> None:
    found = [compared(seed, "normal", 1.02, launches=100) for seed in range(50)]
    assert sum(result.verdict == "faster" for result in found) >= 45
    assert sum(result.low < 1.02 < (result.high or 0) for result in found) >= 46


def test_slower_is_called_slower_and_the_ratio_is_that_of_the_medians_shown() -> None:
    result = compared(3, "normal", 0.5)
    assert result.verdict == "slower"
    assert result.ratio == result.before_ms / result.after_ms
    assert result.low <= result.ratio <= (result.high or 0)
    thousands = compared(1, "normal", 1.02, launches=3000)
    assert thousands.verdict == "faster" and thousands.launches == 3000


def test_the_spread_between_launches_is_estimated_and_one_bad_launch_does_not_make_it() -> None:
    generator = np.random.default_rng(1)
    level = 1 + 0.02 * generator.standard_normal(60)
    level[7] = 3.0
    latency = summarise([Turn(n, 0.0, [int(1e6 * value)] * 3, launch=n) for n, value in enumerate(level)])
    assert latency.launches == 60
    assert latency.launch_spread_percent == pytest.approx(2.0, rel=0.35)


def test_too_few_turns_say_nothing() -> None:
    generator = np.random.default_rng(4)
    sides = [side(generator, PLACEMENTS["alike"], scale, np.ones(2)) for scale in (1, 3)]
    result = compare(("a", sides[0]), ("b", sides[1]), paired=True)
    assert result.verdict == "no difference seen"
    assert result.high is None and result.resolution_percent is None and not result.reliable
    # What its executions show is an estimate, and said as one.
    assert result.estimate is not None and result.estimate[0] < result.ratio < result.estimate[1]
    assert "estimated from 2 turns" in comparison_sentence(result)
    alone = compare(("a", sides[0][:1]), ("b", [Turn(0, 0.0, [1000])]), paired=True)
    assert alone.estimate is None and "too few turns (1) to say how sure" in comparison_sentence(alone)


def test_ranks_are_cut_where_the_tables_of_wilcoxon_and_of_mann_and_whitney_do() -> None:
    # Published critical values (two-sided, 5 %) are one less: the largest statistic that is still significant.
    assert [signed_rank_cut(n) - 1 for n in (6, 8, 10, 15, 20, 25)] == [0, 3, 8, 25, 52, 89]
    assert [rank_sum_cut(*n) - 1 for n in ((4, 4), (5, 8), (8, 8), (10, 10), (20, 20))] == [0, 6, 13, 23, 127]
    # Where exact counting ends, the normal approximation goes on.
    assert abs(signed_rank_cut(54) - signed_rank_cut(53)) < 30
    assert signed_rank_cut(5000) > 0 and rank_sum_cut(3000, 2000) > 0
    assert [enough_launches(n, n, True) for n in (LEAST_LAUNCHES - 1, LEAST_LAUNCHES)] == [False, True]


def test_outliers_are_counted_and_kept() -> None:
    ns = [1_000_000 + i * 100 for i in range(50)] + [9_000_000]
    latency = summarise([Turn(0, 0.0, ns)])
    assert (latency.runs, latency.outliers, latency.max_ms) == (51, 1, 9.0)
    assert 1.0 <= latency.median_ms < 1.01


def test_a_busy_machine_is_said_and_its_ratio_not_relied_on() -> None:
    generator = np.random.default_rng(5)
    quiet = side(generator, PLACEMENTS["alike"], 1, np.ones(20))
    busy = [
        Turn(turn.turn, turn.at_s, turn.ns, preempted=2, launch=turn.launch)
        for turn in side(generator, PLACEMENTS["alike"], 3, np.ones(20))
    ]
    result = compare(("a", quiet), ("b", busy), paired=True)
    assert result.contended and not result.reliable
    assert not compare(("a", quiet), ("b", quiet), paired=True).contended
    assert any("other processes preempted" in warning for warning in summarise(busy).warnings)
