"""Reads an ETDump, the trace ExecuTorch's tracer writes, straight into numpy columns. Needs numpy and nothing else.

What real dumps (ExecuTorch 1.5.1) look like, which the schema does not say:

Blocks. Each `Program::load_method` opens a block named `Default` and each `Method::execute` one named `Execute`, so a
program with two methods alternates between the two. The name of the method is written nowhere; two methods can only
be told apart by their operators.

Order. An event is written when it ends: children come before their parent. A delegated operator comes before its
`DELEGATE_CALL`, `native_call_<operator>` before its `OPERATOR_CALL`, all of them before `Method::execute`, the last
profiling event of the block. `nest` turns that order into columns.

Instructions. The children of a call carry its `chain` and `instruction` (the index into the method's chain in the
.pte). `Method::init`, `Program::load_method` and `Method::execute` have chain -1.

Delegates. A delegated event has no name; its identifier (a string for XNNPACK, `Transpose (ND, X32) #1`, an integer
for others) stands in its place, and Inspector prints that. Which *backend* ran it is not in the dump: only the .pte
knows, through the instruction. XNNPACK's `#1` counts within one delegate, so an operator is named by instruction and
identifier together.

Time. Start and end are ticks of the runtime's clock: nanoseconds on every host and phone, from an arbitrary zero.
Inspector only divides them by 1e6 to print milliseconds. XNNPACK's operators are whole microseconds laid end to end
from the moment the delegate starts to compute, so a 0.4 us operator reads 0, and the first operator of the first
execution starts well after its `DELEGATE_CALL`: XNNPACK allocates and reshapes in between.

Allocations, and tensors that a debugging runner recorded, are events, too. They are not read.
"""

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.base import files
from model_profiling.formats.etdump.flatbuffer import IDENTIFIER, EtdumpError, Positions, Tables, Words
from model_profiling.upstream import etdump_schema as schema
from model_profiling.upstream.names_in_files import CALLS, EVENTS, EXECUTE
from model_profiling.upstream.reliance import why_not

Codes = npt.NDArray[np.int32]

# Longer strings are rare and read one by one: gathering them as rows would make a matrix as wide as the longest.
_LONGEST_ROW = 64
_SLICE = 1 << 14
# An event takes at least this many bytes: its offset in the vector, its table (8) and the table it wraps (4).
# A file that promises more events than fit shares one vector among many blocks, and would fill memory.
_SMALLEST_EVENT = 16
_SMALLEST_BLOCK = 8
__all__ = ["CALLS", "EXECUTE", "Etdump", "EtdumpError", "Events", "Nesting", "merged", "nest", "parse", "read"]

# What a dump's 64-bit fields are aligned to, counted from the size prefix; copies start at multiples of it.
_ALIGNMENT = 16
_LARGEST = 1 << 32
# Size prefix, root offset, identifier; a vtable of two fields; the table: its vtable's distance, version, vector.
_HEAD = struct.Struct("<II4s4HiII")


class Events(msgspec.Struct, frozen=True, eq=False):
    """The profiling events as columns, block (`run_data`) after block, each in the order in which they ended."""

    block: npt.NDArray[np.int32]
    name: Codes
    # The delegate's own identifier of the operator, an integer written out as text; "" where not delegated.
    delegate: Codes
    chain: npt.NDArray[np.int32]
    instruction: npt.NDArray[np.int32]
    start: npt.NDArray[np.uint64]
    end: npt.NDArray[np.uint64]

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


# The types of its columns, in their order.
_TYPES = (np.int32, np.int32, np.int32, np.int32, np.int32, np.uint64, np.uint64)


class Etdump(msgspec.Struct, frozen=True, eq=False):
    """One dump; every `Codes` column indexes `strings`, whose first entry is the empty string."""

    path: Path
    strings: list[str]
    events: Events

    def code(self, text: str) -> int:
        """Return the code of a string, or -1 where the dump does not hold it."""
        return self.strings.index(text) if text in self.strings else -1


