"""Writes flatbuffers by hand, sound or not, to show the reader files that no tracer would write."""

import struct
from collections.abc import Sequence


class Forge:
    """A flatbuffer that grows at its end; offsets are patched in later, and so may point anywhere."""

    def __init__(self) -> None:
        self.data = bytearray(struct.pack("<I4s", 0, b"ED00"))

    def align(self, size: int = 4) -> int:
        self.data += bytes(-len(self.data) % size)
        return len(self.data)

    def vtable(self, table_size: int, fields: Sequence[int]) -> int:
        """Append a vtable: each field's distance from its table, 0 for an absent one."""
        at = self.align()
        self.data += struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), table_size, *fields)
        return at

    def table(self, vtable: int, body: bytes) -> int:
        at = self.align(8) + 4
        self.data += bytes(4) + struct.pack("<i", at - vtable) + body
        return at

    def vector(self, count: int, length: int | None = None) -> int:
        """Append a vector of `count` offsets that claims to have `length`."""
        at = self.align()
        self.data += struct.pack("<I", count if length is None else length) + bytes(4 * count)
        return at

    def string(self, text: bytes, length: int | None = None) -> int:
        at = self.align()
        self.data += struct.pack("<I", len(text) if length is None else length) + text + b"\0"
        return at

    def point(self, at: int, target: int) -> None:
        """Make the offset at `at` point to `target`, which a sound flatbuffer has further on."""
        struct.pack_into("<I", self.data, at, (target - at) & 0xFFFFFFFF)

    def finish(self, root: int, prefixed: bool = False) -> bytes:
        self.align()
        self.point(0, root)
        return (struct.pack("<I", len(self.data)) if prefixed else b"") + bytes(self.data)


class Dump(Forge):
    """The skeleton of an ETDump: a root, its runs, and vtables for events whose fields are all there."""

    def __init__(self, runs: int, length: int | None = None) -> None:
        super().__init__()
        self.root = self.table(self.vtable(8, [0, 4]), bytes(4))
        self.runs = self.vector(runs, length)
        self.point(self.root + 4, self.runs)
        self.run_vtable = self.vtable(8, [0, 0, 0, 4])
        self.event_vtable = self.vtable(8, [4])
        self.profile_vtable = self.vtable(24, [20, 0, 0, 0, 0, 0, 4, 12])

    def run(self, index: int) -> int:
        """Append a run without events."""
        run = self.table(self.run_vtable, bytes(4))
        self.point(self.runs + 4 + 4 * index, run)
        return run

    def events(self, run: int, count: int, length: int | None = None) -> int:
        """Append the vector of a run's events and return where its elements are."""
        vector = self.vector(count, length)
        self.point(run + 4, vector)
        return vector + 4

    def event(self, entry: int, start: int = 0, end: int = 0) -> int:
        """Append a profiling event that the vector's element at `entry` points to, and return its inner table."""
        event = self.table(self.event_vtable, bytes(4))
        self.point(entry, event)
        profile = self.table(self.profile_vtable, struct.pack("<QQI", start, end, 0))
        self.point(event + 4, profile)
        return profile

    def name(self, profile: int, string: int) -> None:
        """Name an event by the string at `string`."""
        self.point(profile + 20, string)

    def bytes(self, prefixed: bool = False) -> bytes:
        return self.finish(self.root, prefixed)
