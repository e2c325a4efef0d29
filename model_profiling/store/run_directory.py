"""The run directory: the one model of a run, between the pipeline that writes it and everything that reads it.

<output_root>/manifest.json        what explains every number: written after each group of experiments
<output_root>/metrics.json         the numbers a person asks for first
<output_root>/derived.json         what metrics, summaries and reports were made from
<output_root>/<experiment>/…       ETDump, log, samples and outputs of one experiment
<output_root>/earlier/<label>/…    an earlier run, whole (runs.py)
<output_root>/.partial/…           what interrupted runs have measured so far
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.records import sum_by_key
from model_profiling.runner.protocol import Features, TensorInfo
from model_profiling.store import artifacts
from model_profiling.store.artifacts import RUN, ExportRecord, wrong_folder
from model_profiling.store.labels import RUN_LABEL, Revision
from model_profiling.store.made_by import Machine, RunnerRecord

SCHEMA = 1
# The states that files name. mypy holds every comparison with one of them to these words.
Timing = Literal["measured", "emulated"]
Mode = Literal["timing", "trace"]
ExperimentStatus = Literal["ok", "failed"]
RunStatus = Literal["partial", "complete", "failed"]
LatencySource = Literal["untraced executions", "traced executions", "none"]
PhaseKind = Literal["prefill", "decode"]
ScheduleKind = Literal["interleaved turns", "alternating launches", "alternating launches, interleaved turns"]
# Android's thermal severities (PowerManager.THERMAL_STATUS_*), by their number.
ThermalStatus = Literal["none", "light", "moderate", "severe", "critical", "emergency", "shutdown"]
# No execution takes a year.
_LONGEST_NS = 365 * 24 * 3600 * 10**9
_MOST_BYTES = 1 << 50
MOST_TOKENS = 1 << 24
# The part of the work from which on a dtype is named.
_LEAST_SHARE = 0.005
# What the environment says of `address_randomisation` where every launch has the same memory layout.
NOT_RANDOMISED = "off"
# What may become part of a file's name: anything that does not lead elsewhere and that a file system can hold.
_FILE_NAME = re.compile(r"[^/\\\0-\x1f\x7f]{1,120}")


class Phase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A phase of a language model. `prefill` reads `tokens` tokens in one execution, `decode` one in each, and so many
    one after the other; `depth` tokens were read before."""

    kind: PhaseKind
    tokens: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    depth: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] = 0

    @property
    def label(self) -> str:
        """As llama-bench has it: `pp128`, `tg32@d128`."""
        return f"{'pp' if self.kind == 'prefill' else 'tg'}{self.tokens}{f'@d{self.depth}' if self.depth else ''}"

    @property
    def in_names(self) -> str:
        """The label as a part of a file's name."""
        return self.label.replace("@", "_")

    @property
    def tokens_read(self) -> int:
        """How many tokens one execution reads."""
        return self.tokens if self.kind == "prefill" else 1

    @property
    def last(self) -> int:
        """The index of the token that the outputs are about."""
        return self.depth + self.tokens - 1


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of an experiment: when it began (seconds since the run began) and its timed executions."""

    turn: int
    at_s: float
    ns: list[int]
    # In how many of them other work took the processor away.
    preempted: int = 0
    # Which launch it belongs to; turns of one launch are of one process, and launches of one number ran side by side.
    launch: int = 0
    # Bytes that were in memory after it; 0 is not known.
    resident: int = 0


# Medians are of undisturbed executions while fewer than half are interrupted; past this share of executions that lost
# over a fiftieth of their time, intervals no longer hold the true ratio often enough (benchmarks/verdicts.py).
BUSY_SHARE = 0.3


def preempted_share(turns: list[Turn]) -> float:
    """Return the share of executions in which other work took the processor away."""
    return sum(turn.preempted for turn in turns) / max(1, sum(len(turn.ns) for turn in turns))


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process without a tracer, from its start to its end: what starting took, and what it held in memory.

    Times are nanoseconds, memory is bytes; 0 is not known, as is -1 of the page cache. Before the load the process
    starts and reads its libraries; the load is of the program and of its method, with packing weights; then comes the
    first execution, and `first_result_ns` is when it was done, since the process started.
    """

    launch: int
    # When it was started, in seconds since the run began, and how often it executed, the first included.
    at_s: float
    runs: int
    before_load_ns: int = 0
    load_ns: int = 0
    program_ns: int = 0
    method_ns: int = 0
    first_ns: int = 0
    first_result_ns: int = 0
    # From its start to its end: as seen from outside if it ran here, else as the process says of itself.
    life_ns: int = 0
    # Which part of the .pte was in the system's page cache before the load.
    cached_percent: int = -1
    resident_before: int = 0
    resident_loaded: int = 0
    resident_first: int = 0
    resident_last: int = 0
    # The part of it that is no file's.
    anonymous_before: int = 0
    anonymous_loaded: int = 0
    anonymous_first: int = 0
    peak: int = 0
    # After the last warm-up execution, and how many there were.
    resident_warm: int = 0
    warmups: int = 0


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="samples", tag_field="kind"):
    """Every timed execution, by turn. `timed` had no tracer attached; `traced` had, and is never latency.

    `starts` are extra launches that measure start-up: alone, for one execution. `processes` are those
    of the timed executions.
    """

    timed: list[Turn]
    traced: list[Turn]
    schema: int = 1
    starts: list[Process] = []
    processes: list[Process] = []

    @property
    def traced_launches(self) -> dict[int, int]:
        """How many executions each launch with a tracer made, in the order in which the ETDump holds them."""
        return sum_by_key((turn.launch, len(turn.ns)) for turn in self.traced)


class ExperimentRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finished or failed experiment. `session` is equal for experiments measured side by side."""

    name: str
    status: ExperimentStatus
    fingerprint: str
    session: str
    mode: Mode
    threads: int
    disable_features: list[str]
    runner: RunnerRecord
    started: str
    finished: str
    features: Features | None = None
    load_ns: int = 0
    warmup_ns: list[int] = []
    backends: list[str] = []
    inputs: list[TensorInfo] = []
    outputs: list[TensorInfo] = []
    latency_source: LatencySource = "untraced executions"
    load_before: float = 0.0
    load_after: float = 0.0
    files: dict[str, str] = {}
    notes: list[str] = []
    failure: str = ""
    # Not empty: only a part of what was planned has been measured; how much, in words.
    partial: str = ""
    # How XNNPACK was told to load the model, as it says itself: '' if it does not. See `Experiment` of the config.
    workspace: str = ""
    weight_cache: str = ""
    # How many CPUs the process was allowed to run on; 0 is not known.
    cpus: int = 0
    # Which method ran; and, of a language model, in which phase, after how many tokens that were read before.
    method: str = ""
    phase: Phase | None = None
    filled: int = 0
    # Whether operators' times in its ETDump leave out what the system gave to other processes.
    stops_clock: bool = False
    # None in records of kits that did not say.
    machine: Machine | None = None

    @property
    def phase_kind(self) -> str:
        return self.phase.kind if self.phase is not None else ""

    @property
    def tokens_read(self) -> int | None:
        """How many tokens an execution reads; None if it is not a language model's."""
        return self.phase.tokens_read if self.phase is not None else None

    def is_whole(self, home: Path) -> bool:
        """Return whether all its files are in this directory, as they were."""
        return all((home / f).is_file() and files.sha256(home / f) == digest for f, digest in self.files.items())


class ModelRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    stem: str
    sha256: str
    bytes: int
    # What most of the program's work is done in; the export's is what was asked for.
    dtype: str
    export: ExportRecord | None = None
    # Which part of the work is done in each dtype, the largest first.
    dtypes: dict[str, float] = {}

    @property
    def asked_dtype(self) -> str:
        """What an export of it is known by: the dtype that was asked for, else what the program is in."""
        return self.export.dtype if self.export is not None else self.dtype

    @property
    def roughest_dtype(self) -> str:
        """What explains how far its outputs may be off: what was asked for, else the least exact of its dtypes."""
        if self.export is not None:
            return self.export.dtype
        return max(self.dtypes or [self.dtype], key=lambda dtype: -dtype_of(dtype).numerics.floor_db)

    @property
    def dtype_words(self) -> str:
        """`fp16`, or `mixed: 80 % of the work in fp16, 20 % in fp32`."""
        parts = {name: share for name, share in self.dtypes.items() if share >= _LEAST_SHARE}
        if len(parts) < 2:
            return self.dtype
        shown = [f"{share:.0%} in {name}".replace("%", " %") for name, share in parts.items()]
        return f"mixed: {', '.join([shown[0].replace(' in ', ' of the work in '), *shown[1:]])}"

    def file(self) -> Path | None:
        """Return the .pte that ran, unless it is gone or another one has taken its place since."""
        path = Path(self.path)
        return path if files.is_file(path) and program_sha256(path) == self.sha256 else None


class HeatSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One look at a device between turns: seconds since the first, its temperature, and Android's thermal status."""

    at_s: float
    celsius: float | None
    sensor: str
    status: ThermalStatus
    clock_capped: bool


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device went through while experiments took their turns; empty where there is nothing to tell.

    `throttled` says in words that heat slowed the device down. `transport` is what the way to the device cost between
    turns: it is not part of any measured time, which the runner takes on the device.
    """

    power: dict[str, object] = {}
    heat: list[HeatSample] = []
    throttled: str = ""
    cooled_down_s: float = 0.0
    transport: dict[str, float] = {}
    # Which C library the runner used there, if it could be the machine's own or the kit's.
    c_library: str = ""


class ScheduleRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How executions were ordered: `order[turn]` lists the sessions in the order they took that turn.

    `plan` says in words how many launches there were and what decided it.
    """

    seed: int
    kind: ScheduleKind
    turns: int
    settle_runs: int
    order: list[list[str]]
    conditions: Conditions = Conditions()
    launches: int = 1
    plan: str = ""


class Manifest(msgspec.Struct, forbid_unknown_fields=True, tag="manifest", tag_field="kind"):
    kit_version: str
    platform: str
    created: str
    updated: str
    config: dict[str, object]
    model: ModelRecord
    environment: dict[str, object]
    compare_pairs: list[tuple[str, str]]
    device: str
    status: RunStatus = "partial"
    experiments: dict[str, ExperimentRecord] = {}
    schedules: dict[str, ScheduleRecord] = {}
    # "measured", or "emulated": then no time in this directory is a latency, and nobody may show it as one.
    timing: Timing = "measured"
    # What the run is called among those of its directory; '' before it has a place there.
    label: str = ""
    schema: int = SCHEMA
    # What the user said of it, and the state of the code in the working directory (or what CI or a label says of it),
    # and of the repository that the model is in.
    labels: dict[str, str] = {}
    revision: Revision = Revision()
    model_revision: Revision = Revision()


class _AskedExperiment(msgspec.Struct):
    name: str = ""


class _Asked(msgspec.Struct):
    """What is read of a manifest's `config`, which else holds whatever was asked for."""

    experiments: list[_AskedExperiment] = []
    command: str | None = None
    directory: str | None = None
    token_file: str | None = None


class _Machine(msgspec.Struct):
    """What is read of a manifest's `environment`."""

    cpu: str | None = None
    # What a phone or board says of itself, part by part.
    device: str | dict[str, str | None] | None = None
    arch: str | None = None
    cores: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] | None = None
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BYTES)] | None = None
    load_1m_5m_15m: list[float] | None = None


