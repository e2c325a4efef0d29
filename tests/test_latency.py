"""A ratio comes with an interval that means what it says."""

import numpy as np

from model_profiling.analysis.latency import compare, summarise
from model_profiling.run_directory import Turn


def turns(generator: np.random.Generator, scale: float, drift: np.ndarray, runs: int = 3) -> list[Turn]:
    """Executions of one experiment: shared drift by turn, noise of its own, now and then a neighbour's hiccup."""
    made = []
    for turn, level in enumerate(drift):
        noise = generator.normal(1, 0.01, runs) + (generator.random(runs) < 0.05) * generator.exponential(0.5, runs)
        made.append(Turn(turn, float(turn), [int(1e6 * scale * level * value) for value in noise]))
    return made


def wandering(generator: np.random.Generator, count: int = 20) -> np.ndarray:
    return np.exp(np.cumsum(generator.normal(0, 0.02, count)))


def test_equal_experiments_are_rarely_called_different_even_under_drift() -> None:
    wrong = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        drift = wandering(generator)
        sides = [("a", turns(generator, 1, drift)), ("b", turns(generator, 1, drift))]
        wrong += compare(sides[0], sides[1], paired=True).verdict != "no difference seen"
    assert wrong <= 200 * 0.07


def test_a_five_percent_difference_is_found() -> None:
    found = 0
    for seed in range(50):
        generator = np.random.default_rng(1000 + seed)
        drift = wandering(generator)
        result = compare(("old", turns(generator, 1.05, drift)), ("new", turns(generator, 1, drift)), paired=True)
        found += result.verdict == "faster" and result.low < 1.05 < (result.high or 0) * 1.01
    assert found >= 45


def test_slower_is_called_slower_and_the_order_of_names_matters() -> None:
    generator = np.random.default_rng(3)
    flat = np.ones(20)
    result = compare(("a", turns(generator, 1, flat)), ("b", turns(generator, 2, flat)), paired=True)
    assert result.verdict == "slower"
    assert result.high is not None and result.low < 0.5 < result.high * 1.01


def test_too_few_turns_say_nothing() -> None:
    generator = np.random.default_rng(4)
    result = compare(("a", turns(generator, 1, np.ones(2))), ("b", turns(generator, 3, np.ones(2))), paired=True)
    assert result.verdict == "no difference seen"
    assert result.high is None and result.resolution_percent is None


def test_outliers_are_counted_and_kept() -> None:
    ns = [1_000_000 + i * 100 for i in range(50)] + [9_000_000]
    latency = summarise([Turn(0, 0.0, ns)])
    assert (latency.runs, latency.outliers, latency.max_ms) == (51, 1, 9.0)
    assert 1.0 <= latency.median_ms < 1.01


def test_a_busy_machine_is_said_and_its_ratio_not_relied_on() -> None:
    generator = np.random.default_rng(5)
    quiet = turns(generator, 1, np.ones(20))
    busy = [Turn(turn.turn, turn.at_s, turn.ns, preempted=2) for turn in turns(generator, 3, np.ones(20))]
    assert compare(("a", quiet), ("b", busy), paired=True).contended
    assert not compare(("a", quiet), ("b", quiet), paired=True).contended
    assert any("took the processor away" in warning for warning in summarise(busy).warnings)
