"""A flatbuffer as an array of 32-bit words, and many of its tables followed at once, every step inside the file.

Nothing here trusts the file. Positions are word indices; everything an ETDump holds starts on a word boundary, except
vtables, which start on a half-word.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model_profiling.base.errors import FormatError
from model_profiling.upstream import etdump_schema

Positions = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

IDENTIFIER = etdump_schema.IDENTIFIER.encode()


class EtdumpError(FormatError):
    """The file is not an ETDump, or not a whole one."""

    format = "ETDump"
    usual_hint = "Run the model again to write it again; if it was copied from a device, copy it again."


class Words:
    """The bytes of one flatbuffer, seen as words, half-words and signed words without copying them."""

    def __init__(self, data: Any, path: Path) -> None:
        self.path = path
        self.root, self.size = _frame(memoryview(data), path)
        self.count = self.size // 4
        self.words: npt.NDArray[np.uint32] = np.frombuffer(data, "<u4", self.count)
        self.signed: npt.NDArray[np.int32] = self.words.view("<i4")
        self.halves: npt.NDArray[np.uint16] = np.frombuffer(data, "<u2", self.size // 2)
        # One 64-bit value from every word on: a size prefix shifts them to odd words.
        self.pairs: npt.NDArray[np.uint64] = np.ndarray((self.count - 1,), "<u8", self.words, 0, (4,))

    def error(self, problem: str, at: int | None = None) -> EtdumpError:
        return EtdumpError(self.path, problem, None if at is None else at * 4)

    def require(self, good: npt.NDArray[np.bool_], at: Positions, problem: str) -> None:
        """Fail at the first position where `good` is false."""
        if not good.all():
            raise self.error(problem, int(at[int(np.argmin(good))]))

    def follow(self, at: Positions, what: str) -> Positions:
        """Take the offsets stored at `at` and return the positions they point to."""
        offsets = self.words.take(at)
        self.require((offsets & 3) == 0, at, f"the offset of {what} is misaligned")
        target: Positions = at + (offsets >> np.uint32(2))
        self.require(target < self.count, at, f"the offset of {what} points past the end of the file")
        return target

    def lengths(self, at: Positions, element_size: int, what: str, terminated: bool = False) -> Positions:
        """Return the lengths of the vectors at `at`, each checked to end inside the file."""
        lengths = self.words.take(at).astype(np.int64)
        ends = at * 4 + 4 + int(terminated) + lengths * element_size
        self.require(ends <= self.count * 4, at, f"{what} is longer than the file")
        return lengths


class Tables:
    """Many tables of one type, nearly all of which share a few vtables."""

    def __init__(self, words: Words, at: Positions, widths: Sequence[int], what: str) -> None:
        self.words = words
        self.at = at
        vtables: Positions = (at << 2) - words.signed.take(at)
        inside = (vtables >= 0) & (vtables + 4 <= words.size)
        words.require(inside, at, f"the vtable of {what} is outside the file")
        if len(at) and (vtables == vtables[0]).all():
            # Sorting takes longer than all else.
            distinct, owners, self._layout = vtables[:1], np.zeros(1, np.intp), np.zeros(len(at), np.intp)
        else:
            distinct, owners, self._layout = np.unique(vtables, return_index=True, return_inverse=True)
        self._offsets, sizes = _layouts(words, distinct, at[owners], widths, what)
        words.require(at + sizes.take(self._layout) <= words.count, at, f"{what} reaches past the end of the file")

    def where(self, field: int) -> tuple[Rows | slice, Positions]:
        """Return which tables hold a field (a full slice: all of them) and where it is in each of those."""
        column = self._offsets[:, field]
        if column.all():
            return slice(None), self.at + column.take(self._layout)
        distances = column.take(self._layout)
        rows = np.flatnonzero(distances)
        return rows, self.at.take(rows) + distances.take(rows)

    def int32(self, field: int, default: int) -> npt.NDArray[np.int32]:
        """Read a signed 32-bit field of every table."""
        rows, at = self.where(field)
        values = np.full(len(self.at), default, np.int32)
        values[rows] = self.words.signed.take(at)
        return values

    def uint64(self, field: int) -> npt.NDArray[np.uint64]:
        """Read an unsigned 64-bit field of every table."""
        rows, at = self.where(field)
        values = np.zeros(len(self.at), np.uint64)
        values[rows] = self.words.pairs[at]
        return values


def _frame(view: memoryview, path: Path) -> tuple[int, int]:
    """Check the header and return the root table's position, in words, and the flatbuffer's end, in bytes."""
    size = len(view)
    if size == 0:
        raise EtdumpError(path, "it is empty", hint="The runner ended before it wrote the trace; see its log.")
    if view[4:8] == IDENTIFIER:
        start, end = 0, size
    elif view[8:12] == IDENTIFIER:
        start, end = 4, 4 + int.from_bytes(view[:4], "little")
        if end > size:
            raise EtdumpError(path, f"it is cut short, {size} of {end} bytes are there")
    else:
        raise EtdumpError(path, "it has no ED00 identifier", 4, "Check that it is a trace, not another kind of file.")
    if end > 1 << 32:
        raise EtdumpError(path, "it is larger than a flatbuffer can be")
    root = start + int.from_bytes(view[start : start + 4], "little")
    if root % 4 or root + 4 > end:
        raise EtdumpError(path, "its root table is outside the file", start)
    return root // 4, end


def _layouts(
    words: Words, vtables: Positions, owners: Positions, widths: Sequence[int], what: str
) -> tuple[Positions, Positions]:
    """Read vtables: each field's distance from its table and the table's size, in words (0 where a field is absent)."""
    words.require(vtables % 2 == 0, owners, f"the vtable of {what} is misaligned")
    half = vtables // 2
    vtable_sizes = words.halves.take(half).astype(np.int64)
    table_sizes = words.halves.take(half + 1).astype(np.int64)
    good = (vtable_sizes >= 4) & (vtable_sizes % 2 == 0) & (vtables + vtable_sizes <= words.size) & (table_sizes >= 4)
    words.require(good, owners, f"the vtable of {what} is malformed")
    fields = np.arange(len(widths))
    width = np.array(widths)
    # A vtable that ends early leaves its last fields out.
    held = vtable_sizes[:, None] >= 6 + 2 * fields
    offsets = np.where(held, words.halves.take(half[:, None] + 2 + fields, mode="clip"), 0).astype(np.int64)
    # A byte-sized field is only ever asked whether it is there.
    good = (offsets == 0) | (
        (offsets >= 4) & (offsets + width <= table_sizes[:, None]) & (offsets % np.minimum(width, 4) == 0)
    )
    words.require(good.all(axis=1), owners, f"a field of {what} is outside its table")
    return (offsets + 3) // 4, (table_sizes + 3) // 4
