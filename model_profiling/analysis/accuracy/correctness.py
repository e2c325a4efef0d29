"""Are the outputs right? As far as the dtype explains; and outputs that nobody should time: NaN, infinite, constant."""

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.store.artifacts import DtypeCost

Verdict = Literal["agrees", "differs"]


class Limit(msgspec.Struct, frozen=True):
    """The largest error, as a part of the largest reference value, and the least signal to noise in decibel."""

    error: float
    sqnr_db: float


# What summing in another order or rounding after each layer does: right, whatever the model.
ROUNDING = {"fp32": Limit(1e-3, 60.0)}
ROUNDING_ELSE = Limit(5e-2, 30.0)


class Room(msgspec.Struct, frozen=True):
    """How much more a right program may be off than eager PyTorch of its dtype: times the error, decibel of noise."""

    error: float
    noise_db: float


# The same dtype rounded in another order is a second sample of the same noise. fp16 has more room: eager PyTorch adds
# up in fp32, CPUs with fp16 arithmetic in fp16 (MobileNetV3-Small keeps 40.6 dB in one and 27.0 in the other).
ROOM = {"fp16": Room(8.0, 15.0)}
ROOM_ELSE = Room(3.0, 6.0)
# A program of unknown origin, perhaps quantized, whose dtype's cost nobody measured.
UNKNOWN = Limit(3e-1, 8.0)


def judge(
    max_abs_error: float, max_abs_reference: float, sqnr_db: float | None, dtype: str, cost: DtypeCost | None
) -> Verdict:
    """Say whether outputs agree as far as their dtype explains."""
    if max_abs_error == 0:
        return "agrees"
    if not np.isfinite(max_abs_error) or not max_abs_reference:
        return "differs"
    known = cost is not None or dtype in ("fp32", "fp16")
    limit = ROUNDING.get(dtype, ROUNDING_ELSE) if known else UNKNOWN
    error, least = limit.error * max_abs_reference, limit.sqnr_db
    if cost is not None and cost.sqnr_db is not None:
        room = ROOM.get(dtype, ROOM_ELSE)
        error, least = max(error, room.error * cost.max_abs_error), min(least, cost.sqnr_db - room.noise_db)
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
