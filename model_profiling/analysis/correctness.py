"""Are the outputs right? Limits by dtype, and outputs that nobody should time: NaN, infinite, constant."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Verdict = Literal["agrees", "differs", ""]


@dataclass(frozen=True)
class Limit:
    """The largest error, as a part of the largest reference value, and the least signal to noise in decibel."""

    error: float
    sqnr_db: float


# Against eager PyTorch. fp16's is rounding that adds up over many layers; the quantized ones' is quantization itself,
# calibrated on few samples and, without a checkpoint, of random weights: looser than what a shipped model should have.
AGAINST_EAGER = {
    "fp32": Limit(1e-3, 60.0),
    "fp16": Limit(5e-2, 30.0),
    "int8": Limit(3e-1, 8.0),
    "int8-dynamic": Limit(2e-1, 15.0),
    "int4": Limit(3e-1, 8.0),
}
# Two ways to run the same program: what summing in another order does.
BETWEEN_RUNS = {"fp32": Limit(1e-3, 60.0), "fp16": Limit(5e-2, 30.0)}
OTHERWISE = Limit(3e-1, 8.0)


def judge(max_abs_error: float, max_abs_reference: float, sqnr_db: float | None, dtype: str, eager: bool) -> Verdict:
    """Say whether outputs agree as far as their dtype allows; '' where there is nothing to go by (an empty output)."""
    limit = (AGAINST_EAGER if eager else BETWEEN_RUNS).get(dtype, OTHERWISE)
    if max_abs_error == 0:
        return "agrees"
    if not np.isfinite(max_abs_error) or not max_abs_reference:
        return "differs"
    within = max_abs_error <= limit.error * max_abs_reference and (sqnr_db is None or sqnr_db >= limit.sqnr_db)
    return "agrees" if within else "differs"


def suspicious(arrays: list[npt.NDArray[Any]]) -> list[str]:
    """Name the outputs that hold NaN or infinity, and those whose values are all the same."""
    found = []
    for index, array in enumerate(arrays):
        if not np.issubdtype(array.dtype, np.floating):
            continue
        bad = int(np.sum(~np.isfinite(array)))
        if bad:
            found.append(f"output {index} has {bad} of {array.size} values NaN or infinite")
        elif array.size > 1 and np.ptp(array) == 0:
            found.append(f"output {index} is constant: all {array.size} values are {float(array.flat[0]):g}")
    return found
