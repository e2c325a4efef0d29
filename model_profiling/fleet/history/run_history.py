"""Questions to the history. Every answer is of the folders as they are now."""

import contextlib
import fnmatch
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from model_profiling import __version__
from model_profiling.base import cache, directories, files
from model_profiling.base.directories import cache_directory
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.on_progress import OnProgress, no_progress
from model_profiling.base.records import record_of
from model_profiling.export import options
from model_profiling.fleet.history import run_rows
from model_profiling.fleet.history.history_records import HistoryRun, MeasurementRow, ModelCoverage, Point, TopOperator
from model_profiling.fleet.history.run_rows import FoundRun, HistoryMeasurement, HistoryRow
from model_profiling.store.artifacts import REPORT_PAGE

# Bump when rows change without a change of `run_rows.py`.
_VERSION = "4"
_BETWEEN_WORDS = 500

_decoder = msgspec.msgpack.Decoder(list[HistoryRow])


def indexed(roots: Sequence[str], on_progress: OnProgress) -> tuple[list[HistoryRow], run_rows.Search]:
    """Return what is known of the runs in these folders, up to date and in the order in which they were found."""
    found = run_rows.search(roots, on_progress)
    path, before = None, None
    with contextlib.suppress(
        SetupError, msgspec.DecodeError, UnicodeError
    ):  # there is no place for it, or it is damaged
        path = place_of(roots)
        data = cache.read_sealed(path)
        before = _decoder.decode(data) if data is not None else None
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


def _updated(index: Sequence[HistoryRow], runs: Sequence[FoundRun], on_progress: OnProgress) -> list[HistoryRow]:
    before = {known.raw_path: known for known in index}
    now, read = [], 0
    for run in runs:
        known = before.get(os.fsencode(run.path))
        if known is None or known.state != run.state:
            read += 1
            if read % _BETWEEN_WORDS == 0:
                on_progress("reading runs", read, max(read, len(runs) - len(before)))
            known = run_rows.read_run(run)
        now.append(known)
    return now


if TYPE_CHECKING:
    from model_profiling.fleet.history.trends import Series

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

    def accepts(self, run: HistoryRow) -> bool:
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


Measured = tuple[HistoryRow, HistoryMeasurement]


class RunHistory:
    """The runs below some folders, at the time it was made."""

    def __init__(
        self,
        folders: Sequence[str | Path] = (".",),
        filters: Filters = Filters(),  # noqa: B008 - frozen
        on_progress: OnProgress = no_progress,
    ) -> None:
        index, self.search = indexed(run_rows.real_roots(folders), on_progress)
        self._found: dict[str, FoundRun] = {run.path: run for run in self.search.runs}
        self._here = directories.working_directory()
        every = [row for row in index if not row.foreign]
        self.unreadable = [run for run in every if run.problem]
        self.every = [run for run in every if not run.problem]
        if filters.model is not None and self.every:
            _refuse_unknown(filters.model, self.every)
        # The runs that the filters accept.
        self.chosen = [run for run in self.every if filters.accepts(run)]
        self._measured: list[Measured] = [(run, each) for run in self.chosen for each in run.measurements]

    def runs(self) -> list[HistoryRun]:
        """Return every run, from new to old, and at the end those that cannot be read."""
        newest = sorted(self.chosen, key=lambda run: (-run.at, run.path))
        return [self._listed(run) for run in [*newest, *self.unreadable]]

    def _listed(self, run: HistoryRow) -> HistoryRun:
        return record_of(
            HistoryRun,
            run,
            path=relative_path(self._here, run.path),
            kind="earlier" if self._found[run.path].earlier else "latest",
            median_ms={each.experiment: each.median_ms for each in run.measurements if each.median_ms is not None},
            executorch=sorted({each.executorch for each in run.measurements} - {""}),
        )

    def series(self) -> "list[Series]":
        """Return measured latency over time, one series for all that may be compared; those with most runs first."""
        together: dict[tuple[Any, ...], list[Measured]] = {}
        for run, each in self._measured:
            if each.median_ms is not None and each.median_ms > 0:
                key = (*(getattr(run, name) for name in _WHAT), *(getattr(each, name) for name in _HOW))
                together.setdefault(key, []).append((run, each))
        found = [self._one_series(key, entries) for key, entries in together.items()]
        return sorted(found, key=lambda each: (each.model, each.dtype, len(each.off), -len(each.points), each.title))

    def _one_series(self, key: tuple[Any, ...], entries: list[Measured]) -> "Series":
        from model_profiling.fleet.history.trends import Series

        entries.sort(key=lambda entry: (entry[0].at, entry[0].path))
        # A run that measured another experiment again still has this one's measurement; so does a copy of a run.
        once = {(each.session, each.median_ms, each.mad_ms): run for run, each in reversed(entries)}
        kept = [(run, each) for run, each in entries if once[(each.session, each.median_ms, each.mad_ms)] is run]
        said = dict(zip((*_WHAT, *_HOW), key, strict=True))
        said |= {"off": said["off"].split(",") if said["off"] else [], "latency_source": said.pop("source")}
        return Series(**said, points=[self._point(*entry) for entry in kept])

    def _point(self, run: HistoryRow, each: HistoryMeasurement) -> Point:
        page = f"{run.path}/{REPORT_PAGE}" if self._found[run.path].has_page else ""
        return record_of(Point, run, each, spread_ms=each.mad_ms or 0.0, executions=each.executions or 0, report=page)

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
        for kind in dict.fromkeys(map(_kind, self.chosen)):
            if kind in known:
                run, entries = known[kind]
                best = max(entries, key=lambda entry: entry.coverage_percent or 0.0)
                place = relative_path(self._here, run.path)
                found.append(ModelCoverage(*kind, best.coverage_percent, best.experiment, "", place))
            else:
                why = untold[kind][0].coverage_unknown if kind in untold else _NO_TRACE
                found.append(ModelCoverage(*kind, None, "", why, ""))
        return sorted(found, key=lambda entry: (entry.percent is None, entry.percent or 0.0, entry.model))

    def _latest(self, fits: Callable[[HistoryMeasurement], bool]) -> list[tuple[HistoryRow, list[HistoryMeasurement]]]:
        """Return of each model, dtype and variant the newest run with measurements that fit, and these."""
        newest: dict[tuple[str, str, str], tuple[HistoryRow, list[HistoryMeasurement]]] = {}
        for run in sorted(self.chosen, key=lambda run: (run.at, run.path)):
            if fitting := [each for each in run.measurements if fits(each)]:
                newest[_kind(run)] = run, fitting
        return list(newest.values())

    def rows(self) -> list[MeasurementRow]:
        """Return every measurement of every run as a flat row, for other programs."""
        return [
            record_of(
                MeasurementRow,
                run,
                each,
                features_off=each.off,
                latency_source=each.source,
                sme2_coverage_percent=each.coverage_percent,
                labels=msgspec.json.encode(run.labels).decode(),
                model_sha256=run.sha256,
            )
            for run, each in self._measured
        ]


# What may be compared is alike in these fields of a run and of a measurement.
_WHAT = ("model", "dtype", "variant", "platform", "device")
_HOW = ("experiment", "threads", "off", "phase", "source")
_operators = msgspec.json.Decoder(list[tuple[str, str, float]])


def _kind(run: HistoryRow) -> tuple[str, str, str]:
    return run.model, run.dtype, run.variant


def _refuse_unknown(model: str, runs: Sequence[HistoryRow]) -> None:
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
