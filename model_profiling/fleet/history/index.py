"""The index: one SQLite file in the cache for each set of folders, made from run directories and disposable.

Every question first looks at all folders and reads what is new or has changed.
"""

import contextlib
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from model_profiling import __version__, places
from model_profiling.fleet.history.finding import Found, Search, search
from model_profiling.fleet.history.reading import Measurement, Row, read_run
from model_profiling.on_progress import OnProgress

_SERIES = ("model", "dtype", "variant", "platform", "device", "experiment", "threads", "off", "phase", "source")
_RUN = (
    *("at", "created", "label", "model", "stem", "dtype", "variant", "platform", "device", "timing", "status"),
    *("revision", "branch", "dirty", "labels", "kit_version", "sha256", "problem"),
)
_MEASURED = (
    *("median_ms", "mad_ms", "executions", "session", "first_result_ms", "peak_bytes"),
    *("coverage_percent", "coverage_unknown", "operators"),
)
# Paths are bytes, as file systems have them.
_TABLES = f"""
CREATE TABLE series (id INTEGER PRIMARY KEY, {", ".join(_SERIES)}, UNIQUE ({", ".join(_SERIES)}));
CREATE TABLE runs (id INTEGER PRIMARY KEY, path BLOB UNIQUE, state TEXT, {", ".join(_RUN)});
CREATE TABLE measurements (run INTEGER, series INTEGER, {", ".join(_MEASURED)});
CREATE INDEX of_run ON measurements (run);
CREATE INDEX of_series ON measurements (series);
CREATE INDEX by_model ON runs (model);
"""
# Another kit may read runs in another way, and so does this one when the number is raised (`reading.py` has changed).
_VERSION = zlib.crc32(f"{__version__} 2 {_TABLES}".encode()) & 0x7FFFFFFF
_PATIENCE_S = 60.0
_TOGETHER = 500


@contextlib.contextmanager
def opened(roots: Sequence[str], on_progress: OnProgress) -> Iterator[tuple[sqlite3.Connection, Search]]:
    """The index of these folders, up to date, and what was found in them."""
    found = search(roots, on_progress)
    with contextlib.closing(_current(roots, found, on_progress)) as connection:
        yield connection, found


def _current(roots: Sequence[str], found: Search, on_progress: OnProgress) -> sqlite3.Connection:
    path = place_of(roots)
    for attempt in ("as it is", "from nothing"):
        connection = None
        try:
            if attempt == "from nothing":
                _remove(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite itself gives nobody else the right to write, whatever the umask says.
            path.touch()
            connection = _connected(str(path))
            _update(connection, found.runs, on_progress)
            return connection
        except (sqlite3.Error, OSError):
            # Damaged, of another version, or in a place that cannot be written: it is made again, at last in memory.
            if connection is not None:
                connection.close()
    connection = _connected(":memory:")
    _update(connection, found.runs, on_progress)
    return connection


def place_of(roots: Sequence[str]) -> Path:
    """Where the index of these folders lies."""
    key = hashlib.sha256(b"\0".join(os.fsencode(root) for root in roots)).hexdigest()[:16]
    return places.cache_directory() / "history" / f"{key}.sqlite"


def _remove(path: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            path.with_name(f"{path.name}{ending}").unlink()


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
    # What a crash of the machine would lose can be made again.
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _update(connection: sqlite3.Connection, runs: Sequence[Found], on_progress: OnProgress) -> None:
    """Make the index say what the folders hold. Others wait; a reader among them sees the index before or after."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == _VERSION and not _different(connection, runs):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                connection.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        _write(connection, runs, on_progress)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _known(connection: sqlite3.Connection) -> dict[bytes, str]:
    return dict(connection.execute("SELECT path, state FROM runs"))


def _different(connection: sqlite3.Connection, runs: Sequence[Found]) -> bool:
    return _known(connection) != {os.fsencode(run.path): run.state for run in runs}


def _write(connection: sqlite3.Connection, runs: Sequence[Found], on_progress: OnProgress) -> None:
    known = _known(connection)
    there = {os.fsencode(run.path): run for run in runs}
    stale = [(path,) for path, state in known.items() if path not in there or there[path].state != state]
    connection.executemany("DELETE FROM measurements WHERE run = (SELECT id FROM runs WHERE path = ?)", stale)
    connection.executemany("DELETE FROM runs WHERE path = ?", stale)
    fresh = [(path, run) for path, run in there.items() if known.get(path) != run.state]
    writer = _Writer(connection)
    for done, (path, run) in enumerate(fresh):
        if done and done % _TOGETHER == 0:
            on_progress("reading runs", done, len(fresh))
        writer.add(path, run.state, read_run(run))
    writer.flush()
    connection.execute("DELETE FROM series WHERE id NOT IN (SELECT series FROM measurements)")


class _Writer:
    """Rows on their way into the index, some at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._next = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()[0]
        columns = ", ".join(_SERIES)
        self._series = {tuple(row[1:]): row[0] for row in connection.execute(f"SELECT id, {columns} FROM series")}
        self._runs: list[tuple[object, ...]] = []
        self._measured: list[tuple[object, ...]] = []

    def add(self, path: bytes, state: str, row: Row | None) -> None:
        # What another program wrote is remembered as seen.
        row = row or Row(status="foreign")
        labels = msgspec.json.encode(row.labels)
        said = (row.status, row.commit, row.branch, row.dirty, labels, row.kit_version, row.sha256, row.problem)
        what = (row.model, row.stem, row.dtype, row.variant, row.platform, row.device, row.timing)
        self._runs.append((self._next, path, state, row.at, row.created, row.label, *what, *said))
        self._measured += [self._measurement(row, each) for each in row.measurements]
        self._next += 1
        if len(self._runs) >= _TOGETHER:
            self.flush()

    def _measurement(self, row: Row, each: Measurement) -> tuple[object, ...]:
        how = (each.experiment, each.threads, each.off, each.phase, each.source)
        key = (row.model, row.dtype, row.variant, row.platform, row.device, *how)
        if key not in self._series:
            marks = ", ".join("?" * len(_SERIES))
            added = self._connection.execute(f"INSERT INTO series ({', '.join(_SERIES)}) VALUES ({marks})", key)
            self._series[key] = added.lastrowid
        return (self._next, self._series[key], *(getattr(each, name) for name in _MEASURED))

    def flush(self) -> None:
        marks = ", ".join("?" * (len(_RUN) + 3))
        columns = f"id, path, state, {', '.join(_RUN)}"
        self._connection.executemany(f"INSERT INTO runs ({columns}) VALUES ({marks})", self._runs)
        marks = ", ".join("?" * (len(_MEASURED) + 2))
        columns = f"run, series, {', '.join(_MEASURED)}"
        self._connection.executemany(f"INSERT INTO measurements ({columns}) VALUES ({marks})", self._measured)
        self._runs, self._measured = [], []
