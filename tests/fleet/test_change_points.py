"""Steps in forged series: hardly ever one where there is none, and a real one is found where it is."""

from collections.abc import Callable

import numpy as np
import pytest

from model_profiling.fleet.history.steps import change_points

Draw = Callable[[np.random.Generator], "np.typing.NDArray[np.float64]"]
RUNS = 60
SERIES = 400
QUIET: dict[str, Draw] = {
    "normal": lambda rng: rng.normal(2.7, 0.027, RUNS),
    "lognormal": lambda rng: rng.lognormal(1.0, 0.3, RUNS),
    "Student t, 2 degrees of freedom": lambda rng: 100 + rng.standard_t(2, RUNS),
    "spikes": lambda rng: rng.normal(2.7, 0.027, RUNS) + (rng.random(RUNS) < 0.1) * rng.exponential(1.0, RUNS),
    "ten runs": lambda rng: rng.normal(2.7, 0.027, 10),
    "neighbours alike": lambda rng: 2.7 + 0.01 * _alike(rng, 0.3),
    "a steady drift": lambda rng: np.linspace(2.7, 3.2, RUNS) + rng.normal(0, 0.027, RUNS),
}


def _alike(rng: np.random.Generator, correlation: float) -> "np.typing.NDArray[np.float64]":
    noise, found = rng.normal(size=RUNS), np.zeros(RUNS)
    for place in range(1, RUNS):
        found[place] = correlation * found[place - 1] + noise[place]
    return found


@pytest.mark.parametrize("kind", QUIET)
def test_at_most_one_series_in_a_hundred_without_a_step_has_one(kind: str) -> None:
    rng = np.random.default_rng(7)
    alarms = sum(bool(change_points(QUIET[kind](rng).tolist())) for _ in range(SERIES))
    assert alarms <= SERIES / 100


@pytest.mark.wide
@pytest.mark.parametrize("percent", [5, -5])
def test_a_step_of_five_percent_in_noise_of_one_is_found_where_it_is(percent: int) -> None:
    rng = np.random.default_rng(8)
    found = 0
    for _ in range(SERIES):
        place = int(rng.integers(8, RUNS - 8))
        series = rng.normal(1.0, 0.01, RUNS)
        series[place:] *= 1 + percent / 100
        steps = change_points(series.tolist())
        found += [abs(step.index - place) <= 1 and abs(step.percent - percent) < 1.5 for step in steps] == [True]
    assert found >= 0.95 * SERIES


def test_several_steps_are_told_apart() -> None:
    rng = np.random.default_rng(9)
    series = np.concatenate([level * rng.normal(1, 0.01, 20) for level in (1.0, 1.05, 0.98)])
    steps = change_points(series.tolist())
    assert [step.index for step in steps] == [20, 40]
    assert steps[0].percent == pytest.approx(5, abs=1) and steps[1].percent == pytest.approx(-6.7, abs=1)


def test_the_same_series_always_has_the_same_steps() -> None:
    series = np.random.default_rng(10).normal(1, 0.01, RUNS)
    series[30:] *= 1.03
    assert change_points(series.tolist()) == change_points(series.tolist()) != []


@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 50, [1.0, 2.0] * 30, [0.0] * 20 + [1.0] * 20, [1.0] * 9])
def test_what_has_no_spread_or_hardly_any_runs_is_no_trouble(series: list[float]) -> None:
    assert change_points(series) == []


def test_equal_values_with_a_step_between_them_have_one() -> None:
    (step,) = change_points([1.0] * 20 + [1.1] * 20)
    assert step.index == 20 and step.percent == pytest.approx(10)


def test_of_a_long_series_the_newest_runs_are_looked_at() -> None:
    rng = np.random.default_rng(11)
    series = rng.normal(1, 0.01, 5000)
    series[100:] *= 1.2
    assert change_points(series.tolist()) == []
    series[4900:] *= 1.05
    assert [step.index for step in change_points(series.tolist())] == [4900]
