"""Are the outputs right? As far as the dtype explains; and outputs that nobody should time: NaN, infinite, constant."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from model_profiling.base.dtypes import Limit, dtype_of
from model_profiling.store.artifacts import DtypeCost

Verdict = Literal["agrees", "differs"]


# What rounding does in a dtype of which the export measured what it costs.
_ROUNDING_ELSE = Limit(5e-2, 30.0)
# A program of unknown origin, perhaps quantized, whose dtype's cost nobody measured.
_UNKNOWN = Limit(3e-1, 8.0)


def judge(
    max_abs_error: float, max_abs_reference: float, sqnr_db: float | None, dtype: str, cost: DtypeCost | None
) -> Verdict:
    """Say whether outputs agree as far as their dtype explains."""
    if max_abs_error == 0:
        return "agrees"
    if not np.isfinite(max_abs_error) or not max_abs_reference:
        return "differs"
    known = dtype_of(dtype).numerics
    limit = known.rounding or (_UNKNOWN if cost is None else _ROUNDING_ELSE)
    error, least = limit.error * max_abs_reference, limit.sqnr_db
    if cost is not None and cost.sqnr_db is not None:
        # The same dtype rounded in another order is a second sample of the same noise.
        error = max(error, known.room.error * cost.max_abs_error)
        least = min(least, cost.sqnr_db - known.room.noise_db)
    within = max_abs_error <= error and (sqnr_db is None or sqnr_db >= least)
    return "agrees" if within else "differs"


def suspicious(arrays: list[npt.NDArray[Any]], whose: str = "") -> list[str]:
    """Name the outputs that hold NaN or infinity, and those whose values are all the same: not worth timing."""
    found = []
    for index, array in enumerate(arrays):
        if not np.issubdtype(array.dtype, np.floating):
            continue
        bad = int(np.sum(~np.isfinite(array)))
        if bad:
            found.append(f"output {index}{whose} has {bad} of {array.size} values NaN or infinite")
        elif array.size > 1 and np.ptp(array) == 0:
            found.append(f"output {index}{whose} is constant: all {array.size} values are {float(array.flat[0]):g}")
    return found
