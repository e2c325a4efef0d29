"""What a path on the command line means: a run directory, one experiment of it, or a bare dump."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model_profiling import etdump
from model_profiling.analysis.categories import CategoryTable
from model_profiling.analysis.latency import latency_turns
from model_profiling.analysis.metrics import ExperimentMetrics, caveats_of, experiment_metrics, latency_metrics
from model_profiling.analysis.profile import Profile, profiles
from model_profiling.errors import InputError
from model_profiling.run_directory import LatencySource, Manifest, RunDirectory, Turn, experiment_file


@dataclass(frozen=True)
class Chosen:
    """One side of a comparison. `session` is equal for sides that were measured together."""

    name: str
    turns: list[Turn]
    latency_source: LatencySource
    etdump: Path
    session: str
    traced_launches: dict[int, int]
    # What a verdict on it has to be read with.
    caveats: tuple[str, ...] = ()
    # The profile where the dump had to be read already: large ones are neither read twice nor kept.
    ready: Profile | None = None
    # Of an experiment of a run: all that was measured.
    measured: ExperimentMetrics | None = None

    @property
    def metrics(self) -> ExperimentMetrics:
        return self.measured or latency_metrics(self.turns, self.latency_source)

    def profile(self, table: CategoryTable) -> Profile:
        return (self.ready or profiles(etdump.read(self.etdump), table)[0]).with_launches(self.traced_launches)


def choose(text: str, table: CategoryTable | None = None) -> dict[str, Chosen]:
    """The experiments `text` names: all of `DIR`, one of `DIR:EXPERIMENT` or `DIR/EXPERIMENT`, or a dump.

    With a table, a dump is profiled in the same reading that takes its times.
    """
    path = Path(text)
    if path.suffix == ".etdump" or path.is_file():
        return {path.stem: _dump(path, table)}
    directory, _, name = text.rpartition(":")
    if name and directory and not path.exists():
        return {name: _experiment(RunDirectory(Path(directory)), name)}
    run = RunDirectory(path)
    if not run.manifest_path.is_file() and RunDirectory(path.parent).manifest_path.is_file():
        return {path.name: _experiment(RunDirectory(path.parent), path.name)}
    manifest = run.manifest()
    done = [name for name, record in manifest.experiments.items() if record.status == "ok"]
    if not done:
        raise InputError(f"{path} has no finished experiment", "Run the pipeline again to finish it.")
    return {name: _finished(run, manifest, name) for name in done}


def _experiment(run: RunDirectory, name: str) -> Chosen:
    manifest = run.manifest()
    record = manifest.experiments.get(name)
    if record is None:
        raise InputError(
            f"{run.path} has no experiment '{name}'", f"It has: {', '.join(manifest.experiments) or 'none'}."
        )
    if record.status != "ok":
        raise InputError(f"experiment '{name}' of {run.path} failed: {record.failure}", "Run the pipeline again.")
    return _finished(run, manifest, name)


def _finished(run: RunDirectory, manifest: Manifest, name: str) -> Chosen:
    if manifest.timing != "measured":
        raise InputError(
            f"the times in {run.path} are emulated and cannot be compared", "Compare runs on real hardware."
        )
    record, samples = manifest.experiments[name], run.samples(manifest, name)
    file = run.experiment(name) / experiment_file(manifest.model.stem, name, record.threads, ".etdump")
    turns, caveats = latency_turns(record, samples), tuple(caveats_of(manifest, name))
    measured = experiment_metrics(manifest, name, samples)
    launches = samples.traced_launches
    return Chosen(name, turns, record.latency_source, file, record.session, launches, caveats, measured=measured)


def _dump(path: Path, table: CategoryTable | None) -> Chosen:
    """A dump's executions in blocks of five: neighbours in time are not independent."""
    dump = etdump.read(path)
    nesting = etdump.nest(dump)
    durations = dump.events.take(nesting.executions).duration
    if len(durations) == 0:
        raise InputError(f"{path} contains no execution", "Run the model at least once with the tracer attached.")
    ready = profiles(dump, table, nesting)[0] if table else None
    count = max(1, len(durations) // 5)
    bounds = (np.arange(count + 1) * len(durations) // count).tolist()
    ns = durations.tolist()
    turns = [Turn(number, 0.0, ns[a:b]) for number, (a, b) in enumerate(itertools.pairwise(bounds))]
    return Chosen(path.stem, turns, "traced executions", path, "", {0: len(durations)}, ready=ready)
