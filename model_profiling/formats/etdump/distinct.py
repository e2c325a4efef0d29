"""Finds equal values in long columns by hashing, without ever believing a hash."""

from typing import Any

import numpy as np
import numpy.typing as npt

# Odd multipliers (the golden ratio, and primes of xxHash), one per attempt, so that values which collide once part.
_MULTIPLIERS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)
# Up to this many distinct values are found by comparing the column with each, which beats hashing it.
FEW = 8
# The first attempt hashes this many words of a row, mostly its last, where operators' names differ (`#1`, `#2`).
_SAMPLED = 4


def groups(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp] | None]:
    """Number the distinct values of a column: where each first occurs, and each element's number (None: all equal)."""
    rest = values != values[0]
    owners = [0]
    if not rest.any():
        return np.array(owners), None
    numbers = np.zeros(len(values), np.intp)
    while len(owners) < FEW:
        owner = int(rest.argmax())
        members = values == values[owner]
        numbers[members] = len(owners)
        owners.append(owner)
        rest ^= members
        if not rest.any():
            return np.array(owners), numbers
    first = first_equal(values)
    is_first = first == np.arange(len(first))
    return np.flatnonzero(is_first), (np.cumsum(is_first) - 1).take(first)


def first_equal(rows: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return, for each row of a column or matrix of integers below 2**32, the index of the first row equal to it.

    Every row points its hash's slot at itself, the first one wins, and each row is then compared with the winner.
    Rows that differ from it try again with another hash, and whatever still collides is sorted, so a file made to
    collide costs time, never a wrong answer.
    """
    matrix = rows.astype(np.uint32, copy=False).reshape(len(rows), -1)
    winner, same = _winners(matrix, 0)
    if same is None:
        return winner
    result = winner
    pending = np.flatnonzero(~same)
    for attempt in range(1, len(_MULTIPLIERS)):
        matrix = matrix[~same]
        winner, same = _winners(matrix, attempt)
        result[pending] = pending.take(winner)
        if same is None:
            return result
        pending = pending[~same]
    matrix = matrix[~same]
    _, index, inverse = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    result[pending] = pending.take(index).take(inverse.reshape(-1))
    return result


def _winners(matrix: npt.NDArray[np.uint32], attempt: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_] | None]:
    """Return, for each row, the first row with the same hash, and whether the two are equal (None: all are)."""
    bits = min(max(len(matrix).bit_length() + 1, 4), 24)
    slots = (_hashes(matrix, _MULTIPLIERS[attempt], sampled=attempt == 0) >> np.uint32(32 - bits)).astype(np.intp)
    table = np.empty(1 << bits, np.intp)
    table[slots[::-1]] = np.arange(len(matrix))[::-1]
    winner = table.take(slots)
    equal = matrix == matrix.take(winner, axis=0)
    return winner, None if equal.all() else equal.all(axis=1)


def _hashes(matrix: npt.NDArray[np.uint32], multiplier: int, sampled: bool) -> npt.NDArray[np.uint32]:
    factor = np.uint32(multiplier)
    width = matrix.shape[1]
    columns = [0, *range(width - _SAMPLED + 1, width)] if sampled and width > _SAMPLED else list(range(width))
    hashes: npt.NDArray[np.uint32] = matrix[:, columns[0]] * factor
    for column in columns[1:]:
        hashes ^= matrix[:, column]
        hashes *= factor
        hashes ^= hashes >> np.uint32(15)
    return hashes
