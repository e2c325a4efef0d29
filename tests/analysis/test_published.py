"""What targets are derived from is never shown as a test of them, and the page says what is which."""

import statistics
from pathlib import Path

import msgspec
import pytest

from benchmarks import published, validate_forecast
from model_profiling.analysis.sme2.target import Target, kit_targets, read_target
from model_profiling.analysis.timing.work import Product
from model_profiling.base.errors import InputError
from tests.analysis.test_target import operator, work_of
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "forecast.md"
SERIES = (*published.SERIES, *published.squeeze_sam_series())


def pro() -> Target:
    target = read_target("apple_m4_pro")
    assert isinstance(target, Target)
    return target


def test_a_target_names_what_it_is_derived_from() -> None:
    for target in kit_targets():
        assert target.derived_from and set(target.derived_from) <= published.RESULTS.keys()
        for result in target.derived_from:
            with pytest.raises(InputError, match=f"{target.name} was derived from {result}"):
                published.refuse_test(target, result)


def test_a_published_result_is_a_source_or_a_test() -> None:
    sources = {result for target in kit_targets() for result in target.derived_from}
    for name, result in published.RESULTS.items():
        assert bool(result.tests) != (name in sources), name
    assert {series.result for series in SERIES} <= published.RESULTS.keys()


def test_a_source_is_not_shown_as_a_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As soon as a target is derived from SqueezeSAM, its table is refused and the others call it a source."""
    fitted = msgspec.structs.replace(pro(), derived_from=["squeeze_sam", "squeeze_sam_threads"])
    monkeypatch.setattr(validate_forecast, "read_target", lambda _: fitted)
    monkeypatch.setattr(published, "read_target", lambda _: fitted)
    monkeypatch.setattr(published, "kit_targets", lambda: [fitted])
    with pytest.raises(InputError, match="agreement with it says nothing"):
        validate_forecast.published_table(tmp_path)
    results, threads = published.result_table().splitlines(), published.thread_table().splitlines()
    assert all("source of `apple_m4_pro`" in line for line in results if "SqueezeSAM" in line)
    assert all(line.endswith("| source |") for line in threads if "SqueezeSAM" in line)


@pytest.mark.parametrize("name", published.TABLES)
def test_the_page_has_the_tables_that_are_made(name: str) -> None:
    text = PAGE.read_text()
    made = published.TABLES[name]()
    assert validate_forecast.replace_part(text, name, made) == text, "python -m benchmarks.validate_forecast"


def test_the_page_shows_no_source_as_a_test() -> None:
    text = PAGE.read_text()
    assert not any(wrong in text for wrong in ("3.65x", "3.42x", "arm_c1`", "<!-- phone -->"))


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.name)
def test_every_published_point_lies_in_the_range(series: published.Series) -> None:
    target = pro()
    points = published.points(series, target)
    assert points
    for threads, _, part, (low, high) in points:
        assert low <= part <= high, (series.name, threads)
        gain = series.gain(threads)
        least, most = published.gain_range(target, threads)
        assert least < most and (gain is None or least <= gain <= most)


def test_the_expected_part_is_the_median_of_what_it_was_taken_from() -> None:
    target = pro()
    assert target.threads is not None
    assert f"{target.threads.sharing.value:.2f}." == published.thread_table().rpartition(" ")[2]


def test_a_target_gives_back_what_it_is_derived_from() -> None:
    """That is no test of the target, but of the numbers in its file."""
    gains = {}
    for name, product in (("arm_phone", Product(100, 1280, 640)), ("arm_c1_pro", Product(3136, 64, 576))):
        gain = read_target(name).gain(operator(work_of(product)))
        assert gain is not None
        gains[name] = gain
    assert gains["arm_phone"].times == pytest.approx(1.269 / 0.382, rel=0.02)
    # Of the whole network: what is in it besides matrix operators gains nothing.
    assert gains["arm_c1_pro"].low == pytest.approx(339.4 / 99.0, rel=0.03)


def test_rates_of_kleidiai_that_no_target_is_derived_from_come_out() -> None:
    """fp32 on an M4 Pro, from 16 to 4096 cubed: what a product's fixed part and what is read again explain."""
    target = pro()
    published.refuse_test(target, "mtgemm_kleidiai")
    errors = [abs(published.both_packed_rate(target, *sizes) / rate - 1) for sizes, rate in published.MTGEMM.items()]
    assert statistics.median(errors) < 0.05 and max(errors) < 0.2
