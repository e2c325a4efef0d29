"""Questions to the history. Every answer is of the folders as they are now."""

import contextlib
import fnmatch
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from model_profiling import __version__
from model_profiling.base import cache, directories, files
from model_profiling.base.directories import cache_directory
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.on_progress import OnProgress, no_progress
from model_profiling.export import options
from model_profiling.fleet.history import run_rows
from model_profiling.fleet.history.history_records import HistoryRun, MeasurementRow, ModelCoverage, Point, TopOperator
from model_profiling.fleet.history.run_rows import HistoryMeasurement, HistoryRow, read_run
from model_profiling.fleet.history.run_search import FoundRun, Search, real_roots, search
from model_profiling.store.artifacts import REPORT_PAGE
from model_profiling.store.labels import Revision

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


if TYPE_CHECKING:
    from model_profiling.fleet.history.trends import Series

T = TypeVar("T", HistoryRun, Point, MeasurementRow)
_AGO = re.compile(r"([0-9]{1,5})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_NO_TRACE = "no run tells: see sme2-kit kernels"


class Filters(msgspec.Struct, frozen=True):
    """Which runs a question is about. `model` may be a pattern; `since` is a time in seconds."""

    model: str | None = None
    platform: str | None = None
    dtype: str | None = None
    labels: Mapping[str, str] = {}
    since: float | None = None

    def accepts(self, run: "IndexedRun") -> bool:
        names = (run.model, run.stem)
        said = {"commit": run.commit, "branch": run.branch, **run.labels}
        return (
            (self.model is None or any(fnmatch.fnmatchcase(name, self.model) for name in names))
            and (self.platform is None or run.platform == self.platform)
            and (self.dtype is None or run.dtype == self.dtype)
            and (self.since is None or run.at >= self.since)
            and all(said.get(key) == value for key, value in self.labels.items())
        )


def parse_since(text: str) -> float:
    """Return `2026-11-01`, or `90d` (days; also h and w) before now, as seconds."""
    if ago := _AGO.fullmatch(text):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f"{text[:40]!r} is not a time", "Give a date such as 2026-11-01, or 90d, 12h, 2w.") from None


class IndexedRun(HistoryRow, frozen=True, gc=False, kw_only=True):
    """A run in the index: its row, with its number and its path."""

    id: int
    path: str

    @property
    def code(self) -> Revision:
        return Revision(self.commit, self.branch, self.dirty)


class IndexedMeasurement(HistoryMeasurement, frozen=True, gc=False, kw_only=True):
    """A measurement with the numbers of its run and its series."""

    run: int
    series: int


