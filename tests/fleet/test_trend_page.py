"""The trend page as a reader meets it: in a real browser, from a disk."""

import datetime
import importlib.util
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import sme2_kit
from model_profiling.fleet.history import trend_page
from model_profiling.fleet.history.history_records import Point
from model_profiling.fleet.history.trends import Series, Step, StepState, Trend
from model_profiling.report.charts.frame import NARROW, WIDE
from model_profiling.report.charts.placing import Flag, flag_lines
from model_profiling.report.charts.trend import axis_of
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.store.labels import Revision
from tests.conftest import ROOT, needs
from tests.helpers.chromium import BINARY, Tab, chromium
from tests.helpers.history_forge import FIRST, Forge
from tests.helpers.page_fit import misfits

STATES: list[StepState] = ["confirmed", "candidate", "program not kept", "same program", "refuted"]


def series(factors: Sequence[float], hours: float = 24.0, spread: float = 0.01, steps: Sequence[int] = ()) -> Series:
    """Runs of 2.7 ms times `factors`, so many hours apart, with steps where one says."""
    points = []
    for n, factor in enumerate(factors):
        made = (FIRST + datetime.timedelta(hours=hours * n)).isoformat()
        measured = (made, 2.7 * float(factor), 2.7 * spread, 30)
        points.append(Point(*measured, f"r{n}", Revision(), {}, "0", "a" * 64, "p"))
    found = []
    for number, place in enumerate(steps):
        before, after = points[place - 1].median_ms, points[place].median_ms
        what = (place, points[place].created, (after / before - 1) * 100, before, after, 0.001)
        found.append(Step(*what, STATES[number % 5], "a" * 64, "b" * 64, "x", "y", ("", ""), "a step"))
    name = f"series of {len(points)}"
    return Series(name, "fp16", "", "linux", "board", "on", 1, [], "", "untraced executions", points, found)


def normal(runs: int, spread: float, steps: Sequence[int] = ()) -> list[float]:
    found = np.random.default_rng(1).normal(1, spread, runs).clip(0.2)
    for place in steps:
        found[place:] *= 1.06
    return [float(each) for each in found]


