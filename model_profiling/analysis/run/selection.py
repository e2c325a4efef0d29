"""What a path on the command line means: a run directory, one experiment of it, or a bare dump."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_profiling.analysis.accuracy.agreement import Agreement, against_eager, outputs_of
from model_profiling.analysis.compare.metrics import ExperimentMetrics, caveats_of, experiment_metrics, latency_metrics
from model_profiling.analysis.compare.program_changes import ProgramChanges, program_changes
from model_profiling.analysis.run.operator_origins import ProgramOrigin, operator_origins
from model_profiling.analysis.timing.breakdown import Breakdown, break_down
from model_profiling.analysis.timing.categories import CategoryTable, load_table
from model_profiling.analysis.timing.latency import latency_turns, preempted_traces
from model_profiling.analysis.timing.mixed_sizes import describe_sizes, split_sizes
from model_profiling.analysis.timing.profile import Profile, profiles
from model_profiling.base.errors import InputError
from model_profiling.formats import etdump
from model_profiling.store.run_directory import LatencySource, Phase, Process, RunDirectory, Turn, experiment_file

if TYPE_CHECKING:
    from model_profiling.analysis.run.run_view import RunView


@dataclass(frozen=True)
class ComparisonSide:
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

    def profiled(self) -> tuple[Profile, Breakdown, str]:
        """Return the times of its operators, what they add up to, and why they have no source lines, if none has."""
        profile = self.profile()
        known = operator_origins(self.origin, profile)
        found = break_down(profile, known.lines, known.works, self.metrics.traced_ms, self.preempted)
        return profile, found, known.unlinked


def changes_between(before: ComparisonSide, after: ComparisonSide) -> ProgramChanges:
    """Return what the difference of two sides consists of."""
    paired = bool(before.session) and before.session == after.session
    old, new = before.profiled(), after.profiled()
    return program_changes((before.name, after.name), old[:2], new[:2], paired, (old[2], new[2]))


def choose(text: str, categories: str | Path | None = None, profiled: bool = False) -> dict[str, ComparisonSide]:
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
        return {name: _experiment(run, name)}
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


def _experiment(run: "RunView", name: str) -> ComparisonSide:
    record = run.manifest.experiments.get(name)
    if record is None:
        known = ", ".join(run.manifest.experiments) or "none"
        raise InputError(f"{run.path} has no experiment '{name}'", f"It has: {known}.")
    if record.status != "ok":
        raise InputError(f"experiment '{name}' of {run.path} failed: {record.failure}", "Run the pipeline again.")
    return _finished(run, name)


def _finished(run: "RunView", name: str) -> ComparisonSide:
    manifest = run.manifest
    if manifest.timing != "measured":
        raise InputError(
            f"the times in {run.path} are emulated and cannot be compared", "Compare runs on real hardware."
        )
    record, samples = manifest.experiments[name], run.run_directory.samples(manifest, name)
    outputs = outputs_of(run.run_directory, manifest, name)
    home = Path(manifest.model.path).parent
    file = run.run_directory.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, ".etdump")
    return ComparisonSide(
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
            manifest.model.file(),
            record.method or "forward",
            record.phase.tokens_read if record.phase is not None else None,
            run.run_directory.analysis_path,
            name,
        ),
        accuracy=against_eager(name, outputs, home, manifest.model.export, record.phase),
    )


def _dump(path: Path, table: CategoryTable, profiled: bool) -> ComparisonSide:
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
    return ComparisonSide(path.stem, turns, "traced executions", path, "", {0: len(durations)}, table, ready=ready)