class RunDirectory:
    """Names and reads what lies in one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest_path = path / artifacts.MANIFEST
        self.metrics_path = path / artifacts.METRICS
        self.analysis_path = path / artifacts.ANALYSIS_SUMMARY

    def experiment(self, name: str) -> Path:
        return self.path / name

    def summary_path(self, stem: str, suffix: str) -> Path:
        return self.path / f"{stem}_pipeline_summary.{suffix}"

    def manifest(self) -> Manifest:
        if not self.path.is_dir():
            raise InputError(f"run directory {self.path} does not exist", "Give the directory a pipeline wrote to.")
        if not os.path.lexists(self.manifest_path):
            raise wrong_folder(self.path, RUN)
        files.refuse_links(self.path, self.path.glob("*.json"))
        manifest = files.read_json(self.manifest_path, Manifest, "manifest")
        if manifest.schema < 1:
            raise self._damaged(f"has schema {manifest.schema}, which no version of the kit writes")
        for key, held, read in (("config", manifest.config, _Asked), ("environment", manifest.environment, _Machine)):
            try:
                msgspec.convert(held, read)
            except msgspec.ValidationError as error:
                raise self._damaged(f"is not what the kit writes: {error} of `{key}`") from None
        if not RUN_LABEL.fullmatch(manifest.label):
            raise self._damaged(f"has no label that can name a run: {manifest.label[:80]!r}")
        if not Path(manifest.model.path).name or "\0" in manifest.model.path:
            raise self._damaged("names no file as its model")
        names = {manifest.model.stem: manifest.model.stem, **{n: r.name for n, r in manifest.experiments.items()}}
        for name, own in names.items():
            fits = all(_FILE_NAME.fullmatch(each) and each not in (".", "..") for each in (name, own))
            if not fits or own != name:
                wrong = "has another name in its record" if fits else "cannot be part of a file's name"
                raise self._damaged(f"names {name[:80]!r} ({own[:80]!r}), which {wrong}")
        for home in map(self.experiment, manifest.experiments):
            files.refuse_links(self.path, [home])
            files.refuse_links(self.path, home.glob("*"))
        return manifest

    def _damaged(self, what: str) -> InputError:
        hint = "It is damaged, or of another version of the kit: run the pipeline again, or restore it."
        return InputError(f"manifest {self.manifest_path} {what}", hint)

    def samples(self, manifest: Manifest, experiment: str) -> Samples:
        record = manifest.experiments[experiment]
        name = experiment_file(manifest.model.stem, experiment, record.threads, "_samples.json")
        path = self.experiment(experiment) / name
        samples = files.read_json(path, Samples, "samples")
        if not possible((samples.timed, samples.traced), (samples.starts, samples.processes)):
            hint = "Restore the file, or run the pipeline again."
            raise InputError(f"samples {path} contain times that no execution can have", hint)
        return samples


def possible(turns: Iterable[list[Turn]], processes: Iterable[list[Process]]) -> bool:
    """Return whether executions and processes can have such times, and none is there twice."""
    return all(map(_possible_turns, turns)) and all(map(_possible_processes, processes))


def _possible_turns(turns: list[Turn]) -> bool:
    return len({turn.turn for turn in turns}) == len(turns) and all(
        bool(turn.ns)
        and all(0 < ns < _LONGEST_NS for ns in turn.ns)
        and all(0 <= n < 2**31 for n in (turn.turn, turn.launch, turn.preempted))
        and 0 <= turn.resident < _MOST_BYTES
        for turn in turns
    )


def _possible_processes(processes: list[Process]) -> bool:
    return len({process.launch for process in processes}) == len(processes) and all(
        -1 <= getattr(process, name) < _LONGEST_NS for process in processes for name in Process.__struct_fields__
    )


def threads_name(name: str, threads: int) -> str:
    """Return what an experiment is called that stands beside others which differ in nothing but their threads."""
    return f"{name}_threads{threads}"


def without_threads(name: str, threads: object) -> tuple[str, bool]:
    """Return the name of an experiment with so many threads before `threads_name`, and whether they are in it."""
    alone = name.removesuffix(f"_threads{threads}")
    return alone or name, alone not in ("", name)


def extended_name(name: str, threads: object, more: str) -> str:
    """Return the name with `more` in it, before the number of threads if that is in it."""
    alone, named = without_threads(name, threads)
    return f"{alone}_{more}_threads{threads}" if named else f"{name}_{more}"


def without_version(name: str, runner: RunnerRecord) -> tuple[str, str]:
    """Return the name before `_et1.5.1`, and that version; '' if the runner's ExecuTorch is not called so."""
    alone, _, label = name.rpartition("_et")
    known = alone and label and (runner.executorch_path or label == runner.executorch)
    return (alone, label) if known else (name, "")


def experiment_file(stem: str, experiment: str, threads: int, suffix: str) -> str:
    """Return `<model_stem>_<experiment>_t<threads><suffix>`: the name of every file of an experiment."""
    return f"{stem}_{experiment}_t{threads}{suffix}"
