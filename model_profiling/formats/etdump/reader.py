"""Reads an ETDump file into columns, a slice of events at a time so that what it touches stays in the cache."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model_profiling.base import files
from model_profiling.formats.etdump.columns import Allocations, Blocks, DebugEvents, Etdump, Events
from model_profiling.formats.etdump.flatbuffer import ALL, EtdumpError, Positions, Tables, Words
from model_profiling.formats.etdump.strings import StringPool
from model_profiling.upstream import etdump_schema as schema
from model_profiling.upstream.event_names import EVENTS
from model_profiling.upstream.reliance import why_not

# Types of the columns, in the order of Events, of `_allocation_events` and of DebugEvents.
_EVENT_TYPES = (np.int32, np.int32, np.int32, np.int32, np.int32, np.int32, np.uint64, np.uint64, np.uint32)
_ALLOCATION_TYPES = (np.int32, np.int32, np.uint64, np.int64)
_DEBUG_TYPES = (np.int32, np.int32, np.int32, np.int32, np.int64, np.int32, np.bool_, np.int64)

_SLICE = 1 << 14
# An event takes at least this many bytes: its offset in the vector, its table (8) and the table it wraps (4).
# A file that promises more events than fit shares one vector among many blocks, and would fill memory.
_SMALLEST_EVENT = 16
_SMALLEST_BLOCK = 8

Column = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def read(path: Path) -> Etdump:
    """Map the file and read it; whatever is wrong with it is an EtdumpError that says what and where."""
    try:
        with files.open_file(path) as file:
            size = files.size_of(file)
            # An empty file cannot be mapped.
            data: Any = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise EtdumpError(path, problem[0].lower() + problem[1:], hint="Give the path of an .etdump file.") from None
    dump = parse(data, path)
    if size:
        # All is in columns now: the file's pages need not stay in memory while those are worked on.
        data.madvise(mmap.MADV_DONTNEED)
    return dump


def parse(data: Any, path: Path) -> Etdump:
    """Read a dump from bytes in memory; `path` only names it in errors."""
    if problem := why_not(schema.ETDUMP_SCHEMA) or why_not(EVENTS):
        raise EtdumpError(path, problem, hint="Use a version of ExecuTorch that the kit knows.")
    words = Words(data, path)
    root = root_table(words)
    runs = run_tables(words, root)
    pool = StringPool(words)
    (block_name,) = pool.codes(runs, schema.RUN_DATA["name"])
    entries = _Entries(words, runs)
    profile = _Parts(entries.total, *_EVENT_TYPES)
    allocation = _Parts(entries.total, *_ALLOCATION_TYPES)
    debug = _Parts(entries.total, *_DEBUG_TYPES)
    for block, tables in entries.slices():
        rows, at = tables.where(schema.EVENT["profile_event"])
        _profile_events(words, pool, at, block[rows], profile)
        if rows is not ALL:
            is_profile = np.zeros(len(block), np.bool_)
            is_profile[rows] = True
            before = profile.rows - len(at) + np.cumsum(is_profile)
            rows, at = tables.where(schema.EVENT["allocation_event"])
            _allocation_events(words, at, block[rows], before[rows], allocation)
            rows, at = tables.where(schema.EVENT["debug_event"])
            _debug_events(words, pool, at, block[rows], before[rows], debug)
    events = Events(*_with_integer_delegates(profile.columns(), pool))
    counts = np.bincount(events.block, minlength=len(block_name))
    return Etdump(
        path=path,
        version=int(root.int32(0, 0).view(np.uint32)[0]),
        strings=pool.strings,
        blocks=Blocks(
            block_name, runs.int32(schema.RUN_DATA["bundled_input_index"], -1), np.append(0, np.cumsum(counts))
        ),
        events=events,
        allocations=_named_allocations(words, pool, runs, allocation),
        debug_events=DebugEvents(*_with_integer_delegates(debug.columns(), pool)),
        words=words,
    )


def root_table(words: Words) -> Tables:
    return Tables(words, np.array([words.root]), schema.ETDUMP_WIDTHS, "the root table")


def run_tables(words: Words, root: Tables) -> Tables:
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


class _Entries:
    """The events of all blocks as one sequence."""

    def __init__(self, words: Words, runs: Tables) -> None:
        self._words = words
        first, counts = words.vectors(runs, schema.RUN_DATA["events"], "the events of a run")
        self.total = int(counts.sum())
        if self.total * _SMALLEST_EVENT > words.size:
            raise words.error("it names more events than fit in it", int(runs.at[0]))
        if self.total == 0:
            raise words.error("it contains no events", int(runs.at[0]))
        self._block = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        # An event's place in the vector of its block, counted from where that vector would start in the sequence.
        self._base = first - (np.cumsum(counts) - counts)

    def slices(self) -> Iterator[tuple[Column, Tables]]:
        """Yield a slice of the sequence at a time: each event's block and table."""
        if self.total > _SLICE:
            # Until it sees one large piece freed, glibc returns memory to the system after every slice, and a sixth
            # of the reading goes into faulting it in again. This piece is never touched and costs nothing.
            np.empty(16 << 20, np.uint8)
        for low in range(0, self.total, _SLICE):
            block = self._block[low : low + _SLICE]
            entries = self._base.take(block)
            entries += np.arange(low, low + len(block))
            yield block, Tables(self._words, self._words.follow(entries, "an event"), schema.EVENT_WIDTHS, "an event")


