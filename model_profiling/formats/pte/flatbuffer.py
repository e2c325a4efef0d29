"""One flatbuffer, one table at a time, every step checked to stay inside the bytes.

`etdump/flatbuffer.py` follows thousands of equal tables at once and needs numpy; a program has few tables of many
kinds, so this one reads them one by one with `struct` alone.
"""

import struct
from collections.abc import Callable, Iterator

from model_profiling.upstream.flatbuffer_schemas import Fields

Fail = Callable[[str, int], Exception]
"""Makes the error to raise from what is wrong and the byte where it was found."""

# Kinds of numbers, by struct's letters for them.
_KINDS = {code: struct.Struct(f"<{code}") for code in "BHIiQq"}


class Buffer:
    """The bytes of a flatbuffer and a budget, so that a small file that shares its tables a million times ends soon."""

    def __init__(self, data: bytes, fail: Fail) -> None:
        self.data = data
        self.fail = fail
        # Writers share no tables and no vectors, so each table and number we read has four bytes of its own; the rest
        # is for a method that hands an input straight to an output.
        self._budget = len(data) // 4 + 1024
        self._strings: dict[int, str] = {}

    def root(self, fields: Fields, what: str) -> "FlatTable":
        return FlatTable(self, self.follow(0, what), fields, what)

    def number(self, code: str, at: int, what: str) -> int:
        """Read one little-endian number."""
        kind = _KINDS[code]
        if at < 0 or at + kind.size > len(self.data):
            raise self.fail(f"{what} is outside the file", at)
        return int(kind.unpack_from(self.data, at)[0])

    def follow(self, at: int, what: str) -> int:
        """Take the offset stored at `at` and return the position it points to."""
        return at + self.number("I", at, f"the offset of {what}")

    def vector(self, at: int, width: int, what: str) -> tuple[int, int]:
        """Return where a vector's elements start and how many they are, all of them inside the file."""
        count = self.number("I", at, what)
        if at + 4 + count * width > len(self.data):
            raise self.fail(f"{what} is longer than the file", at)
        return at + 4, count

    def string(self, at: int, what: str) -> str:
        """Read a string, once: operators by the thousand may point to the same one."""
        if at not in self._strings:
            start, count = self.vector(at, 1, what)
            self._strings[at] = self.data[start : start + count].decode("utf-8", "replace")
        return self._strings[at]

    def spend(self, count: int, what: str, at: int) -> None:
        self._budget -= count
        if self._budget < 0:
            raise self.fail(f"it describes more than it has room for, last {what}", at)


class FlatTable:
    """One table; fields are asked for by their name in the schema."""

    def __init__(self, buffer: Buffer, at: int, fields: Fields, what: str) -> None:
        buffer.spend(1, what, at)
        self.buffer, self.at, self.fields, self.what = buffer, at, fields, what
        self._vtable = at - buffer.number("i", at, what)
        self._vtable_size = buffer.number("H", self._vtable, f"the vtable of {what}")
        self._size = buffer.number("H", self._vtable + 2, f"the vtable of {what}")

    def where(self, field: str) -> int:
        """Return where a field is, or 0 if the writer left it out."""
        slot = 4 + 2 * self.fields[field]
        if slot + 2 > self._vtable_size:
            return 0
        offset = self.buffer.number("H", self._vtable + slot, f"the vtable of {self.what}")
        if offset >= self._size:
            raise self.buffer.fail(f"the field {field} of {self.what} is outside its table", self.at)
        return self.at + offset if offset else 0

    def number(self, field: str, code: str = "I") -> int:
        at = self.where(field)
        return self.buffer.number(code, at, self.what) if at else 0

    def string(self, field: str) -> str:
        at = self.where(field)
        return self.buffer.string(self.buffer.follow(at, field), field) if at else ""

    def table(self, field: str, fields: Fields) -> "FlatTable | None":
        at = self.where(field)
        return FlatTable(self.buffer, self.buffer.follow(at, field), fields, field) if at else None

    def tables(self, field: str, fields: Fields) -> "Iterator[FlatTable]":
        """Yield the elements of a vector of tables."""
        start, count = self.vector(field, 4)
        for index in range(count):
            yield FlatTable(self.buffer, self.buffer.follow(start + 4 * index, field), fields, field)

    def vector(self, field: str, width: int) -> tuple[int, int]:
        """Return where the elements of a vector start and how many they are."""
        at = self.where(field)
        return self.buffer.vector(self.buffer.follow(at, field), width, field) if at else (0, 0)

    def numbers(self, field: str, code: str) -> tuple[int, ...]:
        """Read a vector of numbers."""
        start, count = self.vector(field, _KINDS[code].size)
        self.buffer.spend(count, field, start)
        return struct.unpack_from(f"<{count}{code}", self.buffer.data, start)
