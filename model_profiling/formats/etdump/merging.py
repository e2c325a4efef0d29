"""Puts the dumps of several launches into one file, which any reader takes for one dump with all their blocks.

A flatbuffer's offsets are relative, so each dump is kept byte for byte as it was written; a new root table with a new
vector names all of their blocks, in order.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from model_profiling.base import files
from model_profiling.formats.etdump.flatbuffer import IDENTIFIER, EtdumpError, Words
from model_profiling.formats.etdump.reader import root_table, run_tables

# What a dump's 64-bit fields are aligned to, counted from the size prefix; copies start at multiples of it.
_ALIGNMENT = 16
_LARGEST = 1 << 32
# Size prefix, root offset, identifier; a vtable of two fields; the table: its vtable's distance, version, vector.
_HEAD = struct.Struct("<II4s4HiII")


def merged(dumps: Sequence[Path]) -> bytes:
    """Return one dump with the blocks of all `dumps`, in their order."""
    bodies = [files.read_bytes(path, "ETDump", _LARGEST) for path in dumps]
    words = [Words(body, path) for body, path in zip(bodies, dumps, strict=True)]
    roots = [root_table(each) for each in words]
    runs = [run_tables(each, root).at * 4 for each, root in zip(words, roots, strict=True)]
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
