"""Finds run directories (a folder with a manifest.json is one, and its earlier runs lie below it) and reads of each
what the index holds: only the fields that are asked for are decoded."""

import contextlib
import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import OnProgress, no_progress
from model_profiling.base.records import record_of
from model_profiling.export.options import DECIDING
from model_profiling.store.artifacts import ANALYSIS_SUMMARY, EARLIER, MANIFEST, METRICS, PROGRAMS, REPORT_PAGE
from model_profiling.store.labels import Revision
from model_profiling.store.made_by import executorch_name
from model_profiling.store.run_directory import SCHEMA, LatencySource, Phase

# What a run's row is made from; each changes by being replaced.
_FILES = (MANIFEST, METRICS, ANALYSIS_SUMMARY)
# After so many folders it is said how many there were.
_BETWEEN_WORDS = 20_000
# Folders that hold thousands of files of others.
_NOT_OURS = ("node_modules", "site-packages", "__pycache__", PROGRAMS)


@dataclass(frozen=True)
class FoundRun:
    """A run directory. `state` differs whenever a file that its row is made from does; `root` is the run directory
    whose latest or earlier run it is."""

    path: str
    root: str
    state: str
    has_metrics: bool
    has_summary: bool
    has_page: bool

    @property
    def earlier(self) -> bool:
        return self.path != self.root


@dataclass(frozen=True)
class Search:
    """All runs below some folders, and the run directories in which programs are kept."""

    runs: list[FoundRun]
    keeping: list[str]


def real_roots(folders: Sequence[str | Path]) -> list[str]:
    """Return where the folders are, each once, without those that lie in another of them."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(f"there is no folder {folder}", "Give one with runs in it, or nothing for this one.")
    places = sorted({os.path.realpath(folder) for folder in folders})
    return [place for place in places if not {*map(str, Path(place).parents)} & {*places}]


def search(roots: Sequence[str], on_progress: OnProgress = no_progress) -> Search:
    """Look at every folder once. Links are not followed, so that nothing outside is found and nothing twice."""
    found, looked = Search([], []), 0
    for root in roots:
        # The folder, and the run directory that it is an earlier run of, if it is.
        waiting: list[tuple[str, str]] = [(root, "")]
        while waiting:
            folder, owner = waiting.pop()
            looked += 1
            if looked % _BETWEEN_WORDS == 0:
                on_progress(f"looking for runs: {looked} folders", 0, 0)
            with contextlib.suppress(OSError):  # gone, or not ours to read
                waiting += _look(folder, owner, found)
    return found


def _look(folder: str, owner: str, found: Search) -> list[tuple[str, str]]:
    """Note what a folder is; returns the folders in it that are to be looked at."""
    inside, states, names = [], dict.fromkeys(_FILES, ""), set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in states and entry.is_file(follow_symlinks=False):
                seen = entry.stat(follow_symlinks=False)
                states[entry.name] = f"{seen.st_mtime_ns}.{seen.st_size}.{seen.st_ino}"
            elif entry.is_dir(follow_symlinks=False):
                inside.append(entry.name)
            elif entry.name == REPORT_PAGE:
                names.add(entry.name)
    if states[MANIFEST]:
        root = owner or folder
        state = " ".join(states.values())
        files = (bool(states[METRICS]), bool(states[ANALYSIS_SUMMARY]), REPORT_PAGE in names)
        found.runs.append(FoundRun(folder, root, state, *files))
        if not owner and PROGRAMS in inside:
            found.keeping.append(folder)
        # What else lies in a run directory are its experiments.
        inside = [EARLIER] if EARLIER in inside and not owner else []
        return [(f"{folder}/{name}", root) for name in inside]
    return [(f"{folder}/{name}", owner) for name in inside if name[0] != "." and name not in _NOT_OURS]


_MOST_BYTES = 256 << 20
# No file needs more.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


def _part(**fields: Any) -> Any:
    """Return what is read of a JSON object: fields with their types, and defaults if they may be missing."""
    rows = [(name, *(of if isinstance(of, tuple) else (of,))) for name, of in fields.items()]
    return msgspec.defstruct("_Part", rows, frozen=True, gc=False, kw_only=True)


def _deciding(where: str) -> dict[str, Any]:
    return {row.name: (row.plain_kind, row.plain(row.default)) for row in DECIDING if row.recorded == where}


def _by_name(of: Any) -> Any:
    """Return a field that may be missing: an object whose values are all of one type."""
    return GenericAlias(dict, (str, of)), {}


_Text = (str, "")
_Request = _part(
    **_deciding("request"),
    settings=_by_name(Any),
    shapes=(list[Any], []),
    inputs=(list[str], []),
    options=_by_name(Any),
)
_Export = _part(**{**_deciding("export"), "model": str, "dtype": _Text, "request": _Request})
_Model = _part(stem=str, sha256=str, dtype=str, export=(_Export | None, None))
_Runner = _part(executorch=_Text, executorch_content=_Text)
_Experiment = _part(
    status=str,
    mode=str,
    threads=_Count,
    disable_features=(list[str], []),
    latency_source=(LatencySource, "untraced executions"),
    method=_Text,
    phase=(Phase | None, None),
    partial=_Text,
    session=_Text,
    runner=(_Runner, _Runner()),
)
_Manifest = _part(
    kit_version=str,
    platform=str,
    created=str,
    model=_Model,
    label=str,
    device=str,
    experiments=_by_name(_Experiment),
    status=(str, "partial"),
    timing=(str, "measured"),
    schema=(int, SCHEMA),
    labels=_by_name(str),
    revision=(Revision, Revision()),
)
_Latency = _part(runs=_Count, median_ms=float, mad_ms=float)
_Startup = _part(first_result=_part(median_ms=float))
_Measured = _part(
    latency=(_Latency | None, None),
    startup=(_Startup | None, None),
    memory=(_part(peak_bytes=_Count) | None, None),
)
_Metrics = _part(experiments=_by_name(_Measured))
_Share = (_Count | None, None)
_Coverage = _part(eligible=_Count, on_sme2=_Share, work=_Share, work_on_sme2=_Share, unknown=_Text)
_Breakdown = _part(operators=GenericAlias(list, (_part(operator=str, category=str, ms=float),)))
_Analysis = _part(breakdown=_Breakdown, coverage=(_Coverage | None, None))
_Summary = _part(experiments=_by_name(_Analysis))


class HistoryMeasurement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One experiment of a run. Without `median_ms` it has no latency, and without `coverage_percent` nobody knows."""

    experiment: str
    threads: int
    off: str
    phase: str
    source: str
    # Which measurement it is: a run that measured only something else has it, too.
    session: str
    median_ms: float | None = None
    mad_ms: float | None = None
    executions: int | None = None
    first_result_ms: float | None = None
    peak_bytes: int | None = None
    coverage_percent: float | None = None
    coverage_unknown: str = ""
    # A JSON list of [operator, category, ms].
    operators: bytes = b"[]"
    # The version of ExecuTorch that ran it; '' if it is not known.
    executorch: str = ""


class HistoryRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A run directory in one state; its path is bytes, as on disk. `problem` says why it cannot be read; then the rest
    is empty, as it is of one that another program wrote (`foreign`)."""

    raw_path: bytes
    state: str
    foreign: bool = False
    at: float = 0.0
    created: str = ""
    label: str = ""
    model: str = ""
    stem: str = ""
    dtype: str = ""
    variant: str = ""
    platform: str = ""
    device: str = ""
    timing: str = ""
    status: str = ""
    commit: str = ""
    branch: str = ""
    dirty: bool | None = None
    labels: dict[str, str] = {}
    kit_version: str = ""
    sha256: str = ""
    problem: str = ""
    measurements: list[HistoryMeasurement] = []

    @property
    def path(self) -> str:
        return os.fsdecode(self.raw_path)

    @property
    def revision(self) -> Revision:
        return Revision(self.commit, self.branch, self.dirty)


_manifests = msgspec.json.Decoder(_Manifest)
_metrics = msgspec.json.Decoder(_Metrics)
_summaries = msgspec.json.Decoder(_Summary)
_anything = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_run(found: FoundRun) -> HistoryRow:
    """Return the row of a run directory."""
    home, key = Path(found.path), (os.fsencode(found.path), found.state)
    try:
        data = files.read_bytes(home / MANIFEST, "manifest", _MOST_BYTES)
        try:
            manifest = _decoded(_manifests, data, MANIFEST)
        except ValueError:
            if _is_foreign(data):
                return HistoryRow(*key, foreign=True)
            raise
        if manifest.schema > SCHEMA:
            return HistoryRow(*key, problem=f"{MANIFEST} was written by a newer kit (schema {manifest.schema})")
        at = _seconds(manifest.created)
        metrics = summary = None
        if found.has_metrics:
            metrics = _decoded(_metrics, files.read_bytes(home / METRICS, "metrics", _MOST_BYTES), METRICS)
        if found.has_summary:
            text = files.read_bytes(home / ANALYSIS_SUMMARY, "analysis", _MOST_BYTES)
            summary = _decoded(_summaries, text, ANALYSIS_SUMMARY)
        return _row(key, manifest, at, metrics or _Metrics(), summary or _Summary())
    except (KitError, ValueError) as error:
        said = error.message if isinstance(error, KitError) else str(error)
        # A path in it may have bytes that are no text.
        return HistoryRow(*key, problem=os.fsencode(said).decode(errors="replace"))


def _decoded(decoder: "msgspec.json.Decoder[Any]", data: bytes, name: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"{name}: {error}") from None


def _seconds(created: str) -> float:
    try:
        return datetime.datetime.fromisoformat(created).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{MANIFEST}: {created[:40]!r} is not a time") from None


def _is_foreign(data: bytes) -> bool:
    """Return whether this is JSON, and none of ours: other programs have a manifest.json as well."""
    try:
        fields = _anything.decode(data)
    except msgspec.ValidationError:
        return True  # JSON, but a list or a number
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return "kit_version" not in fields and fields.get("kind") != msgspec.Raw(b'"manifest"')


def _row(key: tuple[bytes, str], manifest: Any, at: float, metrics: Any, summary: Any) -> HistoryRow:
    model, chosen = manifest.model, manifest.labels.get("device")
    name, dtype = (model.export.model, model.export.dtype) if model.export is not None else (model.stem, model.dtype)
    return record_of(
        HistoryRow,
        manifest,
        model,
        manifest.revision,
        raw_path=key[0],
        state=key[1],
        at=at,
        model=name,
        dtype=dtype,
        variant=_variant(model.export),
        device=f"{manifest.device} ({chosen})" if chosen else manifest.device,
        measurements=[
            _measurement(name, record, manifest.timing, metrics.experiments.get(name), summary.experiments.get(name))
            for name, record in manifest.experiments.items()
            if record.status == "ok"
        ],
    )


def _variant(export: Any) -> str:
    """Return what else tells exports of one model apart that are not to be compared: options, not the code itself."""
    if export is None:
        return ""
    request = export.request
    parts = []
    for row in DECIDING:
        holder = export if row.recorded == "export" else request
        value = request.options.get(row.name) if row.recorded == "options" else getattr(holder, row.name)
        if row.tells_apart and value is not None and value != row.plain(row.default):
            names = value if isinstance(value, list) else [Path(str(value)).name if row.kind is Path else value]
            parts += [f"{row.title} {name}" for name in names]
    parts += [f"{name}={value}" for name, value in sorted(request.settings.items())]
    parts += [f"input {'x'.join(map(str, shape))}" for shape in request.shapes if isinstance(shape, list)]
    parts += [f"input {text}" for text in request.inputs]
    return ", ".join(parts)


def _measurement(name: str, record: Any, timing: str, measured: Any, analysis: Any) -> HistoryMeasurement:
    """Return what was measured of an experiment; emulated and partial ones have no latency for a series."""
    timed = timing == "measured" and record.mode == "timing" and not record.partial
    measured = measured if measured is not None and timed else _Measured()
    latency, startup = measured.latency, measured.startup
    coverage = analysis.coverage if analysis is not None else None
    operators = [(o.operator, o.category, o.ms) for o in analysis.breakdown.operators] if analysis and timed else []
    return record_of(
        HistoryMeasurement,
        record,
        latency,
        measured.memory,
        experiment=name,
        off=",".join(sorted(record.disable_features)),
        phase=_phase(record),
        source=record.latency_source,
        executions=latency.runs if latency is not None else None,
        first_result_ms=startup.first_result.median_ms if startup is not None else None,
        coverage_percent=_percent(coverage),
        coverage_unknown=coverage.unknown if coverage is not None else "",
        operators=msgspec.json.encode(operators),
        executorch=executorch_name(record.runner.executorch, record.runner.executorch_content),
    )


def _phase(record: Any) -> str:
    if record.phase is not None:
        return str(record.phase.label)
    return "" if record.method == "forward" else str(record.method)


def _percent(coverage: Any) -> float | None:
    """Return how much of the work of CONV and GEMM runs on SME2; of the operators, where the work is not known."""
    if coverage is None or coverage.unknown:
        return None
    if coverage.work and coverage.work_on_sme2 is not None:
        return float(coverage.work_on_sme2 / coverage.work * 100)
    if coverage.eligible and coverage.on_sme2 is not None:
        return float(coverage.on_sme2 / coverage.eligible * 100)
    return None
