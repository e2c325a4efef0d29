"""One flatbuffer, one table at a time, every step checked to stay inside the bytes.

`etdump/flatbuffer.py` follows thousands of equal tables at once and needs numpy; a program has few tables of many
kinds, so this one reads them one by one with `struct` alone.
"""

import struct
from collections.abc import Callable, Iterator

Fail = Callable[[str, int], Exception]
"""Makes the error to raise from what is wrong and the byte where it was found."""

_U8, _U16, _U32, _I32, _U64, _I64 = (struct.Struct(code) for code in ("<B", "<H", "<I", "<i", "<Q", "<q"))


class Buffer:
    """The bytes of a flatbuffer and a budget, so that a small file that shares its tables a million times ends soon."""

    def __init__(self, data: bytes, fail: Fail) -> None:
        self.data = data
        self.fail = fail
        # Writers share no tables and no vectors, so each table and number we read has four bytes of its own; the rest
        # is for a method that hands an input straight to an output.
        self._budget = len(data) // 4 + 1024
        self._strings: dict[int, str] = {}

    def root(self, what: str) -> "FlatTable":
        return FlatTable(self, self.follow(0, what), what)

    def number(self, kind: struct.Struct, at: int, what: str) -> int:
        """Read one little-endian number."""
        if at < 0 or at + kind.size > len(self.data):
            raise self.fail(f"{what} is outside the file", at)
        return int(kind.unpack_from(self.data, at)[0])

    def follow(self, at: int, what: str) -> int:
        """Take the offset stored at `at` and return the position it points to."""
        return at + self.number(_U32, at, f"the offset of {what}")

    def vector(self, at: int, width: int, what: str) -> tuple[int, int]:
        """Return where a vector's elements start and how many they are, all of them inside the file."""
        count = self.number(_U32, at, what)
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
    """One table; fields are asked for by their place in the schema."""

    def __init__(self, buffer: Buffer, at: int, what: str) -> None:
        buffer.spend(1, what, at)
        self.buffer = buffer
        self.at = at
        self.what = what
        self._vtable = at - buffer.number(_I32, at, what)
        self._vtable_size = buffer.number(_U16, self._vtable, f"the vtable of {what}")
        self._size = buffer.number(_U16, self._vtable + 2, f"the vtable of {what}")

    def where(self, field: int) -> int:
        """Return where a field is, or 0 if the writer left it out."""
        slot = 4 + 2 * field
        if slot + 2 > self._vtable_size:
            return 0
        offset = self.buffer.number(_U16, self._vtable + slot, f"the vtable of {self.what}")
        if offset >= self._size:
            raise self.buffer.fail(f"field {field} of {self.what} is outside its table", self.at)
        return self.at + offset if offset else 0

    def _scalar(self, kind: struct.Struct, field: int, default: int) -> int:
        at = self.where(field)
        return self.buffer.number(kind, at, self.what) if at else default

    def u8(self, field: int, default: int = 0) -> int:
        return self._scalar(_U8, field, default)

    def u16(self, field: int, default: int = 0) -> int:
        return self._scalar(_U16, field, default)

    def u32(self, field: int, default: int = 0) -> int:
        return self._scalar(_U32, field, default)

    def i32(self, field: int, default: int = 0) -> int:
        return self._scalar(_I32, field, default)

    def u64(self, field: int, default: int = 0) -> int:
        return self._scalar(_U64, field, default)

    def i64(self, field: int, default: int = 0) -> int:
        return self._scalar(_I64, field, default)

    def string(self, field: int, what: str) -> str:
        at = self.where(field)
        return self.buffer.string(self.buffer.follow(at, what), what) if at else ""

    def table(self, field: int, what: str) -> "FlatTable | None":
        at = self.where(field)
        return FlatTable(self.buffer, self.buffer.follow(at, what), what) if at else None

    def tables(self, field: int, what: str) -> "Iterator[FlatTable]":
        """Yield the elements of a vector of tables."""
        at = self.where(field)
        if not at:
            return
        start, count = self.buffer.vector(self.buffer.follow(at, what), 4, what)
        for index in range(count):
            yield FlatTable(self.buffer, self.buffer.follow(start + 4 * index, what), what)

    def u32s(self, field: int, what: str) -> tuple[int, ...]:
        return self._numbers(field, "I", what)

    def i32s(self, field: int, what: str) -> tuple[int, ...]:
        return self._numbers(field, "i", what)

    def i64s(self, field: int, what: str) -> tuple[int, ...]:
        return self._numbers(field, "q", what)

    def u8s(self, field: int, what: str) -> tuple[int, ...]:
        return self._numbers(field, "B", what)

    def _numbers(self, field: int, code: str, what: str) -> tuple[int, ...]:
        """Read a vector of numbers."""
        at = self.where(field)
        if not at:
            return ()
        start, count = self.buffer.vector(self.buffer.follow(at, what), struct.calcsize(f"<{code}"), what)
        self.buffer.spend(count, what, start)
        return struct.unpack_from(f"<{count}{code}", self.buffer.data, start)
