"""The index: one file in the cache for each set of folders, made from run directories and disposable.

Every question first looks at all folders and reads what is new or has changed. An index that is damaged is not used:
everything is read, and the index is made anew if it can be written.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling import __version__
from model_profiling.base import cache, files
from model_profiling.base.directories import cache_directory
from model_profiling.base.errors import SetupError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export import options
from model_profiling.fleet.history import run_rows
from model_profiling.fleet.history.run_rows import HistoryRow, read_run
from model_profiling.fleet.history.run_search import FoundRun, Search, search

# Bump when rows change without a change of `reading.py`.
_VERSION = "3"
_BETWEEN_WORDS = 500


class IndexEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A run directory in one state; `row` is None if another program wrote it. Paths are bytes, as on disk."""

    path: bytes
    state: str
    row: HistoryRow | None


_decoder = msgspec.msgpack.Decoder(list[IndexEntry])


def indexed(roots: Sequence[str], on_progress: OnProgress) -> tuple[list[IndexEntry], Search]:
    """Return what is known of the runs in these folders, up to date and in the order in which they were found."""
    found = search(roots, on_progress)
    path = None
    with contextlib.suppress(SetupError):  # there is no place for it
        path = place_of(roots)
    before = _read(path) if path is not None else None
    now = _updated(before or [], found.runs, on_progress)
    if path is not None and now != before:
        with contextlib.suppress(SetupError):  # a place that cannot be written: the next question reads all again
            cache.write_sealed(path, msgspec.msgpack.encode(now))
    return now, found


def place_of(roots: Sequence[str]) -> Path:
    """Return where the index of these folders lies. Code that reads runs in another way has an index of its own."""
    code = [files.sha256(Path(path)) for path in (run_rows.__file__, options.__file__)]
    key = cache.digest(__version__, _VERSION, *code, *(os.fsencode(root).hex() for root in roots))
    return cache_directory() / "history" / f"{key}.index"


def _read(path: Path) -> list[IndexEntry] | None:
    data = cache.read_sealed(path)
    with contextlib.suppress(msgspec.DecodeError):
        return None if data is None else _decoder.decode(data)
    return None


def _updated(index: Sequence[IndexEntry], runs: Sequence[FoundRun], on_progress: OnProgress) -> list[IndexEntry]:
    before = {known.path: known for known in index}
    now, read = [], 0
    for run in runs:
        path = os.fsencode(run.path)
        known = before.get(path)
        if known is None or known.state != run.state:
            read += 1
            if read % _BETWEEN_WORDS == 0:
                on_progress("reading runs", read, max(read, len(runs) - len(before)))
            known = IndexEntry(path, run.state, read_run(run))
        now.append(known)
    return now