class _Parts:
    """Columns as they grow: each slice fills the next rows of every one."""

    def __init__(self, most: int, *types: Any) -> None:
        self.rows = 0
        # Room for every event of the dump; memory that is never written is never taken.
        self._columns: list[Column] = [np.empty(most, type_) for type_ in types]

    def add(self, *columns: Column) -> None:
        low, self.rows = self.rows, self.rows + len(columns[0])
        for whole, column in zip(self._columns, columns, strict=True):
            whole[low : self.rows] = column

    def columns(self) -> list[Column]:
        return [whole[: self.rows] for whole in self._columns]


def _profile_events(words: Words, pool: StringPool, at: Positions, block: Column, parts: _Parts) -> None:
    """Add a slice's profiling events, in the order of the columns of Events."""
    slots = schema.PROFILE_EVENT
    events = Tables(words, words.follow(at, "a profiling event"), schema.PROFILE_EVENT_WIDTHS, "a profiling event")
    name, delegate = pool.codes(events, slots["name"], slots["delegate_debug_id_str"])
    metadata_at = np.zeros(len(events.at), np.uint32)
    rows, metadata_at_rows = events.where(slots["delegate_debug_metadata"])
    metadata_at[rows] = metadata_at_rows
    parts.add(
        block,
        name,
        delegate,
        events.int32(slots["delegate_debug_id_int"], -1),
        events.int32(slots["chain_index"], 0),
        events.int32(slots["instruction_id"], -1),
        events.uint64(slots["start_time"]),
        events.uint64(slots["end_time"]),
        metadata_at,
    )


def _allocation_events(words: Words, at: Positions, block: Column, before: Column, parts: _Parts) -> None:
    """Add a slice's allocations: block, allocator id, size, place."""
    if len(at):
        at = words.follow(at, "an allocation event")
        events = Tables(words, at, schema.ALLOCATION_EVENT_WIDTHS, "an allocation event")
        slots = schema.ALLOCATION_EVENT
        parts.add(block, events.int32(slots["allocator_id"], 0), events.uint64(slots["allocation_size"]), before)


def _named_allocations(words: Words, pool: StringPool, runs: Tables, parts: _Parts) -> Allocations:
    """Look up each allocation's allocator among those of its block, which are numbered from 1."""
    block, allocator_id, size, before = parts.columns()
    if not len(block):
        return Allocations(block, allocator_id, np.zeros(0, np.int32), size, before)
    first, counts = words.vectors(runs, schema.RUN_DATA["allocators"], "the allocators of a run")
    known = (allocator_id >= 1) & (allocator_id <= counts[block])
    entries = first[block[known]] + allocator_id[known] - 1
    allocators = Tables(words, words.follow(entries, "an allocator"), schema.ALLOCATOR_WIDTHS, "an allocator")
    name = np.zeros(len(block), np.int32)
    (name[known],) = pool.codes(allocators, schema.ALLOCATOR["name"])
    return Allocations(block, allocator_id, name, size, before)


def _debug_events(words: Words, pool: StringPool, at: Positions, block: Column, before: Column, parts: _Parts) -> None:
    """Add a slice's debug events, in the order of the columns of DebugEvents."""
    if not len(at):
        return
    events = Tables(words, words.follow(at, "a debug event"), schema.DEBUG_EVENT_WIDTHS, "a debug event")
    slots = schema.DEBUG_EVENT
    name, delegate = pool.codes(events, slots["name"], slots["delegate_debug_id_str"])
    parts.add(
        block,
        name,
        delegate,
        events.int32(slots["delegate_debug_id_int"], -1),
        events.uint64(slots["chain_index"]).view(np.int64),
        events.int32(slots["instruction_id"], -1),
        _is_output(words, events),
        before,
    )


def _is_output(words: Words, events: Tables) -> Mask:
    """Say which debug events hold an output of the method: their value has the field `output`."""
    rows, at = events.where(schema.DEBUG_EVENT["debug_entry"])
    values = Tables(words, words.follow(at, "a debug value"), schema.VALUE_WIDTHS, "a debug value")
    marked = np.zeros(len(values.at), np.bool_)
    marked[values.where(schema.VALUE["output"])[0]] = True
    output = np.zeros(len(events.at), np.bool_)
    output[rows] = marked
    return output


def _with_integer_delegates(columns: list[Column], pool: StringPool) -> list[Column]:
    """Write integer delegate identifiers out as strings: columns 2 and 3 are the string's code and the integer."""
    given = np.flatnonzero(columns[3] != -1)
    if len(given):
        integers, inverse = np.unique(columns[3][given], return_inverse=True)
        codes = np.array([pool.code(str(integer)) for integer in integers.tolist()], np.int32)
        columns[2][given] = codes.take(inverse.reshape(-1))
    return columns
