"""Outputs are judged by what their dtype explains; what nobody should time is called out."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from model_profiling.analysis.agreement import Agreement, agreement_of
from model_profiling.report.words import agreement_sentence

REFERENCE = np.linspace(-1, 1, 1000).astype(np.float32)


def judged(ours: npt.NDArray[Any], dtype: str, right: str = "eager") -> Agreement:
    agreement = agreement_of("on", [ours], right, [REFERENCE], dtype)
    assert agreement is not None
    return agreement


@pytest.mark.parametrize(
    ("noise", "agreeing"),
    [
        (1e-6, {"fp32", "fp16", "int8-dynamic", "int8", "int4"}),
        (1e-2, {"fp16", "int8-dynamic", "int8", "int4"}),
        (0.1, {"int8-dynamic", "int8", "int4"}),
        (0.2, {"int8", "int4"}),
        (1.0, set()),
    ],
)
def test_an_error_agrees_with_some_dtypes_and_not_with_others(noise: float, agreeing: set[str]) -> None:
    ours = REFERENCE + noise * np.random.default_rng(0).choice([-1, 1], 1000).astype(np.float32)
    seen = {d for d in ("fp32", "fp16", "int8-dynamic", "int8", "int4") if judged(ours, d).verdict == "agrees"}
    assert seen == agreeing


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
