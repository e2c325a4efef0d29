"""What every platform offers the pipeline: say what it is, make a runner ready, open sessions."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from model_profiling.runner.protocol import Done, Features, Ready
from model_profiling.store.made_by import RunnerRecord
from model_profiling.store.run_directory import Conditions, Timing


@dataclass(frozen=True)
class TokenPlan:
    """How a program reads a sequence of tokens: after `fill` (method, tokens at once, how often), `step` tokens in an
    execution, from `position` on; executions take turns at `steps` positions."""

    tokens: Path
    fill: tuple[tuple[str, int, int], ...]
    position: int
    step: int
    steps: int


@dataclass(frozen=True)
class LaunchRequest:
    """One process to start: everything that shapes what it will run, and where its files go."""

    runner: RunnerRecord
    model: Path
    inputs: tuple[Path, ...]
    threads: int
    warmup: int
    disable_features: tuple[str, ...]
    log: Path
    etdump: Path | None = None
    output_base: Path | None = None
    # Where to leave the kernel trace of a run in trace mode; ignored where `trace_note` says that there is none.
    kernel_trace: Path | None = None
    timeout_s: float = 600.0
    # Words put before the runner, for example `taskset 80`, and the cores to run on: a cluster's name or a mask.
    launch_prefix: tuple[str, ...] = ()
    affinity: str | None = None
    # Load, execute once and end, without waiting for turns; and whether to drop the model from the page cache before.
    once: bool = False
    cold: bool = False
    # How XNNPACK is told to load the model; None leaves it to ExecuTorch.
    workspace: str | None = None
    weight_cache: bool | None = None
    # The method to execute, and what a language model reads instead of inputs.
    method: str | None = None
    reading: TokenPlan | None = None
    # Execute nothing but this: read so many tokens one by one, and say how well each predicts the next.
    score: int = 0


At = Path | str


def paced_flags(
    request: LaunchRequest,
    model: At,
    inputs: Sequence[At] = (),
    etdump: At | None = None,
    output_base: At | None = None,
    tokens: At | None = None,
    libraries: Sequence[At] = (),
) -> list[str]:
    """Return the flags of the kit's runner for a session.

    Files are given by where they are on the machine where it will run; `libraries` have operators to load.
    """
    flags = [f"--model_path={model}", f"--cpu_threads={request.threads}"]
    if request.score:
        flags += ["--num_executions=0", f"--score={request.score}"]
    else:
        flags += ["--warmup=1", "--num_executions=0"] if request.once else [f"--warmup={request.warmup}", "--paced"]
    flags += ["--drop_cache"] if request.cold else []
    flags += [f"--operator_library={path}" for path in libraries]
    flags += [f"--inputs={path}" for path in inputs]
    values: dict[str, object] = {"workspace": request.workspace, "method_name": request.method}
    if request.weight_cache is not None:
        values["weight_cache"] = "on" if request.weight_cache else "off"
    if (reading := request.reading) is not None:
        values |= {"tokens": tokens, "position": reading.position, "step": reading.step, "steps": reading.steps}
        flags += [f"--fill={method}:{size}:{count}" for method, size, count in reading.fill]
    values |= {"disable_features": ",".join(request.disable_features) or None}
    values |= {"etdump_path": etdump, "output_file": output_base}
    return flags + [f"--{name}={value}" for name, value in values.items() if value is not None]


def launch_flags(request: LaunchRequest, model: At, executions: int, etdump: At | None) -> list[str]:
    """Return the flags that every executor_runner takes, for one launch of a fixed number of executions."""
    counts = [f"--num_executions={executions}", f"--cpu_threads={request.threads}"]
    return [f"--model_path={model}", *counts, f"--etdump_path={etdump}"]


class Session(Protocol):
    """A runner that has loaded the model and waits. Every failure is a RunError or InputError that names the cause."""

    features: Features
    ready: Ready
    # In how many executions of the last turn other work took the processor away, and the bytes in memory after it.
    preempted: int
    resident: int
    # How long the process lived, known when it has finished; 0 is not known.
    life_ns: int

    def run(self, count: int, settle: int = 0) -> list[int]:
        """Execute `settle` times, then `count` times, and return the nanoseconds of each of the latter."""

    def finish(self) -> Done:
        """End the session in order; its ETDump and outputs are then where the request asked for them."""

    def close(self) -> None:
        """Make sure that nothing of the session is left running, whatever happened."""


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do, found out and not assumed."""

    arch: str
    features: tuple[str, ...]
    proof: str
    environment: dict[str, object] = field(default_factory=dict)
    # Differs after every restart of the machine; '' where that is not known.
    boot: str = ""
    # Why features cannot be switched off here; '' if they can.
    unproven: str = ""


class Platform(Protocol):
    name: str
    # The name of its folder among the runs of a model: several machines of one kind have several.
    folder: str
    # The same for what `kernels` finds out, which must not replace a timed run.
    kernels_folder: str
    # Whether it is another machine than this one.
    remote: bool
    # "measured", or "emulated": then times mean nothing, and no experiment is timed.
    timing: Timing
    # Why kernels cannot be traced here; empty if they can.
    trace_note: str
    # What else tells one measurement from another, known after the probe: which device, in which power mode.
    identity: str

    def probe(self) -> Capabilities:
        """Find out what this platform is; a platform that cannot work here says which to use instead."""

    def runner(self, runner_path: str | None, executorch: str | None = None, model: Path | None = None) -> RunnerRecord:
        """Return the runner to use: the kit's own, built if need be, or the user's; with the libraries that it loads,
        for a program those that have its operators among them.

        `executorch` is the release or prefix to build the kit's own against; None: the installed one.
        """

    def open(self, request: LaunchRequest) -> Session:
        """Start a paced session of the kit's runner."""

    def launch(self, request: LaunchRequest, executions: int) -> int:
        """Run a foreign runner once from start to end, with a tracer: all such a runner can do.

        Returns the most bytes that it was seen to hold in memory; 0 if nobody could look.
        """

    def exclusive(self) -> AbstractContextManager[None]:
        """Have the machine alone while something is timed on it; waits for whoever measures there, and says so."""

    def load(self) -> float:
        """Return how busy the machine is with other work: the one-minute load average."""

    def conditions(self) -> Conditions:
        """Return what the machine went through since the last call, for the manifest."""

    def close(self) -> None:
        """Leave the machine as it was found, whatever happened."""
