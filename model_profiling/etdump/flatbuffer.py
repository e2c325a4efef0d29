"""A flatbuffer as an array of 32-bit words, and many of its tables followed at once, every step inside the file.

Nothing here trusts the file. Positions are word indices; everything an ETDump holds starts on a word boundary, except
vtables, which start on a half-word.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model_profiling.errors import InputError
from model_profiling.etdump.distinct import first_equal, is_constant

Positions = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]

IDENTIFIER = b"ED00"


class EtdumpError(InputError):
    """The file is not an ETDump, or not a whole one."""

    def __init__(self, path: Path, problem: str, offset: int | None = None, hint: str = "") -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(
            f"{path} is not a readable ETDump: {problem}{where}",
            hint or "Run the model again to write it anew; if it was copied from a device, copy it again.",
        )
        self.path = path
        self.problem = problem
        self.offset = offset


class Words:
    """The bytes of one flatbuffer, seen as words, half-words and signed words without copying them."""

    def __init__(self, data: Any, path: Path) -> None:
        self.path = path
        self.root, self.size = _frame(memoryview(data), path)
        self.count = self.size // 4
        self.words: U32 = np.frombuffer(data, "<u4", self.count)
        self.signed: npt.NDArray[np.int32] = self.words.view("<i4")
        self.halves: npt.NDArray[np.uint16] = np.frombuffer(data, "<u2", self.size // 2)

    def error(self, problem: str, at: int | None = None) -> EtdumpError:
        return EtdumpError(self.path, problem, None if at is None else at * 4)

    def require(self, good: npt.NDArray[np.bool_], at: Positions, problem: str) -> None:
        """Fail at the first position where `good` is false."""
        if not good.all():
            raise self.error(problem, int(at[int(np.argmin(good))]))

    def follow(self, at: Positions, what: str) -> Positions:
        """Take the offsets stored at `at` and return the positions they point to."""
        offsets = self.words.take(at)
        if (np.bitwise_or.reduce(offsets) if len(offsets) else 0) & 3:
            self.require((offsets & 3) == 0, at, f"the offset of {what} is misaligned")
        target: Positions = at + (offsets >> np.uint32(2))
        if len(target) and int(target.max()) >= self.count:
            self.require(target < self.count, at, f"the offset of {what} points past the end of the file")
        return target

    def lengths(self, at: Positions, element_size: int, what: str, terminated: bool = False) -> Positions:
        """Return the lengths of the vectors at `at`, each checked to end inside the file."""
        lengths = self.words.take(at).astype(np.int64)
        if len(at):
            ends = at * 4 + (4 + int(terminated)) + lengths * element_size
            if int(ends.max()) > self.count * 4:
                self.require(ends <= self.count * 4, at, f"{what} is longer than the file")
        return lengths

    def vectors(self, at: Positions, present: npt.NDArray[np.bool_], what: str) -> tuple[Positions, Positions]:
        """Return, for vectors of tables of which some are absent, where each one's elements start and how many."""
        first = np.zeros(len(at), np.int64)
        counts = np.zeros(len(at), np.int64)
        vectors = self.follow(at[present], what)
        first[present] = vectors + 1
        counts[present] = self.lengths(vectors, 4, what)
        return first, counts


class Tables:
    """Many tables of one type; a field is found with one addition, since nearly all of them share a few vtables."""

    def __init__(self, words: Words, at: Positions, widths: Sequence[int], what: str) -> None:
        self.words = words
        self.at = at
        self.what = what
        self.offsets: Positions = np.zeros((1, len(widths)), np.int64)
        self._layout: npt.NDArray[np.intp] | None = None
        if not len(at):
            return
        vtables: Positions = at * 4 - words.signed.take(at)
        if int(vtables.min()) < 0 or int(vtables.max()) + 4 > words.size:
            inside = (vtables >= 0) & (vtables + 4 <= words.size)
            words.require(inside, at, f"the vtable of {what} is outside the file")
        if is_constant(vtables):
            owners = np.zeros(1, np.intp)
        else:
            first = first_equal(vtables)
            is_owner = first == np.arange(len(first))
            owners = np.flatnonzero(is_owner)
            self._layout = (np.cumsum(is_owner) - 1).take(first)
        self.offsets, sizes = _layouts(words, vtables[owners], at[owners], widths, what)
        ends = at + (int(sizes[0]) if self._layout is None else sizes.take(self._layout))
        if int(ends.max()) > words.count:
            words.require(ends <= words.count, at, f"{what} reaches past the end of the file")

    def _field(self, field: int) -> tuple[Positions | int, npt.NDArray[np.bool_] | bool]:
        """Return a field's distance from its table, in words, and whether it is there; plain values where all agree."""
        column = self.offsets[:, field]
        if self._layout is None or is_constant(column):
            return int(column[0]), bool(column[0])
        distance = column.take(self._layout)
        return distance, distance != 0

    def has(self, field: int) -> npt.NDArray[np.bool_]:
        """Return which of the tables hold the field."""
        _, present = self._field(field)
        return np.full(len(self.at), present) if isinstance(present, bool) else present

    def positions(self, field: int) -> Positions:
        """Return where the field is in every table (the table itself where it is absent)."""
        return self.at + self._field(field)[0]

    def int32(self, field: int, default: int) -> npt.NDArray[np.int32]:
        """Read a signed 32-bit field of every table."""
        distance, present = self._field(field)
        if present is False:
            return np.full(len(self.at), default, np.int32)
        # An absent field reads the table's own first word, which is inside the file, and is replaced.
        values = self.words.signed.take(self.at + distance)
        return values if present is True else np.where(present, values, np.int32(default))

    def uint64(self, field: int) -> npt.NDArray[np.uint64]:
        """Read an unsigned 64-bit field of every table; its two words may straddle an 8-byte boundary."""
        distance, present = self._field(field)
        if present is False:
            return np.zeros(len(self.at), np.uint64)
        at = self.at + distance
        halves = np.empty((len(at), 2), "<u4")
        halves[:, 0] = self.words.words.take(at)
        # Only a table without the field can sit on the last word of the file, and what it reads is replaced.
        halves[:, 1] = self.words.words.take(at + 1, mode="clip")
        values: npt.NDArray[np.uint64] = halves.view("<u8")[:, 0]
        return values if present is True else np.where(present, values, np.uint64(0))


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
    offsets = np.zeros((len(half), len(widths)), np.int64)
    for field, width in enumerate(widths):
        held = vtable_sizes >= 6 + 2 * field
        column = np.where(held, words.halves.take(half + 2 + field, mode="clip"), 0).astype(np.int64)
        # A byte-sized field is only ever asked whether it is there.
        aligned = (column % min(width, 4)) == 0
        inside = (column == 0) | ((column >= 4) & (column + width <= table_sizes))
        words.require(aligned & inside, owners, f"field {field} of {what} is outside its table")
        offsets[:, field] = (column + 3) // 4
    return offsets, (table_sizes + 3) // 4
