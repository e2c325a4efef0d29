"""Platforms that start the runner as a process of this machine; this machine itself is one, Linux or macOS."""

import contextlib
import os
import platform
import re
import subprocess
import time
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.code_path import python_command
from model_profiling.base.errors import InputError, RunError, SetupError
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import ChildProcess, TimedOutError, run_program, start
from model_profiling.platforms.base import Capabilities, LaunchRequest, launch_flags, paced_flags
from model_profiling.platforms.environment import boot_id, describe_host
from model_profiling.platforms.locks import this_machine
from model_profiling.platforms.operator_libraries import libraries_for, refuse_missing_operators
from model_profiling.platforms.platform_table import Choice, local_name, row_of
from model_profiling.runner.build import Build, build_runner
from model_profiling.runner.kernel_trace import TRACE_VARIABLE, build_shim, preload_environment
from model_profiling.runner.loaded_libraries import loaded_libraries
from model_profiling.runner.protocol import Features, decode_message
from model_profiling.runner.session import ProcessSession, runner_failure
from model_profiling.store.made_by import RunnerKind, RunnerRecord
from model_profiling.store.run_directory import Conditions, Timing
from model_profiling.upstream.libraries import KERNEL_CALLS, trace_problem
from model_profiling.upstream.reliance import why_not

# How often a runner that is not the kit's is looked at while it runs.
_LOOK_S = 0.05


def list_features(command: list[str]) -> Features | None:
    """Return what the kit's runner, started by `command`, says of its CPU; None if this is not the kit's runner."""
    with contextlib.suppress(TimedOutError):
        return features_in(run_program([*command, "--list_features"], timeout_s=60, doing="").stdout)
    return None


def features_in(said: bytes | str) -> Features | None:
    """Return the features in what a runner said first; None if it is not the kit's."""
    try:
        message = decode_message(said.splitlines()[0]) if said else None
    except msgspec.DecodeError:
        return None
    return message if isinstance(message, Features) else None


def capabilities(features: Features, environment: dict[str, object]) -> Capabilities:
    """Return what this machine can do, as the kit's runner says."""
    present = tuple(features.present)
    return Capabilities(features.arch, present, features.proof, environment, boot_id(), features.unproven)


def kit_record(build: Build, libraries: dict[str, str]) -> RunnerRecord:
    """Return the record of the kit's own runner; of the user's own ExecuTorch also which it was."""
    sdk, digest = build.sdk, files.sha256(build.path)
    own = (sdk.content, sdk.given) if sdk.given else ("", "")
    made = (digest, build.target.name, build.compiler, sdk.version, libraries)
    return RunnerRecord("kit", str(build.path), *made, *own)


def operators_for(build: Build, model: Path | None) -> tuple[Path, ...]:
    """Return the libraries that the runner opens for a program; none where they cannot be had: to open it says why."""
    with contextlib.suppress(SetupError):
        return libraries_for(build, model) if model is not None else ()
    return ()


def no_trace_note(target: str, libraries: Path | None = None) -> str:
    """Return why kernels cannot be traced on a target, with the libraries in a folder; empty if they can."""
    if target == "linux-aarch64":
        problem = why_not(KERNEL_CALLS) if libraries is None else trace_problem(libraries)
        return f"no kernel trace: {problem}" if problem else ""
    known = "only the active features and the operator names are known"
    return f"no kernel trace: the backend for {target} has no KleidiAI kernels; {known}"


