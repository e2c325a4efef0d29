"""One side of a comparison, and what a path on the command line means: a run, an experiment of it, or a bare dump."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import Agreement, Array, against_eager, outputs_of, read_outputs
from model_profiling.analysis.compare.metrics import ExperimentMetrics, caveats_of, experiment_metrics, latency_metrics
from model_profiling.analysis.compare.program_changes import (
    ProfiledProgram,
    ProgramChanges,
    ProgramOrigin,
    program_changes,
)
from model_profiling.analysis.graph.graph import read_graph
from model_profiling.analysis.graph.operator_work import works
from model_profiling.analysis.graph.sources import UNLINKED, read_sources
from model_profiling.analysis.timing.breakdown import SourceLine, break_down
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import latency_turns, preempted_traces
from model_profiling.analysis.timing.profile import Profile, describe_sizes, profiles, split_sizes
from model_profiling.analysis.timing.work import Work
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.formats import etdump
from model_profiling.store.artifacts import ExportPaths
from model_profiling.store.run_directory import LatencySource, Phase, Process, RunDirectory, Turn, experiment_file

if TYPE_CHECKING:
    from model_profiling.analysis.run.run_view import RunView
    from model_profiling.pipeline.group_state import ExperimentOutcome

NO_PROGRAM = f"an ETDump alone does not tell its model: {UNLINKED}"


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
        sources, instances = read_sources(origin.model), profile.instances
        lines, unlinked = sources.lines(instances, origin.method), sources.note
        found = works(instances, read_graph(instances, origin.model, origin.method, origin.tokens))
    remembered = _remembered(origin, profile) if not (lines and found) else []
    lines = lines or {row: entry.source for row, entry in enumerate(remembered) if entry.source is not None}
    found = found or {row: entry.work for row, entry in enumerate(remembered) if entry.work is not None}
    return OperatorOrigins(lines, found, "" if lines else unlinked)


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


@dataclass(frozen=True)
class Side:
    """One side of a comparison. `session` is equal for sides that were measured together."""

    name: str
    turns: list[Turn]
    latency_source: LatencySource
    etdump: Path
    session: str
    traced_launches: dict[int, int]
    # What kind of work its operators are: a run may remember a table of its own.
    table: CategoryTable
    # What a verdict on it has to be read with.
    caveats: tuple[str, ...] = ()
    # The profile where the dump had to be read already: large ones are neither read twice nor kept.
    ready: Profile | None = None
    # Of an experiment of a run: all that was measured.
    measured: ExperimentMetrics | None = None
    # Processes that only started, and those of the timed executions.
    starts: tuple[Process, ...] = ()
    processes: tuple[Process, ...] = ()
    # Of a language model.
    phase: Phase | None = None
    # The share of traced executions in which other work took time that operators' times do not leave out.
    preempted: float = 0.0
    # The program that ran; None: not known.
    origin: ProgramOrigin | None = None
    # Its outputs against eager PyTorch's; None: either was not kept.
    accuracy: Agreement | None = None

    @property
    def metrics(self) -> ExperimentMetrics:
        return self.measured or latency_metrics(
            self.turns, self.latency_source, self.starts, self.processes, self.phase
        )

    def profile(self) -> Profile:
        return (self.ready or profiles(etdump.read(self.etdump), self.table)[0]).with_launches(self.traced_launches)

    def profiled(self) -> ProfiledProgram:
        """Return the same with the times of its operators."""
        profile = self.profile()
        known = operator_origins(self.origin, profile)
        found = break_down(profile, known.lines, known.works, self.metrics.traced_ms, self.preempted)
        return ProfiledProgram(self.name, profile, found, known.unlinked, self.origin)

    def paired_with(self, other: "Side") -> bool:
        """Return whether two sides were measured in turns."""
        return bool(self.session) and self.session == other.session


def changes_between(before: Side, after: Side) -> ProgramChanges:
    """Return what the difference of two sides consists of."""
    return program_changes(before.profiled(), after.profiled(), before.paired_with(after))


def choose(text: str, categories: str | Path | None = None, profiled: bool = False) -> dict[str, Side]:
    """Return the experiments `text` names: all of `DIR`, one of `DIR:EXPERIMENT` or `DIR/EXPERIMENT`, or a dump.

    If they are to be `profiled`, a dump is in the same reading that takes its times.
    """
    named = run_and_experiment(text)
    if named is None:
        table = load_table(Path(categories) if categories else None)
        return {Path(text).stem: _dump(Path(text), table, profiled)}
    # Not for a dump, which is to be compared in a moment.
    from model_profiling.analysis.run.run_view import RunView

    path, name = named
    run = RunView.open(path, categories)
    if name is not None:
        record = run.manifest.experiments.get(name)
        if record is None:
            known = ", ".join(run.manifest.experiments) or "none"
            raise InputError(f"{run.path} has no experiment '{name}'", f"It has: {known}.")
        if record.status != "ok":
            raise InputError(f"experiment '{name}' of {run.path} failed: {record.failure}", "Run the pipeline again.")
        return {name: _finished(run, name)}
    done = [name for name, record in run.manifest.experiments.items() if record.status == "ok"]
    if not done:
        raise InputError(f"{path} has no finished experiment", "Run the pipeline again to finish it.")
    return {name: _finished(run, name) for name in done}


def run_and_experiment(text: str) -> tuple[Path, str | None] | None:
    """Return the run directory `text` names, and the experiment of it if it names one; None for a dump."""
    path = Path(text)
    if path.suffix == ".etdump" or path.is_file():
        return None
    directory, _, name = text.rpartition(":")
    if name and directory and not path.exists():
        return Path(directory), name
    if not RunDirectory(path).manifest_path.is_file() and RunDirectory(path.parent).manifest_path.is_file():
        return path.parent, path.name
    return path, None


def _finished(run: "RunView", name: str) -> Side:
    manifest = run.manifest
    if manifest.timing != "measured":
        raise InputError(
            f"the times in {run.path} are emulated and cannot be compared", "Compare runs on real hardware."
        )
    record, samples = manifest.experiments[name], run.run_directory.samples(manifest, name)
    outputs = outputs_of(run.run_directory, manifest, name)
    home = Path(manifest.model.path).parent
    file = run.run_directory.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, ".etdump")
    return Side(
        name=name,
        turns=latency_turns(record, samples),
        latency_source=record.latency_source,
        etdump=file,
        session=record.session,
        traced_launches=samples.traced_launches,
        table=run.table,
        caveats=tuple(caveats_of(manifest, name)),
        measured=experiment_metrics(manifest, name, samples),
        starts=tuple(samples.starts),
        processes=tuple(samples.processes),
        phase=record.phase,
        preempted=preempted_traces(samples, record.stops_clock),
        origin=ProgramOrigin(
            manifest.model.file(), record.method or "forward", record.tokens_read, run.run_directory.analysis_path, name
        ),
        accuracy=against_eager(name, outputs, home, manifest.model.export, record.phase),
    )


def _dump(path: Path, table: CategoryTable, profiled: bool) -> Side:
    """Return a dump's executions in blocks of five: neighbours in time are not independent."""
    dump = etdump.read(path)
    nesting = etdump.nest(dump)
    durations = dump.events.take(nesting.executions).duration
    if len(durations) == 0:
        raise InputError(f"{path} contains no execution", "Run the model at least once with the tracer attached.")
    parts = [part for method in profiles(dump, table, nesting) for part in split_sizes(method)]
    if len(parts) > 1:
        raise InputError(
            f"{path} holds executions of several methods or sizes ({describe_sizes(parts[:8])}), such as prefill and "
            "decode: they are not compared together",
            "Measure them apart: `sme2-kit run MODEL.pte` runs a language model by phase.",
        )
    ready = parts[0] if profiled else None
    count = max(1, len(durations) // 5)
    bounds = (np.arange(count + 1) * len(durations) // count).tolist()
    ns = durations.tolist()
    turns = [Turn(number, 0.0, ns[a:b]) for number, (a, b) in enumerate(itertools.pairwise(bounds))]
    return Side(path.stem, turns, "traced executions", path, "", {0: len(durations)}, table, ready=ready)


def measured_side(
    outcome: "ExperimentOutcome",
    name: str,
    phase: Phase | None = None,
    caveats: tuple[str, ...] = (),
    table: CategoryTable | None = None,
    remembered: tuple[Path, str] | None = None,
) -> Side:
    """Return a program that was just measured side by side with another, as one side of a comparison; `remembered` is
    the analysis of an earlier run of the program, and an experiment in it, which know its source lines where no
    ETRecord lies beside it."""
    from model_profiling.pipeline.pipeline import export_record

    analysis, experiment = remembered or (None, "")
    paths = ExportPaths(outcome.program.pte)
    return Side(
        name=name,
        phase=phase,
        turns=outcome.timed,
        latency_source="untraced executions",
        etdump=outcome.file(".etdump"),
        session="now",
        traced_launches=outcome.samples.traced_launches,
        table=table if table is not None else load_table(),
        caveats=caveats,
        starts=tuple(outcome.starts),
        processes=tuple(outcome.processes),
        preempted=preempted_traces(outcome.samples, bool(outcome.ready and outcome.ready.stops_clock)),
        origin=ProgramOrigin(
            outcome.program.pte,
            (outcome.ready.method if outcome.ready else "") or "forward",
            phase.tokens_read if phase is not None else None,
            analysis,
            experiment,
        ),
        accuracy=against_eager(name, left_outputs(outcome), paths.pte.parent, export_record(paths), phase),
    )


def left_outputs(outcome: "ExperimentOutcome") -> list[Array]:
    """Return what a program computed; empty if it left nothing."""
    return read_outputs(outcome.file("_output"), outcome.done.outputs if outcome.done else [])
