"""Finds equal values in long columns by hashing, without ever believing a hash."""

from typing import Any

import numpy as np
import numpy.typing as npt

# Odd multipliers (the golden ratio, and primes of xxHash), one per attempt, so that values which collide once part.
_MULTIPLIERS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)


def is_constant(values: npt.NDArray[Any]) -> bool:
    """Say whether a column holds one value only."""
    return bool((values == values[0]).all())


def first_equal(rows: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return, for each row of a column or matrix of integers below 2**32, the index of the first row equal to it.

    Every row points its hash's slot at itself, the first one wins, and each row is then compared with the winner.
    Rows that differ from it try again with another hash, and whatever still collides is sorted, so a file made to
    collide costs time, never a wrong answer.
    """
    matrix = rows.astype(np.uint32, copy=False).reshape(len(rows), -1)
    result = np.empty(len(matrix), np.intp)
    pending = np.arange(len(matrix))
    bits = min(max(len(matrix).bit_length() + 1, 4), 24)
    winners = np.empty(1 << bits, np.intp)
    for multiplier in _MULTIPLIERS:
        slots = _hashes(matrix, multiplier) >> np.uint32(32 - bits)
        winners[slots[::-1]] = np.arange(len(matrix))[::-1]
        winner = winners.take(slots)
        equal = matrix == matrix.take(winner, axis=0)
        if equal.all():
            result[pending] = pending.take(winner)
            return result
        same = equal.all(axis=1)
        result[pending[same]] = pending.take(winner[same])
        pending = pending[~same]
        matrix = matrix[~same]
    _, index, inverse = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    result[pending] = pending.take(index).take(inverse.reshape(-1))
    return result


def _hashes(matrix: npt.NDArray[np.uint32], multiplier: int) -> npt.NDArray[np.uint32]:
    factor = np.uint32(multiplier)
    hashes: npt.NDArray[np.uint32] = matrix[:, 0] * factor
    for column in range(1, matrix.shape[1]):
        hashes ^= matrix[:, column]
        hashes *= factor
        hashes ^= hashes >> np.uint32(15)
    return hashes