class _StringPool:
    """The distinct strings seen so far; code 0 is the empty string, which also stands for an absent one."""

    def __init__(self, words: Words) -> None:
        self.strings: list[str] = [""]
        self._codes: dict[str, int] = {"": 0}
        self._words = words
        self._bytes = words.words.view(np.uint8)
        # Strings do not overlap in a sound file, so together they fit in it; twice is room for writers that share.
        self._budget = 2 * words.size

    def code(self, text: str) -> int:
        """Return the code of one string, which is new or known."""
        code = self._codes.setdefault(text, len(self.strings))
        if code == len(self.strings):
            self.strings.append(text)
        return code

    def codes(self, tables: Tables, field: int) -> Codes:
        """Return the codes of a string field of every table."""
        rows, at = tables.where(field)
        column = np.zeros(len(tables.at), np.int32)
        column[rows] = self._intern(self._words.follow(at, "a string"))
        return column

    def _intern(self, strings: Positions) -> Codes:
        lengths = self._words.lengths(strings, 1, "a string", terminated=True)
        total = int(lengths.sum())
        if total > self._budget - self._words.size:
            # Many events may share a few long strings: look at each place once.
            places, inverse = np.unique(strings, return_inverse=True)
            if len(places) < len(strings):
                return self._intern(places).take(inverse)
        self._budget -= total
        if self._budget < 0:
            raise self._words.error("its strings overlap", int(strings[0]))
        # A row is the length, the bytes, their terminating zero and padding.
        widths = np.minimum((lengths >> 2) + 2, _LONGEST_ROW + 1)
        codes = np.zeros(len(strings), np.int32)
        for width in np.flatnonzero(np.bincount(widths)).tolist():
            members = np.flatnonzero(widths == width)
            rows = self._rows(strings.take(members), width)
            code_of = {row: self.code(_text(row)) for row in dict.fromkeys(rows)}
            codes[members] = [code_of[row] for row in rows]
        return codes

    def _rows(self, at: Positions, width: int) -> list[bytes]:
        """Copy `width` words from each position, as one opaque item each, which numpy moves faster than a slice."""
        if width > _LONGEST_ROW:
            ends = (at * 4 + 4 + self._words.words.take(at)).tolist()
            return [self._bytes[start:end].tobytes() for start, end in zip((at * 4).tolist(), ends, strict=True)]
        words = self._words
        windows: npt.NDArray[Any] = np.ndarray((words.count - width + 1,), f"V{4 * width}", words.words, 0, (4,))
        rows: list[bytes] = windows[at].tolist()
        return rows


def _text(row: bytes) -> str:
    return row[4 : 4 + int.from_bytes(row[:4], "little")].decode("utf-8", "replace")


def read(path: Path) -> Etdump:
    """Map the file and read it; whatever is wrong with it is an EtdumpError that says what and where."""
    with files.opened(path, EtdumpError) as file:
        # An empty file cannot be mapped.
        data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if files.size_of(file) else b""
    return parse(data, path)


def parse(data: Any, path: Path) -> Etdump:
    """Read a dump from bytes in memory; `path` only names it in errors."""
    if problem := why_not(schema.ETDUMP_SCHEMA) or why_not(EVENTS):
        raise EtdumpError(path, problem, hint="Use a version of ExecuTorch that the kit knows.")
    words = Words(data, path)
    runs = _run_tables(words, _root_table(words))
    first, counts = _event_vectors(words, runs)
    total = int(counts.sum())
    if total * _SMALLEST_EVENT > words.size:
        raise words.error("it names more events than fit in it", int(runs.at[0]))
    if total == 0:
        raise words.error("it contains no events", int(runs.at[0]))
    blocks = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    # An event's place in the vector of its block, counted from where that vector would start in the sequence.
    base = first - (np.cumsum(counts) - counts)
    if total > _SLICE:
        # Until it sees one large piece freed, glibc returns memory to the system after every slice, and a sixth
        # of the reading goes into faulting it in again. This piece is never touched and costs nothing.
        np.empty(16 << 20, np.uint8)
    pool, rows = _StringPool(words), 0
    # The names of blocks are the last of a file: nothing else tells one without a size that is cut short.
    pool.codes(runs, schema.RUN_DATA["name"])
    # Room for every event of the dump; memory that is never written is never taken.
    columns: list[npt.NDArray[Any]] = [np.empty(total, type_) for type_ in _TYPES]
    for low in range(0, total, _SLICE):
        block = blocks[low : low + _SLICE]
        entries = words.follow(base.take(block) + np.arange(low, low + len(block)), "an event")
        for whole, part in zip(columns, _profile_events(words, pool, entries, block), strict=True):
            whole[rows : rows + len(part)] = part
        rows += len(part)
    return Etdump(path, pool.strings, Events(*(whole[:rows] for whole in columns)))


def _root_table(words: Words) -> Tables:
    return Tables(words, np.array([words.root]), schema.ETDUMP_WIDTHS, "the root table")


def _run_tables(words: Words, root: Tables) -> Tables:
    """Find the tables of the dump's blocks."""
    _, at = root.where(schema.ETDUMP["run_data"])
    if not len(at):
        raise words.error("it contains no runs", words.root)
    vector = words.follow(at, "the vector of runs")
    count = int(words.lengths(vector, 4, "the vector of runs")[0])
    if count == 0:
        raise words.error("it contains no runs", int(vector[0]))
    if count * _SMALLEST_BLOCK > words.size:
        raise words.error("it names more runs than fit in it", int(vector[0]))
    return Tables(words, words.follow(int(vector[0]) + 1 + np.arange(count), "a run"), schema.RUN_DATA_WIDTHS, "a run")


