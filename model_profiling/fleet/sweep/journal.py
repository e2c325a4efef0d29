"""The journal of a sweep: one line when a job starts and one when it ends. What kills the sweep leaves it readable."""

import contextlib
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling.base import files
from model_profiling.fleet.sweep.executor import Seconds
from model_profiling.pipeline.manifest_records import now

Event = Literal["started", "finished", "failed", "lost", "busy"]


class JournalEntry(msgspec.Struct, frozen=True):
    """`round` counts the times that all was to be measured anew (--fresh). `replaces` is the label of the run that was
    there when a run was started."""

    at: str
    event: Event
    job: str
    round: int
    seconds: Seconds = 0.0
    failure: str = ""
    hint: str = ""
    replaces: str = ""
    node: str = ""


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries = read(path)
        self._by_job: dict[str, list[JournalEntry]] = {}
        for entry in self.entries:
            self._by_job.setdefault(entry.job, []).append(entry)
        if path.is_file():
            self._end_torn_line()

    def add(self, event: Event, job: str, round_: int, **more: str | float) -> None:
        entry = msgspec.convert({"at": now(), "event": event, "job": job, "round": round_, **more}, JournalEntry)
        files.append_line(self._path, msgspec.json.encode(entry))
        self.entries.append(entry)
        self._by_job.setdefault(job, []).append(entry)

    def of(self, job: str) -> list[JournalEntry]:
        return self._by_job.get(job, [])

    def _end_torn_line(self) -> None:
        """End a line that a kill or a full disk tore, so that the next one is not a part of it."""
        if files.tail(self._path, 1) not in ("", "\n"):
            files.append_line(self._path, b"")


def read(path: Path) -> list[JournalEntry]:
    """Return all entries that can be read; a line that was torn is none."""
    if not path.is_file():
        return []
    found = []
    decode = msgspec.json.Decoder(JournalEntry).decode
    for line in files.read_bytes(path, "journal of a sweep").splitlines():
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            found.append(decode(line))
    return found
