"""The trend page as a reader meets it: in a real browser, from a disk."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sme2_kit
from tests.conftest import ROOT, needs
from tests.helpers.chromium import BINARY, Tab, chromium
from tests.helpers.history_forge import Forge


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
