"""metrics.json: the numbers a person asks for first, from a run directory."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.accuracy.agreement import Agreement, agreements
from model_profiling.analysis.llm.phases import PhaseMetrics, phase_metrics
from model_profiling.analysis.process.memory import (
    Memory,
    MemoryComparison,
    ProgramMemory,
    compare_memory,
    memory,
    program_memory,
)
from model_profiling.analysis.process.scaling import Scaling, scaling, too_many_threads
from model_profiling.analysis.process.startup import Startup, StartupComparison, compare_startups, startup
from model_profiling.analysis.timing.latency import Comparison, Latency, compare, latency_turns, summarise
from model_profiling.store.run_directory import (
    NOT_RANDOMISED,
    ExperimentRecord,
    LatencySource,
    Manifest,
    Phase,
    Process,
    RunDirectory,
    Samples,
    Turn,
)

MeasuredStatus = Literal["ok", "failed", "partial"]
PARTIAL_STATUS: MeasuredStatus = "partial"


class ExperimentMetrics(msgspec.Struct, frozen=True):
    """One experiment's latency; None where it gave none. Overhead is how much slower the tracer made it.

    Without a number for it, `tracer_overhead_measured` tells "too little to be seen" from "not measured". Without
    `startup` or `memory`, the field beside it says in words why they are not known. `workspace` and `weight_cache` are
    the options that XNNPACK loaded the model with, '' if it did not say.
    """

    status: MeasuredStatus
    latency: Latency | None
    latency_source: LatencySource
    tracer_overhead_percent: float | None
    disabled: list[str]
    nonfinite_outputs: int
    tracer_overhead_measured: bool = False
    startup: Startup | None = None
    startup_unknown: str = ""
    memory: Memory | None = None
    memory_unknown: str = ""
    workspace: str = ""
    weight_cache: str = ""
    # None: not a phase of a language model.
    phase: PhaseMetrics | None = None

    @property
    def traced_ms(self) -> float | None:
        """What an execution takes with the tracer, as those without tell it; None if they do not, or were disturbed."""
        if self.latency is None or self.latency.busy or not self.tracer_overhead_measured:
            return None
        return self.latency.median_ms * (1 + (self.tracer_overhead_percent or 0.0) / 100)


class Metrics(msgspec.Struct, frozen=True, tag="metrics", tag_field="kind"):
    """metrics.json. `program` is what the .pte says of memory by itself, None if the file is gone or has changed.
    `sources` is set in the file only: the state of the run that it was made from."""

    model: str
    platform: str
    experiments: dict[str, ExperimentMetrics]
    comparisons: list[Comparison]
    agreements: list[Agreement]
    # None: no experiments differ only in their threads.
    scaling: Scaling | None = None
    schema: int = 1
    sources: str | msgspec.UnsetType = msgspec.UNSET
    startup_comparisons: list[StartupComparison] = []
    memory_comparisons: list[MemoryComparison] = []
    program: ProgramMemory | None = None


def compute_metrics(directory: RunDirectory, manifest: Manifest) -> Metrics:
    """Compute all metrics of a run from its samples and outputs."""
    done = {name: record for name, record in manifest.experiments.items() if record.status == "ok"}
    samples = {name: directory.samples(manifest, name) for name in done}
    experiments = {name: experiment_metrics(manifest, name, samples.get(name)) for name in manifest.experiments}
    turns = {name: latency_turns(record, samples[name]) for name, record in done.items()}
    comparisons = []
    starts: list[StartupComparison | None] = []
    memories: list[MemoryComparison | None] = []
    for before, after in manifest.compare_pairs:
        if turns.get(before) and turns.get(after):
            paired = done[before].session == done[after].session
            compared = compare((before, turns[before]), (after, turns[after]), paired)
            caveats = dict.fromkeys(words for name in (before, after) for words in caveats_of(manifest, name))
            comparisons.append(msgspec.structs.replace(compared, caveats=list(caveats)))
            one, other = samples[before], samples[after]
            # Processes that only start do not say whether others took the processor; those beside them do.
            starts.append(compare_startups((before, one.starts), (after, other.starts), paired, compared.contended))
            memories.append(compare_memory((before, one.processes), (after, other.processes), paired))
    return Metrics(
        manifest.model.stem,
        manifest.platform,
        experiments,
        comparisons,
        agreements(directory, manifest),
        startup_comparisons=[each for each in starts if each is not None],
        memory_comparisons=[each for each in memories if each is not None],
        program=program_memory(manifest.model.file()),
        scaling=scaling(manifest, turns, comparisons),
    )


def caveats_of(manifest: Manifest, name: str) -> list[str]:
    """Return what a verdict on an experiment has to be read with, in words."""
    record = manifest.experiments[name]
    said = partial_note(record), _heat(manifest, record)
    return [*filter(None, said), *layout_caveats(manifest.environment)]


def partial_note(record: ExperimentRecord) -> str:
    """Say so where only a part of what was planned has been measured."""
    return f"partial run: {record.partial}" if record.partial else ""


def layout_caveats(environment: Mapping[str, object]) -> list[str]:
    """Say so where all launches had one memory layout: they then show nothing of how much it matters."""
    fixed = environment.get("address_randomisation") == NOT_RANDOMISED
    return ["address space randomisation (ASLR) is off, so this holds for one memory layout"] if fixed else []


def _heat(manifest: Manifest, record: ExperimentRecord) -> str:
    """Return whether the device throttled while this experiment took its turns, in words."""
    schedule = manifest.schedules.get(record.session)
    return schedule.conditions.throttled if schedule else ""


def experiment_metrics(manifest: Manifest, name: str, samples: Samples | None) -> ExperimentMetrics:
    """Return what was measured of one experiment: the one place that fills what report/metric_columns.py shows."""
    record = manifest.experiments[name]
    turns = latency_turns(record, samples) if samples else []
    latency = summarise(turns) if turns else None
    said = [*filter(None, (partial_note(record), _heat(manifest, record), too_many_threads(manifest, record)))]
    if latency is not None and said:
        latency = msgspec.structs.replace(latency, warnings=[*said, *latency.warnings])
    tracer, overhead = _tracer(samples), None
    start, no_start = startup(samples, manifest.timing, record.mode, record.runner.kind)
    held, not_held = memory(samples, manifest.timing, record.mode, record.runner.kind)
    # A cost that cannot be told from none has no number.
    if tracer is not None and tracer.verdict == "slower":
        overhead = (tracer.after_ms / tracer.before_ms - 1) * 100
    return ExperimentMetrics(
        status=PARTIAL_STATUS if record.partial else record.status,
        latency=latency,
        latency_source=record.latency_source,
        tracer_overhead_percent=overhead,
        disabled=record.features.disabled if record.features else [],
        nonfinite_outputs=sum(tensor.nonfinite for tensor in record.outputs),
        tracer_overhead_measured=tracer is not None,
        startup=start,
        startup_unknown=no_start,
        memory=held,
        memory_unknown=not_held,
        workspace=record.workspace,
        weight_cache=record.weight_cache,
        phase=phase_metrics(record.phase, latency),
    )


def latency_metrics(
    turns: list[Turn],
    source: LatencySource,
    starts: Sequence[Process] = (),
    processes: Sequence[Process] = (),
    phase: Phase | None = None,
) -> ExperimentMetrics:
    """Return the metrics of executions without a run directory: of a dump, or of a program timed now."""
    latency = summarise(turns) if turns else None
    seen = Samples(turns, [], starts=list(starts), processes=list(processes))
    (start, no_start), (held, not_held) = startup(seen), memory(seen)
    if not starts and not processes:
        no_start = not_held = "an ETDump does not tell"
    known = (start, no_start, held, not_held)
    return ExperimentMetrics("ok", latency, source, None, [], 0, False, *known, phase=phase_metrics(phase, latency))


def _tracer(samples: Samples | None) -> Comparison | None:
    """Return executions with a tracer held against those without, where there are enough of both to tell anything."""
    if samples is None or not samples.traced or not samples.timed:
        return None
    compared = compare(("without", samples.timed), ("with", samples.traced), paired=False)
    return compared if compared.reliable else None
