"""The forecast held against a machine: how errors are counted, what is shared, and what it is a target for."""

import json
import string
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from model_profiling.analysis.run import run_forecasts
from model_profiling.analysis.sme2.forecast_validation import (
    TOLERANCE,
    FailedModel,
    ForecastValidation,
    ValidatedGain,
    ValidatedModel,
    ValidatedOperator,
    ValidatedTime,
    check_prediction,
    errors_of,
    read_validation,
    shareable,
    shared_environment,
    shared_roofs,
)
from model_profiling.analysis.sme2.kernel_table import TableDifference
from model_profiling.analysis.sme2.target import MeasuredTarget, read_target
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.report import markdown
from model_profiling.report.content import validation as validation_page
from model_profiling.report.files.page_files import write_validation
from tests.analysis.test_target import measured_roofs, operator, work_of
from tests.helpers.contract_check import check_printed

pytestmark = pytest.mark.fast
MS = st.floats(1e-3, 1e4)
RATIO = st.floats(0.2, 20)
PRIVATE = "jane-laptop"


def held(predicted: float, on: float = 1.0, bounds: tuple[float, float] | None = (1.98, 2.02)) -> ValidatedTime:
    return check_prediction(2.0, predicted, on, *(bounds or (None, None)))


def model(time: ValidatedTime, **more: Any) -> ValidatedModel:
    rest: dict[str, Any] = {"switched": ["sme2"], "threads": 1, "operators": [], "not_timed": 0, **more}
    return ValidatedModel("net", "fp32", time=time, **rest)


def validation(*models: ValidatedModel, features: tuple[str, ...] = ("dot", "sme2"), **more: Any) -> ForecastValidation:
    machine = {"cpu": "Some CPU", "arch": "aarch64", "system": "Linux 6.1.0", "cores": 8}
    environment = shared_environment("linux", features, machine)
    roofs = shared_roofs(measured_roofs(4.0))
    return ForecastValidation("2026-01-02T03:04:05+00:00", "1", "1.5.1", environment, roofs, list(models), **more)