class ProcessPlatform:
    """Builds the runner and starts it, behind `prefix` if an emulator is to run it."""

    identity = ""
    remote = False

    def __init__(self, name: str, build: Build, prefix: tuple[str, ...], timing: Timing, no_lock: bool = False) -> None:
        self.name = self.folder = name
        self.kernels_folder = f"{name}_kernels"
        self.timing = timing
        self.build = build
        # By the path of the runner: those of other ExecuTorch versions join when they are asked for.
        self._builds = {str(build.path): build}
        self._prefix = prefix
        self._no_lock = no_lock
        # Where an emulator looks for files first.
        self._sysroot = Path(prefix[prefix.index("-L") + 1]) if "-L" in prefix else None
        self.trace_note = no_trace_note(build.target.name, build.sdk.libraries)

    def features(self) -> Features:
        found = list_features([*self._prefix, str(self.build.path)])
        if found is None:
            raise SetupError("the runner cannot detect this CPU's features", "Run `sme2-kit doctor` to see why.")
        return found

    def runner(self, runner_path: str | None, executorch: str | None = None, model: Path | None = None) -> RunnerRecord:
        if runner_path is None:
            build = self.build
            if executorch is not None:
                build = build_runner(build.target.name, executorch=executorch)
            self._builds[str(build.path)] = build
            if model is not None and not self._prefix:
                refuse_missing_operators(build, model)
            names = (build.target.backend, *map(str, operators_for(build, model)))
            return kit_record(build, loaded_libraries(build.path, names, self._sysroot))
        path = Path(runner_path).resolve()
        if not os.access(path, os.X_OK):
            raise SetupError(f"the runner {path} is not executable", f"chmod +x {path}, or correct the path.")
        kind: RunnerKind = "kit" if list_features([*self._prefix, str(path)]) else "foreign"
        # What a foreign runner opens by itself is not known.
        opened = (self.build.target.backend, *map(str, operators_for(self.build, model))) if kind == "kit" else ()
        libraries = loaded_libraries(path, opened, self._sysroot)
        return RunnerRecord(kind, str(path), files.sha256(path), libraries=libraries)

    def open(self, request: LaunchRequest) -> ProcessSession:
        if request.runner.kind == "runtime":
            return self._open_runtime(request)
        tokens = request.reading.tokens if request.reading is not None else None
        build = self._builds.get(request.runner.path, self.build)
        libraries = libraries_for(build, request.model)
        places = (request.model, request.inputs, request.etdump, request.output_base, tokens, libraries)
        flags = paced_flags(request, *places)
        variables = {}
        if request.kernel_trace is not None and not self.trace_note:
            variables = {**preload_environment(build_shim(build)), TRACE_VARIABLE: str(request.kernel_trace)}
        _refuse_affinity(request)
        words = [*request.launch_prefix, *self._start(variables), request.runner.path, *flags]
        return ProcessSession(words, request.log, request.timeout_s, once=request.once)

    def _open_runtime(self, request: LaunchRequest) -> ProcessSession:
        """Start the process of another runtime; what it compiles stays beside the log for its next launch."""
        _refuse_affinity(request)
        flags = paced_flags(request, request.model, request.inputs, request.etdump, request.output_base)
        cache = f"--cache_dir={request.log.parent / 'compiled'}"
        words = python_command("model_profiling.runtimes.runtime_process", request.runner.runtime, *flags, cache)
        return ProcessSession([*request.launch_prefix, *words], request.log, request.timeout_s, once=request.once)

    def _start(self, variables: dict[str, str]) -> list[str]:
        """Return the words before the runner: an emulator sets variables for its guest alone, `env` for a process."""
        settings = [f"{name}={value}" for name, value in variables.items()]
        if self._prefix:
            return [*self._prefix, *(word for setting in settings for word in ("-E", setting))]
        return ["env", *settings] if settings else []

    def launch(self, request: LaunchRequest, executions: int) -> int:
        _refuse_affinity(request)
        flags = launch_flags(request, request.model, executions, request.etdump)
        command = [*request.launch_prefix, *self._prefix, request.runner.path, *flags]
        with files.open_log(request.log) as log:
            begin = log.tell()
            with start(command, stdout=log, stderr=log) as process:
                peak = _watched(process, request.timeout_s)
        if process.returncode != 0:
            raise runner_failure(process.returncode, request.log, begin)
        # An emulator's memory is not its guest's.
        return 0 if self._prefix else peak

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        # The times of an emulator mean nothing, whoever else is at work.
        return contextlib.nullcontext() if self._no_lock or self.timing != "measured" else this_machine()

    def load(self) -> float:
        return os.getloadavg()[0]

    def conditions(self) -> Conditions:
        return Conditions()

    def close(self) -> None:
        """Do nothing: nothing was changed."""


def _watched(process: ChildProcess, timeout_s: float) -> int:
    """Wait for a process; the most bytes that it was seen to hold in memory, 0 where the system does not say."""
    deadline, peak = time.monotonic() + timeout_s, 0
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_LOOK_S)
                return peak
            with contextlib.suppress(OSError):
                said = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                found = re.search(r"^VmHWM:\s*(\d+) kB", said, re.MULTILINE)
                peak = max(peak, int(found[1]) * 1024 if found else 0)
            if time.monotonic() > deadline:
                raise RunError(f"{process.args[0]!s} did not end within {timeout_s:g} s", "Raise `timeout_s`.")  # type: ignore[index]
    finally:
        process.end_all()


def _refuse_affinity(request: LaunchRequest) -> None:
    if request.affinity is not None:
        raise InputError(
            f"`affinity` ('{request.affinity}') is for devices and hosts that are not this machine",
            'Use a launch_prefix here, for example ["taskset", "3"].',
        )


class LocalPlatform(ProcessPlatform):
    """Keeps the Platform protocol on the machine the kit itself runs on."""

    def __init__(self, name: str | None = None, no_lock: bool = False) -> None:
        wanted = name or local_name()
        if wanted != local_name():
            raise SetupError(
                f"the {wanted} platform runs only on {row_of(wanted).system}; this machine is {platform.system()}",
                f"Use scripts/{local_name()}_pipeline.py, or `sme2-kit run --platform {local_name()}`.",
            )
        super().__init__(wanted, build_runner(), prefix=(), timing="measured", no_lock=no_lock)

    def probe(self) -> Capabilities:
        return capabilities(self.features(), describe_host())


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> LocalPlatform:
    """Open this machine."""
    return LocalPlatform(choice.platform, choice.no_lock)