def _event_vectors(words: Words, runs: Tables) -> tuple[Positions, Positions]:
    """Return where each block's events start and how many they are."""
    first, counts = np.zeros((2, len(runs.at)), np.int64)
    rows, at = runs.where(schema.RUN_DATA["events"])
    vectors = words.follow(at, "the events of a run")
    first[rows] = vectors + 1
    counts[rows] = words.lengths(vectors, 4, "the events of a run")
    return first, counts


def _profile_events(
    words: Words, pool: _StringPool, entries: Positions, block: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[Any], ...]:
    """Return the columns of a slice's profiling events; allocations and recorded tensors are left out."""
    rows, at = Tables(words, entries, schema.EVENT_WIDTHS, "an event").where(schema.EVENT["profile_event"])
    slots = schema.PROFILE_EVENT
    events = Tables(words, words.follow(at, "a profiling event"), schema.PROFILE_EVENT_WIDTHS, "a profiling event")
    delegate = pool.codes(events, slots["delegate_debug_id_str"])
    integer = events.int32(slots["delegate_debug_id_int"], -1)
    if len(given := np.flatnonzero(integer != -1)):
        distinct, inverse = np.unique(integer[given], return_inverse=True)
        delegate[given] = np.array([pool.code(str(each)) for each in distinct.tolist()], np.int32).take(inverse)
    return (
        block[rows],
        pool.codes(events, slots["name"]),
        delegate,
        events.int32(slots["chain_index"], 0),
        events.int32(slots["instruction_id"], -1),
        events.uint64(slots["start_time"]),
        events.uint64(slots["end_time"]),
    )


def merged(dumps: Sequence[Path]) -> bytes:
    """Return one dump with the blocks of all `dumps`, in their order."""
    bodies = [files.read_bytes(path, "ETDump", _LARGEST) for path in dumps]
    words = [Words(body, path) for body, path in zip(bodies, dumps, strict=True)]
    roots = [_root_table(each) for each in words]
    runs = [_run_tables(each, root).at * 4 for each, root in zip(words, roots, strict=True)]
    count = sum(map(len, runs))
    start = _aligned(_HEAD.size + 4 + 4 * count)
    starts = start + np.concatenate(([0], np.cumsum([_aligned(len(body)) for body in bodies])))
    if int(starts[-1]) > _LARGEST:
        problem = "with those of the other launches it is larger than a flatbuffer can be"
        raise EtdumpError(dumps[0], problem, hint="Trace fewer runs.")
    # An offset counts from where it is stored.
    targets = np.concatenate([at + begin for at, begin in zip(runs, starts[:-1].tolist(), strict=True)])
    offsets = targets - (_HEAD.size + 4 + 4 * np.arange(count))
    head = _HEAD.pack(int(starts[-1]) - 4, 16, IDENTIFIER, 8, 12, 4, 8, 8, int(roots[0].int32(0, 0)[0]), 4)
    vector = struct.pack("<I", count) + offsets.astype("<u4").tobytes()
    padded = [body.ljust(_aligned(len(body)), b"\0") for body in bodies]
    return b"".join([(head + vector).ljust(start, b"\0"), *padded])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


Indices = npt.NDArray[np.int64]


class Nesting(msgspec.Struct, frozen=True, eq=False):
    """Executions in order, and for each profiling event the one it is in and the call around it (-1: none)."""

    # The event `Method::execute` of each execution.
    executions: Indices
    execution: Indices
    # The event of the call around each event: a DELEGATE_CALL for a delegated operator. A call has none itself.
    call: Indices

    def __len__(self) -> int:
        return len(self.executions)


def nest(dump: Etdump) -> Nesting:
    """Attach each event to the next `Method::execute` and the next call of its block, since parents end last."""
    events = dump.events
    is_execute = (events.name == dump.code(EXECUTE)) & ~events.delegated
    is_call = np.isin(events.name, [code for code in map(dump.code, CALLS) if code >= 0]) & ~events.delegated
    # Loading has chain -1. Times would not do as a test: a delegate may count with a clock of its own.
    in_method = events.chain >= 0
    execute = _next(is_execute, events.block)
    execute[~(in_method | is_execute)] = -1
    executions = np.flatnonzero(is_execute)
    execution = np.where(execute < 0, -1, np.searchsorted(executions, execute))
    call = _next(is_call, events.block)
    if len(call):
        same_instruction = events.instruction == events.instruction[call]
        call[is_call | ~in_method | ~same_instruction | (events.chain != events.chain[call])] = -1
    return Nesting(executions, execution, call)


def _next(marked: npt.NDArray[np.bool_], block: npt.NDArray[np.int32]) -> Indices:
    """Return, for each event, the first marked one at or after it in its block, or -1."""
    markers = np.append(np.flatnonzero(marked), -1)
    following = markers[np.cumsum(marked) - marked]
    following[block != block[following]] = -1
    return following
