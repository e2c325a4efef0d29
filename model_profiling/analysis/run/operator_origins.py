"""Where the operators of a measured program come from, and their work: from its .pte and ETRecord, or from the analysis
that lies in the run directory, which remembers them where the program is elsewhere."""

import functools
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling.analysis.graph.graph import read_graph
from model_profiling.analysis.graph.operator_work import works
from model_profiling.analysis.graph.sources import UNLINKED, Sources, read_sources
from model_profiling.analysis.timing.breakdown import SourceLine
from model_profiling.analysis.timing.profile import Profile
from model_profiling.analysis.timing.work import Work
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.store.artifacts import ExportPaths

NO_PROGRAM = f"an ETDump alone does not tell its model: {UNLINKED}"


@dataclass(frozen=True)
class ProgramOrigin:
    """The program that ran: its .pte (None: gone), what was executed of it, and the analysis of its run."""

    model: Path | None
    method: str = "forward"
    tokens: int | None = None
    analysis: Path | None = None
    experiment: str = ""


@dataclass(frozen=True)
class OperatorOrigins:
    """Lines and work by row of the profile; `unlinked` says why no operator has a line."""

    lines: dict[int, SourceLine]
    works: dict[int, Work]
    unlinked: str = ""


class _Row(msgspec.Struct):
    name: str
    source: SourceLine | None = None
    work: Work | None = None


class _Breakdown(msgspec.Struct):
    instances: list[_Row]


class _Experiment(msgspec.Struct):
    breakdown: _Breakdown


class _Summary(msgspec.Struct):
    experiments: dict[str, _Experiment]


def operator_origins(origin: ProgramOrigin | None, profile: Profile) -> OperatorOrigins:
    """Return what is known of the operators of a profile."""
    if origin is None:
        return OperatorOrigins({}, {}, NO_PROGRAM)
    lines: dict[int, SourceLine] = {}
    found: dict[int, Work] = {}
    unlinked = f"the .pte is gone, or has changed since: {UNLINKED}"
    if origin.model is not None:
        sources = _sources(origin.model, _stamp(ExportPaths(origin.model).etrecord))
        lines, unlinked = sources.lines(profile.instances, origin.method), sources.note
        dtypes = [instance.kind_of.dtype for instance in profile.instances]
        found = works(
            profile.instances, dtypes, read_graph(profile.instances, origin.model, origin.method, origin.tokens)
        )
    remembered = _remembered(origin, profile) if not (lines and found) else []
    lines = lines or {row: entry.source for row, entry in enumerate(remembered) if entry.source is not None}
    found = found or {row: entry.work for row, entry in enumerate(remembered) if entry.work is not None}
    return OperatorOrigins(lines, found, "" if lines else unlinked)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=2)
def _sources(model: Path, stamp: tuple[int, int]) -> Sources:
    """Read an ETRecord once for both sides of a comparison; `stamp` tells another file in its place."""
    return read_sources(model)


def _remembered(origin: ProgramOrigin, profile: Profile) -> list[_Row]:
    """Return the operators as the analysis of the run has them; none if it has others."""
    if origin.analysis is None or not files.is_file(origin.analysis):
        return []
    try:
        summary = files.read_json(origin.analysis, _Summary, "analysis summary")
    except KitError:
        return []
    experiment = summary.experiments.get(origin.experiment)
    rows = experiment.breakdown.instances if experiment is not None else []
    return rows if [row.name for row in rows] == [instance.name for instance in profile.instances] else []
