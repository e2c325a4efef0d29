"""What a dump holds, as columns: one array per field, one element per event, strings as codes into `strings`."""

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.formats.etdump.flatbuffer import Words

Codes = npt.NDArray[np.int32]


class Blocks(msgspec.Struct, frozen=True, eq=False):
    """The dump's `run_data` blocks; block `b` holds the profiling events `events[b]` up to `events[b + 1]`."""

    name: Codes
    bundled_input: npt.NDArray[np.int32]
    events: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.name)


class Events(msgspec.Struct, frozen=True, eq=False):
    """The profiling events, block after block, each block in the order in which they ended."""

    block: npt.NDArray[np.int32]
    name: Codes
    # The delegate's own identifier of the operator, an integer written out as text; "" where not delegated.
    delegate: Codes
    # The identifier where the backend gave an integer, else -1.
    delegate_int: npt.NDArray[np.int32]
    chain: npt.NDArray[np.int32]
    instruction: npt.NDArray[np.int32]
    start: npt.NDArray[np.uint64]
    end: npt.NDArray[np.uint64]
    # Where the file says where the delegate's metadata are; 0 where it has none. Read with `Etdump.metadata`.
    metadata_at: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.block)

    def take(self, rows: npt.NDArray[np.int64]) -> "Events":
        """Return only these events: what is computed of them is not computed of all."""
        return Events(*(column[rows] for column in (getattr(self, name) for name in self.__struct_fields__)))

    @property
    def delegated(self) -> npt.NDArray[np.bool_]:
        """Which events a backend reported from inside a delegate."""
        return np.not_equal(self.delegate, 0)

    @property
    def label(self) -> Codes:
        """The name Inspector prints: the delegate's identifier where there is one, else the event's name."""
        return np.where(self.delegated, self.delegate, self.name)

    @property
    def duration(self) -> npt.NDArray[np.int64]:
        """Ticks from start to end; negative where the clock wrapped or ran back."""
        return (self.end - self.start).view(np.int64)


class Allocations(msgspec.Struct, frozen=True, eq=False):
    """What allocators handed out; `before` counts the profiling events written earlier, which places it among them."""

    block: npt.NDArray[np.int32]
    allocator_id: npt.NDArray[np.int32]
    allocator: Codes
    size: npt.NDArray[np.uint64]
    before: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.block)


class DebugEvents(msgspec.Struct, frozen=True, eq=False):
    """Which values a debugging runner recorded (not the values); `before` as in Allocations."""

    block: npt.NDArray[np.int32]
    name: Codes
    delegate: Codes
    delegate_int: npt.NDArray[np.int32]
    chain: npt.NDArray[np.int64]
    instruction: npt.NDArray[np.int32]
    # Whether the value is an output of the method rather than an intermediate one.
    output: npt.NDArray[np.bool_]
    before: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.block)


class Etdump(msgspec.Struct, frozen=True, eq=False):
    """One dump; every `Codes` column indexes `strings`, whose first entry is the empty string."""

    path: Path
    version: int
    strings: list[str]
    blocks: Blocks
    events: Events
    allocations: Allocations
    debug_events: DebugEvents
    # The mapped file, from which metadata are read when asked for.
    words: Words

    def code(self, text: str) -> int:
        """Return the code of a string, or -1 where the dump does not hold it."""
        return self.strings.index(text) if text in self.strings else -1

    def metadata(self, event: int) -> bytes:
        """Return the bytes the delegate attached to one profiling event."""
        at = self.events.metadata_at[event : event + 1].astype(np.int64)
        if not at.any():
            return b""
        vector = self.words.follow(at, "delegate metadata")
        length = int(self.words.lengths(vector, 1, "delegate metadata")[0])
        first = int(vector[0]) * 4 + 4
        return self.words.words.view(np.uint8)[first : first + length].tobytes()