class RunHistory:
    """The runs below some folders, at the time it was made."""

    def __init__(
        self,
        folders: Sequence[str | Path] = (".",),
        filters: Filters = Filters(),  # noqa: B008 - frozen
        on_progress: OnProgress = no_progress,
    ) -> None:
        index, self.search = indexed(real_roots(folders), on_progress)
        self._found: dict[str, FoundRun] = {run.path: run for run in self.search.runs}
        self._here = directories.working_directory()
        every = [
            IndexedRun(*msgspec.structs.astuple(known.row), id=number, path=os.fsdecode(known.path))
            for number, known in enumerate(index)
            if known.row is not None
        ]
        self.unreadable = [run for run in every if run.problem]
        self.every = [run for run in every if not run.problem]
        if filters.model is not None and self.every:
            _refuse_unknown(filters.model, self.every)
        self._runs = {run.id: run for run in self.every if filters.accepts(run)}
        numbers: dict[tuple[Any, ...], int] = {}
        self._measured = [
            IndexedMeasurement(
                *msgspec.structs.astuple(each), run=run.id, series=numbers.setdefault(_key(run, each), len(numbers))
            )
            for run in self._runs.values()
            for each in run.measurements
        ]
        self._series = {number: key for key, number in numbers.items()}

    def chosen(self) -> list[IndexedRun]:
        """Return the runs that the filters accept, as the index has them."""
        return list(self._runs.values())

    def runs(self) -> list[HistoryRun]:
        """Return every run, from new to old, and at the end those that cannot be read."""
        medians: dict[int, dict[str, float]] = {}
        for entry in self._measured:
            if entry.median_ms is not None:
                medians.setdefault(entry.run, {})[entry.experiment] = entry.median_ms
        newest = sorted(self._runs.values(), key=lambda run: (-run.at, run.path))
        return [self._listed(run, medians.get(run.id, {})) for run in [*newest, *self.unreadable]]

    def _listed(self, run: IndexedRun, medians: dict[str, float]) -> HistoryRun:
        path = relative_path(self._here, run.path)
        kind = "earlier" if self._found[run.path].earlier else "latest"
        versions = sorted({each.executorch for each in run.measurements} - {""})
        return _made(HistoryRun, run, path=path, kind=kind, revision=run.code, median_ms=medians, executorch=versions)

    def series(self) -> "list[Series]":
        """Return measured latency over time, one series for all that may be compared; those with most runs first."""
        together: dict[int, list[IndexedMeasurement]] = {}
        for entry in self._measured:
            if entry.median_ms is not None and entry.median_ms > 0:
                together.setdefault(entry.series, []).append(entry)
        found = [self._one_series(self._series[key], entries) for key, entries in together.items()]
        return sorted(found, key=lambda each: (each.model, each.dtype, len(each.off), -len(each.points), each.title))

    def _one_series(self, key: tuple[Any, ...], entries: list[IndexedMeasurement]) -> "Series":
        from model_profiling.fleet.history.trends import Series

        entries.sort(key=lambda entry: (self._runs[entry.run].at, self._runs[entry.run].path))
        # A run that measured another experiment again still has this one's measurement; so does a copy of a run.
        once = {(entry.session, entry.median_ms, entry.mad_ms): entry for entry in reversed(entries)}
        kept = [entry for entry in entries if once[(entry.session, entry.median_ms, entry.mad_ms)] is entry]
        said = dict(zip((*_WHAT, *_HOW), key, strict=True))
        said |= {"off": said["off"].split(",") if said["off"] else [], "latency_source": said.pop("source")}
        return Series(**said, points=[self._point(entry) for entry in kept])

    def _point(self, entry: IndexedMeasurement) -> Point:
        run = self._runs[entry.run]
        page = f"{run.path}/{REPORT_PAGE}" if self._found[run.path].has_page else ""
        measured = {"spread_ms": entry.mad_ms or 0.0, "executions": entry.executions or 0}
        return _made(Point, run, entry, **measured, revision=run.code, report=page)

    def top(self) -> list[TopOperator]:
        """Return where the time goes: operators of the fastest experiment of every model's latest run."""
        chosen = self._latest(lambda entry: entry.median_ms is not None)
        sums: dict[tuple[str, str], list[tuple[float, str]]] = {}
        for run, entries in chosen:
            best = min(entries, key=lambda entry: entry.median_ms or 0.0)
            for operator, category, ms in _operators.decode(best.operators):
                sums.setdefault((operator, category), []).append((ms, f"{run.model} {run.dtype}"))
        total = sum(ms for parts in sums.values() for ms, _ in parts)
        found = []
        for (operator, category), parts in sums.items():
            ms, most = sum(ms for ms, _ in parts), max(parts)
            share = ms / total if total else 0.0
            found.append(TopOperator(operator, category, ms, share, len(parts), most[1], most[0]))
        return sorted(found, key=lambda entry: (-entry.ms, entry.operator))

    def coverage(self) -> list[ModelCoverage]:
        """Return how much of each model runs on SME2, as the latest run with a kernel trace says; the least first."""
        known = {_kind(run): (run, entries) for run, entries in self._latest(lambda e: e.coverage_percent is not None)}
        untold = {_kind(run): entries for run, entries in self._latest(lambda entry: bool(entry.coverage_unknown))}
        found = []
        for kind in dict.fromkeys(_kind(run) for run in self._runs.values()):
            if kind in known:
                run, entries = known[kind]
                best = max(entries, key=lambda entry: entry.coverage_percent or 0.0)
                place = relative_path(self._here, run.path)
                found.append(ModelCoverage(*kind, best.coverage_percent, best.experiment, "", place))
            else:
                why = untold[kind][0].coverage_unknown if kind in untold else _NO_TRACE
                found.append(ModelCoverage(*kind, None, "", why, ""))
        return sorted(found, key=lambda entry: (entry.percent is None, entry.percent or 0.0, entry.model))

    def _latest(self, fits: Callable[[IndexedMeasurement], bool]) -> list[tuple[IndexedRun, list[IndexedMeasurement]]]:
        """Return of each model, dtype and variant the newest run with measurements that fit, and these."""
        fitting: dict[int, list[IndexedMeasurement]] = {}
        for entry in self._measured:
            if fits(entry):
                fitting.setdefault(entry.run, []).append(entry)
        newest: dict[tuple[str, str, str], IndexedRun] = {}
        for run in sorted((self._runs[key] for key in fitting), key=lambda run: (run.at, run.path)):
            newest[_kind(run)] = run
        return [(run, fitting[run.id]) for run in newest.values()]

    def rows(self) -> list[MeasurementRow]:
        """Return every measurement of every run as a flat row, for other programs."""
        return [self._flat(self._runs[entry.run], entry) for entry in self._measured]

    def _flat(self, run: IndexedRun, entry: IndexedMeasurement) -> MeasurementRow:
        return _made(
            MeasurementRow,
            run,
            entry,
            features_off=entry.off,
            latency_source=entry.source,
            sme2_coverage_percent=entry.coverage_percent,
            labels=msgspec.json.encode(run.labels).decode(),
            model_sha256=run.sha256,
        )


# What may be compared is alike in these fields of a run and of a measurement.
_WHAT = ("model", "dtype", "variant", "platform", "device")
_HOW = ("experiment", "threads", "off", "phase", "source")
_operators = msgspec.json.Decoder(list[tuple[str, str, float]])


def _made(type_: type[T], *parts: msgspec.Struct, **more: Any) -> T:
    """Return a record with what fields of these parts have under the same names, and more."""
    known = {name: getattr(part, name) for part in parts for name in part.__struct_fields__} | more
    return type_(**{name: known[name] for name in type_.__struct_fields__})


def _key(run: IndexedRun, measured: HistoryMeasurement) -> tuple[Any, ...]:
    """Return what the series of a measurement is known by."""
    return (*(getattr(run, name) for name in _WHAT), *(getattr(measured, name) for name in _HOW))


def _kind(run: IndexedRun) -> tuple[str, str, str]:
    return run.model, run.dtype, run.variant


def _refuse_unknown(model: str, runs: Sequence[IndexedRun]) -> None:
    names = {name for run in runs for name in (run.model, run.stem)}
    if not any(fnmatch.fnmatchcase(name, model) for name in names):
        import difflib

        known = sorted({run.model for run in runs})
        close = difflib.get_close_matches(model, known, n=3)
        hint = f"Did you mean {', '.join(close)}?" if close else f"There are: {', '.join(known[:10])}."
        raise InputError(f"there is no run of {model!r}", hint)


def relative_path(here: str, path: str) -> str:
    """Return a real path relative to the folder `here` where it lies in it."""
    if path == here:
        return "."
    return path.removeprefix(f"{here.rstrip('/')}/") if here else path
