"""Medians and quantiles of rows that are sorted once; numpy's own load its masked arrays, which nobody here has."""

import math

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def median(ordered: Numbers) -> Numbers:
    """Return the middle of each sorted row: the mean of the two in the middle where their number is even."""
    size = ordered.shape[1]
    result: Numbers = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
    return result


def quantile(ordered: Numbers, share: float) -> Numbers:
    """Return what `share` of each sorted row is below, on a straight line between neighbours, as numpy has it."""
    place = share * (ordered.shape[1] - 1)
    low = ordered[:, math.floor(place)]
    high = ordered[:, min(math.floor(place) + 1, ordered.shape[1] - 1)]
    part = place - math.floor(place)
    # From the nearer end, so that nothing is rounded past it.
    result: Numbers = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    return result