MANY_STEPS = (30, 36, 42, 120, 180, 190)
SERIES = {
    "two": series([1, 1.03]),
    "constant": series([1.0] * 10, hours=2, spread=0),
    "noisy": series(normal(10, 0.05), hours=0.3, spread=0.04),
    "step": series(normal(40, 0.01, [25]), steps=[25]),
    "many": series(normal(200, 0.01, MANY_STEPS), hours=5, steps=MANY_STEPS),
    "wild": series([*normal(60, 0.3), 9.0], hours=0.01),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("trend")
    factors = np.random.default_rng(1).normal(1, 0.01, 40)
    factors[25:] *= 1.06
    revision = {"commit": "3f9c2a1b" * 5, "branch": "main", "dirty": False}
    root = Forge(ROOT / "tests" / "data" / "known_good_run").series(
        home / "out_toy_cnn" / "runs" / "linux", factors.tolist(), ["a" * 64] * 25 + ["b" * 64] * 15, revision=revision
    )
    for label in ("r3", "r30"):
        (root / "earlier" / label / "report.html").write_text(f"<h1>report of {label}</h1>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SME2_KIT_CACHE", str(home / "cache"))
        return sme2_kit.history(home).report(home / "trend.html")[0]


@pytest.fixture(scope="module")
def tab(page: Path) -> Iterator[Tab]:
    needs(BINARY is not None, "chromium")
    needs(importlib.util.find_spec("websocket") is not None, "websocket-client")
    with chromium() as opened:
        opened.open(page)
        yield opened


def test_it_opens_without_errors_asks_for_nothing_and_fits(tab: Tab, page: Path) -> None:
    assert tab.requests == [page.resolve().as_uri()] and tab.errors == []
    for width in (1100, 390):
        tab.resize(width)
        assert tab.value("document.documentElement.scrollWidth <= innerWidth")
    tab.resize(1100)


def test_every_run_is_a_point_that_says_what_it_is_and_leads_to_its_report(tab: Tab) -> None:
    points = "#series_1 .wide svg [aria-roledescription='point']"
    titles = tab.value(f"[...document.querySelectorAll(\"{points}\")].map((p) => p.querySelector('title').textContent)")
    assert len(titles) == 40
    assert titles[3].startswith("2026-01-04T09:30, r3: 2.") and "commit 3f9c2a1b3f9c on main" in titles[3]
    links = tab.value("[...document.querySelectorAll('#series_1 .wide svg a')].map((a) => a.getAttribute('href'))")
    assert links == [f"out_toy_cnn/runs/linux/earlier/{label}/report.html" for label in ("r3", "r30")]


def test_steps_are_marked_and_the_table_sorts_by_a_click(tab: Tab) -> None:
    text = tab.value("document.querySelector('#series_1 .wide svg').textContent")
    assert "program not kept" in text
    assert "%" in tab.value("document.querySelector('#series_1 ul').textContent")
    head = '[data-table="runs_1"] th:nth-child(5) button'
    cells = "[...document.querySelectorAll('[data-table=\"runs_1\"] td:nth-child(5)')]"
    values = f"{cells}.map((cell) => Number(cell.dataset.value))"
    tab.value(f"document.querySelector('{head}').click()")
    assert tab.value(values) == sorted(tab.value(values), reverse=True)
    tab.value(f"document.querySelector('{head}').click()")
    assert tab.value(values) == sorted(tab.value(values))


def test_light_and_dark_are_one_click_apart(tab: Tab) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    point = "getComputedStyle(document.querySelector(\"#series_1 svg [aria-roledescription='point']\")).fill"
    before = tab.value(paper), tab.value(point)
    tab.value("document.getElementById('theme').click()")
    after = tab.value(paper), tab.value(point)
    assert before[0] != after[0] and before[1] != after[1]


def dots(name: str) -> list[float]:
    return [point.median_ms for point in SERIES[name].points]


def test_noise_takes_a_small_part_of_the_axis_and_a_step_a_visible_one() -> None:
    for name, found in SERIES.items():
        values, axis = dots(name), axis_of(trend_page.dots(found))
        between = float(np.median(np.abs(np.diff(values))))
        assert (axis.high - axis.low) >= max(12 * between, 0.2 * np.median(values)) * 0.999 or not axis.low, name
        assert axis.low <= min(values) and ("starts at zero" in axis.words) == (axis.low == 0)
    axis = axis_of(trend_page.dots(SERIES["step"]))
    values = dots("step")
    assert np.median(values[25:]) - np.median(values[:25]) > 0.25 * (axis.high - axis.low)
    assert axis_of(trend_page.dots(SERIES["wild"])).low == 0.0
    assert axis_of(trend_page.dots(series([0.0, 0.0]))).high > 0


@pytest.mark.parametrize(("hours", "shown"), [(24, ["2026-01-01"]), (2, ["2026-01-01", "09:30"])])
def test_days_have_times_where_there_are_several_runs_a_day(hours: float, shown: list[str]) -> None:
    spec = trend_page.picture(series([1.0] * 12, hours=hours), WIDE, LIGHT, "")
    axis = spec["layer"][0]["encoding"]["x"]["axis"]
    assert f'{{"1": {shown!s}'.replace("'", '"') in axis["labelExpr"] and len(axis["values"]) <= 6


def test_names_of_steps_are_over_no_other_wherever_steps_are() -> None:
    chance = random.Random(1)
    for _ in range(300):
        plot, wide = chance.choice([250, 670]), chance.randint(40, 160)
        places = [chance.uniform(0, plot) for _ in range(chance.randint(1, 7))]
        flags = [Flag(at, at - wide if at > plot / 2 else at, wide) for at in places]
        for (a, line), (b, other) in itertools.combinations(zip(flags, flag_lines(flags), strict=True), 2):
            assert line != other or a.x + a.width <= b.x or b.x + b.width <= a.x


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_spread_is_a_wide_pale_bar_and_not_a_line(width: int) -> None:
    for found in SERIES.values():
        mark = trend_page.picture(found, width, LIGHT, "")["layer"][0]["mark"]
        assert mark["color"] == LIGHT.after and mark["opacity"] < 0.5
        assert mark["strokeWidth"] >= (2 if len(found.points) < 100 else 0.7)


def test_all_series_fit_a_screen_and_a_phone(tab: Tab, tmp_path: Path) -> None:
    trend_page.write(Trend(list(SERIES.values())), tmp_path / "all.html")
    tab.open(tmp_path / "all.html")
    assert [*misfits(tab, 1400), *misfits(tab, 390)] == [] == tab.errors
