"""Outputs are judged by what their dtype explains; what nobody should time is called out."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from model_profiling.analysis.accuracy.agreement import Agreement, agreement_of
from model_profiling.report.words import agreement_sentence
from model_profiling.store.artifacts import DtypeCost

pytestmark = pytest.mark.fast

REFERENCE = np.linspace(-1, 1, 1000).astype(np.float32)


def judged(ours: npt.NDArray[Any], dtype: str, right: str = "eager", cost: DtypeCost | None = None) -> Agreement:
    agreement = agreement_of("on", [ours], right, [REFERENCE], dtype, cost)
    assert agreement is not None
    return agreement


def off_by(noise: float, seed: int = 0) -> npt.NDArray[Any]:
    return REFERENCE + noise * np.random.default_rng(seed).choice([-1, 1], 1000).astype(np.float32)


@pytest.mark.parametrize(
    ("noise", "agreeing"),
    [(1e-6, {"fp32", "fp16", "unknown"}), (1e-2, {"fp16", "unknown"}), (0.2, {"unknown"}), (1.0, set())],
)
def test_rounding_agrees_and_a_program_of_unknown_origin_has_more_room(noise: float, agreeing: set[str]) -> None:
    seen = {dtype for dtype in ("fp32", "fp16", "unknown") if judged(off_by(noise), dtype).verdict == "agrees"}
    assert seen == agreeing


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int8-dynamic", "int4", "int4-channel"])
def test_a_program_may_be_as_far_off_as_its_dtype_alone_and_no_further(dtype: str) -> None:
    alone = judged(off_by(0.2), dtype)
    assert alone.max_abs_error is not None and alone.cosine is not None
    cost = DtypeCost(alone.max_abs_error, alone.cosine, alone.sqnr_db)
    assert judged(off_by(0.2, seed=1), dtype, cost=cost).verdict == "agrees"
    wrong = judged(off_by(2.0 if dtype == "fp16" else 0.5), dtype, cost=cost)
    assert wrong.verdict == "differs"
    assert f"(the dtype alone: {alone.sqnr_db:.1f} dB); more than the dtype explains" in agreement_sentence(wrong)
    # A dtype that costs nothing gives no room beyond rounding.
    exact = DtypeCost(0.0, 1.0, None)
    assert judged(off_by(0.2), dtype, cost=exact).verdict == "differs"
    assert judged(off_by(1e-2), dtype, cost=exact).verdict == "agrees"


def test_nan_and_constant_outputs_are_named() -> None:
    broken = REFERENCE.copy()
    broken[3] = np.nan
    agreement = judged(broken, "fp16")
    assert agreement.verdict == "differs" and agreement.remarks == ["output 0 has 1 of 1000 values NaN or infinite"]
    constant = judged(np.full(1000, 0.25, dtype=np.float32), "int8")
    assert constant.remarks == ["output 0 is constant: all 1000 values are 0.25"]
    sentence = agreement_sentence(constant)
    assert "more than the dtype explains" in sentence and "output 0 is constant" in sentence


def test_equal_outputs_agree_and_other_shapes_cannot_be_compared() -> None:
    same = judged(REFERENCE, "fp32", "off")
    assert same.verdict == "agrees" and agreement_sentence(same) == "on vs off: identical"
    assert agreement_of("a", [REFERENCE], "b", [REFERENCE[:5]], "fp32") is None


def several(dtype: str, *pairs: tuple[npt.NDArray[Any], npt.NDArray[Any]], cost: DtypeCost | None = None) -> Agreement:
    ours, theirs = map(list, zip(*pairs, strict=True))
    agreement = agreement_of("program", ours, "eager", theirs, dtype, cost)
    assert agreement is not None
    return agreement


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize(("size", "other_size"), [(4, 10_000), (10_000, 4)])
@pytest.mark.parametrize(("scale", "other_scale"), [(1.0, 1.0), (1e-6, 1e6), (1e6, 1e-6)])
@pytest.mark.parametrize("spoil", [np.negative, np.zeros_like, np.roll], ids=["negated", "lost", "moved"])
def test_no_output_hides_behind_another(
    dtype: str, size: int, other_size: int, scale: float, other_scale: float, spoil: Any
) -> None:
    drawn = np.random.default_rng(0)
    mine, other = drawn.normal(0, scale, size), drawn.normal(0, other_scale, other_size)
    right = other * (1 + 1e-7)
    cost = DtypeCost(1e-3 * max(scale, other_scale), 1.0, 60.0) if dtype != "fp32" else None
    wrong = spoil(mine, 1) if spoil is np.roll else spoil(mine)
    each = [DtypeCost(1e-3 * part, 1.0, 60.0) for part in (scale, other_scale)]
    for known in (cost, cost and DtypeCost(cost.max_abs_error, 1.0, 60.0, [*each])):
        assert several(dtype, (mine, mine), (right, other), cost=known).verdict == "agrees"
        if known is None or known.outputs:
            found = several(dtype, (wrong, mine), (right, other), cost=known)
            assert (found.verdict, found.wrong, found.output) == ("differs", True, "output 0")
            assert found.error_of_reference.endswith(" in output 0") and "in output 0" in agreement_sentence(found)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_an_output_that_is_constant_or_zero_agrees_but_for_rounding(dtype: str, value: float) -> None:
    large, flat = 100 * REFERENCE, np.full(8, value, np.float32)
    assert several(dtype, (large, large), (flat, flat), cost=DtypeCost(0.0, 1.0, None)).max_abs_error == 0
    rounded = several(dtype, (large, large), (flat + np.float32(1e-6), flat))
    assert rounded.verdict == "agrees" and not rounded.wrong
    assert several(dtype, (large, large), (flat + np.float32(0.5), flat), cost=DtypeCost(0.0, 1.0, None)).wrong


def test_integers_that_differ_are_said_and_are_not_wrong() -> None:
    places = np.arange(8)
    found = several("fp32", (REFERENCE, REFERENCE), (places[::-1], places))
    assert (found.verdict, found.wrong, found.output) == ("differs", False, "output 1")