@given(MS, MS, MS, RATIO, RATIO)
def test_a_prediction_inside_the_interval_is_not_off_and_one_outside_by_the_distance(
    off: float, predicted: float, on: float, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    time = check_prediction(off, predicted, on, low, high)
    assert time.low_ms is not None and time.high_ms is not None and time.outside is not None
    assert time.low_ms <= on <= time.high_ms, "what was measured lies in its own interval"
    assert (time.outside == 0) == (time.low_ms <= predicted <= time.high_ms)
    assert abs(time.outside) <= abs(time.error) * (1 + 1e-9) + 1e-12 and time.outside * time.error >= 0
    if time.outside:
        near = time.high_ms if time.outside > 0 else time.low_ms
        assert near * (1 + time.outside) == pytest.approx(predicted)


@given(MS, MS, MS, st.sampled_from([(None, 2.0), (1.0, None), (0.0, 1.0), (1.0, float("inf")), (2.0, 1.0)]))
def test_without_an_interval_noise_is_not_known_and_counts_as_error(
    off: float, predicted: float, on: float, bounds: tuple[float | None, float | None]
) -> None:
    time = check_prediction(off, predicted, on, *bounds)
    assert time.outside is None and time.low_ms is None and time.off_by == abs(predicted / on - 1)
    assert time.outcome == ("right" if time.off_by <= TOLERANCE else "wrong")


@given(st.lists(st.floats(0.1, 5), max_size=30))
def test_errors_are_in_order(predicted: list[float]) -> None:
    errors = errors_of(map(held, predicted))
    if errors is None:
        assert not predicted
    else:
        assert 0 <= errors.median <= errors.nine_in_ten * (1 + 1e-9) and errors.count == len(predicted)
        assert errors.nine_in_ten <= errors.worst * (1 + 1e-9)


def test_the_verdict_is_that_of_most_models_and_unknown_where_noise_hides_it() -> None:
    right, wrong = model(held(1.05)), model(held(1.5))
    noisy = model(held(1.5, bounds=(1.2, 4.0)))
    assert [each.time.outcome for each in (right, wrong, noisy)] == ["right", "wrong", "too noisy to tell"]
    assert validation().verdict == validation(noisy).verdict == validation(right, noisy, noisy).verdict == "unknown"
    assert validation(right).verdict == validation(right, noisy).verdict == "holds"
    assert validation(right, wrong).verdict == "holds in part"
    assert validation(right, wrong, wrong).verdict == "does not hold"


def test_the_measured_gain_is_held_against_that_of_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    change = SimpleNamespace(before_ms=4.0, after_ms=2.0, low=1.9, high=2.1)
    run: Any = SimpleNamespace(summary=SimpleNamespace(comparisons=[SimpleNamespace(before="off", execute=change)]))
    forecast = SimpleNamespace(experiment="off", speedups=[4.2], speedup_range=(3.0, 5.0))
    monkeypatch.setattr(run_forecasts, "forecasts", lambda *_, **__: [forecast])
    found = run_forecasts.validated_gain(run)
    assert found.target == "apple_m4" and found.measured == 2 and found.outside == pytest.approx(1)
    change.low = None
    assert run_forecasts.validated_gain(run).outside is None


TEXT = st.text(string.printable, max_size=20)
NAMES = st.text(string.ascii_letters + string.digits + "_-. ", min_size=1, max_size=12).map(str.strip).filter(bool)


@given(st.dictionaries(TEXT, st.just(PRIVATE) | st.dictionaries(TEXT, st.just(PRIVATE))))
def test_nothing_of_an_environment_is_shared_but_what_explains_numbers(facts: dict[str, Any]) -> None:
    odd: dict[str, Any] = {"host": PRIVATE, "device": {"serial": PRIVATE, "host": PRIVATE}, "build": PRIVATE}
    odd |= {
        "python": PRIVATE,
        "system": f"Linux 6.1.0-{PRIVATE}",
        "sme_units": {"shared_by": [4, 4], "source": PRIVATE},
    }
    odd |= {"memory_bytes": 16 << 30, "sme_vector_bytes": "64", "cores": 8, "cpu": "Some CPU"}
    environment = {**{name: value for name, value in facts.items() if name not in ("cpu", "arch")}, **odd}
    shared = shared_environment("linux", ["sme2"], environment)
    roofs = shared_roofs(msgspec.structs.replace(measured_roofs(2.0), environment=environment))
    written = msgspec.json.encode(validation()).decode() + msgspec.json.encode([shared, roofs]).decode()
    assert PRIVATE not in written
    assert (shared.vector_bits, shared.cores, shared.memory_gib, shared.system) == (512, 8, 16, "Linux 6.1.0")
    assert shared.sme_units == [4, 4] and shared.sme2


@given(
    st.lists(NAMES, min_size=2, max_size=5), st.sampled_from(["{}: not there", "cannot read '{}'", "see {}", "({})"])
)
def test_files_are_called_by_their_names_alone(parts: list[str], words: str) -> None:
    folder = "/" + "/".join(parts[:-1])
    said = shareable(words.format(f"{folder}/{parts[-1]}"), [folder])
    assert "/" not in said and said == words.format(parts[-1])


def test_paths_nobody_told_of_lose_their_folders_and_other_words_stay() -> None:
    said = "model /home/jane/nets/a.pte: 12 tokens/s, and/or ~/b/c.py, off/on (/tmp/x/)"
    assert shareable(said) == "model a.pte: 12 tokens/s, and/or c.py, off/on (x)"


@given(NAMES, st.sampled_from(["{} does not answer", "no route to '{}'", "see {}: lost", "{}:22 refused"]))
def test_machines_and_people_are_called_by_no_name(name: str, words: str) -> None:
    assert PRIVATE not in shareable(words.format(PRIVATE), names=[PRIVATE, "", "x"])
    assert shareable(f"x{name}y stays", names=[f"{name}y"]) == f"x{name}y stays"


def test_roofs_with_sme_in_place_of_sme2_are_no_part_of_a_target() -> None:
    roofs = measured_roofs(4.0)
    older = msgspec.structs.replace(roofs.measurements[1], active=["dot", "sme"])
    shared = shared_roofs(msgspec.structs.replace(roofs, measurements=[older, *roofs.measurements]))
    assert shared.measurements == roofs.measurements


def test_the_file_of_a_machine_with_sme2_is_a_target(tmp_path: Path) -> None:
    path = write_validation(validation(model(held(1.0))), tmp_path)[0]
    check_printed("forecast_validation", json.loads(path.read_bytes()))
    assert read_validation(path) == validation(model(held(1.0)))
    target = read_target(path)
    assert isinstance(target, MeasuredTarget) and target.cpu == "Some CPU"
    gain = target.gain(operator(work_of(measured_roofs(4.0).measurements[0].probes[0].work.product)))  # type: ignore[arg-type]
    assert gain is not None and gain.times == pytest.approx(4)
    with pytest.raises(InputError, match="not measured in fp16"):
        target.refuse({"fp16"})


def test_a_file_without_sme2_or_with_another_number_is_no_target(tmp_path: Path) -> None:
    other = validation(model(held(1.0), switched=["fp16arith"]), features=("fp16arith",))
    path = write_validation(other, tmp_path)[0]
    with pytest.raises(InputError, match=r"is no target: Some CPU, .* has no SME2 \(switched: fp16arith\)"):
        read_target(path)
    path = write_validation(validation(), tmp_path)[0]
    data = json.loads(path.read_bytes())
    data["roofs"]["measurements"][0]["probes"][0]["best_ms"] *= 2
    files.write_json(path, data)
    with pytest.raises(InputError, match="have changed since they were measured"):
        read_target(path)
    files.write_json(path, {"kind": "forecast_validation", "schema": 1, "roofs": 5})
    with pytest.raises(InputError):
        read_target(path)


def test_the_page_says_the_verdict_first_and_what_was_not_tested(tmp_path: Path) -> None:
    product = ValidatedOperator("FC #1", "GEMM", "fully connected", "8 x 8 by 8 x 8", "as a probe gains", held(1.5))
    gain = ValidatedGain("apple_m4", 4.0, 3.0, 5.0, 2.0, 1.9, 2.1, 0.9)
    differs = TableDifference("FC #1", 3, "kai_sme2", "none", "differs", "")
    tested = validation(
        model(held(1.05), operators=[product], gain=gain, traced=3, differences=[differs], warnings=["busy"]),
        model(held(1.5), not_traced="no kernel trace: macOS", no_gain="kernels cannot be traced here"),
        failed=[FailedModel("other", "int8", "cannot be exported")],
    )
    page = markdown.render(validation_page.page_report(tested))
    order = ["holds in part", "## Measured on", "## By model", "## Worst operators", "## What SME2 gains", "## Table"]
    assert sorted(order, key=page.index) == order and "SME2 itself" not in page
    found = ("1 right, 1 wrong", "other int8 failed: cannot be exported", "4.00x (3.00 to 5.00)", "+90.0 %")
    for words in (*found, "right of 2, wrong of 1", "kai_sme2", "Not traced here (1 model)", "busy", "macOS"):
        assert words in page, words
    other = validation(model(held(1.0), switched=["fp16arith"]), features=("fp16arith",))
    page = markdown.render(validation_page.page_report(other))
    assert "SME2 itself was not tested" in page and "fp16arith" in page and "What SME2 gains" not in page
    assert "<table" in write_validation(other, tmp_path)[1].read_text()
    assert "No model was measured" in markdown.render(validation_page.page_report(validation()))
