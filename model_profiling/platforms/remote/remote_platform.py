"""Platforms on another machine: the kit's runner is pushed there, paced as here, and what it writes is fetched.

A session is the same conversation as with a process here, through adb or ssh.
"""

import contextlib
import statistics
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.cache import kept_sha256
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import TimedOutError, is_ready, run_program
from model_profiling.platforms.base import Capabilities, LaunchRequest, launch_flags, paced_flags
from model_profiling.platforms.bundle import Bundle, own_bundle
from model_profiling.platforms.cpus import DeviceFacts, affinity_mask
from model_profiling.platforms.heat import HeatLog
from model_profiling.platforms.operator_libraries import libraries_for
from model_profiling.platforms.platform_table import Choice, folder_of, row_of
from model_profiling.platforms.process_platform import features_in, kit_record, no_trace_note, operators_for
from model_profiling.platforms.remote.device import PATIENCE, Device, read_script, script_words
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.runner.build import Build, build_runner
from model_profiling.runner.kernel_trace import TRACE_VARIABLE, build_shim
from model_profiling.runner.protocol import Done
from model_profiling.runner.session import ProcessSession, runner_failure
from model_profiling.store.made_by import RunnerKind, RunnerRecord
from model_profiling.store.run_directory import Conditions, Timing

# The process notes its number and becomes the runner, so that it can be ended if it hangs.
_START = 'echo $$ > "$1/pid"; shift; exec "$@"'
# Whoever is silent this long is asked whether they are still there; executions take longer only in rare models.
_SILENCE_S = 10.0 * PATIENCE
_ANSWER_S = 10.0 * PATIENCE


def start_command(home: str, words: list[str]) -> list[str]:
    """Return `words` as a process of the session in `home`."""
    return script_words(_START, home, *words)


def end_session(device: Device, store: Store, home: str) -> None:
    """Make sure that the session's process is gone, and its folder."""
    device.script(read_script("end_session"), home, store.root)


class RemoteMachine(ABC):
    """Another machine in use: chosen, examined, and from the first use of its store on held for this run alone."""

    device: Device
    facts: DeviceFacts
    heat: HeatLog
    c_library = ""
    # What tells measurements of one machine apart.
    mode = ""

    def __init__(self) -> None:
        # How long each turn took as seen from here, and what the runner measured of it there, in seconds.
        self.turns: list[tuple[float, float]] = []
        # The kit's folder there, once it was used.
        self.pushed: Store | None = None
        self._refused: KitError | None = None

    @property
    def store(self) -> Store:
        """The kit's folder there. Its first use takes the machine for this run and makes it ready to be measured."""
        if self._refused is not None:
            raise self._refused
        if self.pushed is None:
            try:
                self.pushed = self.take()
            except KitError as error:
                # Nothing may be measured on a machine that is another's, or in another state than was asked for.
                self._refused = error
                raise
        return self.pushed

    @abstractmethod
    def take(self) -> Store:
        """Hold the machine, and find or make the kit's folder on it."""

    @abstractmethod
    def bundle(self, build: Build) -> Bundle:
        """Return what to push so that the kit's runner works there."""

    @abstractmethod
    def libraries(self, build: Build) -> dict[str, str]:
        """Return the hashes of what the kit's runner would load there, without using the machine."""

    @abstractmethod
    def let_go(self, remove_pushed: bool) -> str:
        """Leave the machine as it was found; returns what the user has to be told."""

    def power(self) -> dict[str, object]:
        """Return the power settings while it was measured, for the manifest."""
        return {}

    def system_log(self, home: str) -> str:
        """Return what the system there logged of the process of a session; empty where there is no such log."""
        del home
        return ""


class RemoteSession(ProcessSession):
    """Keeps the Session protocol over a device's shell; its files are pulled and proven when it finishes."""

    def __init__(
        self, at: RemoteMachine, home: str, command: list[str], request: LaunchRequest, fetch: list[tuple[str, Path]]
    ) -> None:
        """`fetch` says which files of its folder there, `home`, belong where on this computer."""
        self._at, self._home, self._fetch = at, home, fetch
        # Outputs are as many as the model has: `<home>/output-0.bin` becomes `<base>-0.bin`.
        self._output_base = request.output_base
        self._ended = self._fetching = False
        self._begun = not at.device.begins
        self._command = at.device.command(*start_command(home, command))
        super().__init__(self._command, request.log, request.timeout_s, once=request.once)

    def run(self, count: int, settle: int = 0) -> list[int]:
        self._at.heat.before_turn()
        start = time.monotonic()
        times = super().run(count, settle)
        self._at.turns.append((time.monotonic() - start, sum(times) / 1e9))
        return times

    def finish(self) -> Done:
        # The process is closed before its files are here; only then may the folder go.
        self._fetching = True
        try:
            done = super().finish()
            # Seen from here, the way to the device is part of it.
            self.life_ns = done.life_ns
            for remote, local in [*self._fetch, *self._outputs(done)]:
                self._at.device.pull(remote, local)
        finally:
            self._fetching = False
        self._ended = True
        self._at.device.freed(self._command)
        self._at.store.done_with(self._home)
        return done

    def _outputs(self, done: Done) -> Iterator[tuple[str, Path]]:
        if (base := self._output_base) is not None:
            for index in (i for i, output in enumerate(done.outputs) if output.dtype != "scalar"):
                yield f"{self._home}/output-{index}.bin", base.with_name(f"{base.name}-{index}.bin")

    def close(self) -> None:
        """Remove the session from the device as well, as far as the device still answers."""
        super().close()
        if not self._fetching and not self._ended:
            self._ended = True
            self._at.device.freed(self._command)
            with contextlib.suppress(KitError):
                end_session(self._at.device, self._at.store, self._home)

    def _line(self) -> bytes:
        line = super()._line()
        while not self._begun:
            # What a login shell prints before it does what it was asked.
            self._begun = line.strip() == self._at.device.begins
            line = super()._line()
        return line

    def _await_word(self, deadline: float) -> None:
        """Wait for the runner; when it is silent for long, see whether the device itself still answers."""
        while not is_ready(self._process.stdout, min(_SILENCE_S, deadline - time.monotonic())):
            if not self._at.device.answers(_ANSWER_S):
                raise self._at.device.lost(f"said nothing for {_SILENCE_S:g} s and does not answer")
            if time.monotonic() >= deadline:
                super()._await_word(deadline)

    def _failure(self) -> KitError:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 1
        return ended_on_device(self._at.device, self._at.facts.boot_id, code, self._log_path, self._log_start)


def ended_on_device(device: Device, boot_id: str, code: int, log: Path, log_start: int) -> KitError:
    """Return why a process on the device ended: the device, the way there, the system there, or the runner."""
    if not device.present():
        return device.lost("was disconnected while the runner ran")
    try:
        if device.boot_id() != boot_id:
            return device.lost("rebooted while the runner ran")
    except KitError as error:
        return error
    lines = files.tail(log, 1 << 20, log_start).splitlines()
    said = [line for line in lines if not line.startswith("{") and not device.complains(line)]
    if code in (1, 255) and not said:
        # No runner ends like this without a word; a shell that is cut off does.
        return device.lost(f"is there, but the connection was cut: {device.cut}")
    if code in (1, 126, 127) and not any(line.startswith("error: ") for line in said):
        last = said[-1] if said else f"exit code {code}"
        return RunError(f"the runner failed on the device: {last[:200]}", f"Its log is {log}; check launch_prefix too.")
    # Shells report a signal as 128 and its number.
    return runner_failure(128 - code if 128 < code < 192 else code, log, log_start)


def _transport(turns: list[tuple[float, float]]) -> dict[str, float]:
    """Return what turns took beyond what was measured: the way there, and reading answers."""
    if not turns:
        return {}
    overheads_s = [max(0.0, elapsed - measured) for elapsed, measured in turns]
    return {
        "turns": len(turns),
        "measured_on_device_s": round(sum(measured for _, measured in turns), 6),
        "around_turns_s": round(sum(overheads_s), 6),
        "around_a_turn_median_ms": round(statistics.median(overheads_s) * 1e3, 3),
    }


class RemotePlatform:
    """Keeps the Platform protocol on another machine; nothing is asked of it before something needs it."""

    def __init__(
        self, choice: Choice, connect: Callable[[Choice], RemoteMachine], emulated: bool, on_note: OnNote
    ) -> None:
        """`on_note` is told what the user has to put right there."""
        self.name, self.folder = row_of(choice.platform).name, folder_of(choice)
        self.kernels_folder = f"{self.folder}_kernels"
        # A launch_prefix that is an emulator makes all times meaningless.
        self.timing: Timing = "emulated" if emulated else "measured"
        self.trace_note = ""
        self.identity = ""
        self.remote = True
        self._choice = choice
        self._connect = connect
        self._note = on_note
        self._connected: RemoteMachine | None = None
        # By the path of the runner: there is one for each ExecuTorch that is asked for.
        self._builds: dict[str, Build] = {}
        self._bundles: dict[str, Bundle] = {}
        self._load = 0.0

    def probe(self) -> Capabilities:
        at, facts = self._device(), self._device().facts
        arch, proof = facts.target.removeprefix("linux-"), f"/proc/cpuinfo of {at.device.title}"
        return Capabilities(arch, facts.features, proof, facts.environment, facts.boot_id)

    def runner(self, runner_path: str | None, executorch: str | None = None, model: Path | None = None) -> RunnerRecord:
        if runner_path is None:
            build = build_runner(self._device().facts.target, executorch=executorch)
            self._builds[str(build.path)] = build
            operators = {path.name: kept_sha256(path) for path in operators_for(build, model)}
            return kit_record(build, {**self._device().libraries(build), **operators})
        path = Path(runner_path).resolve()
        bundle = own_bundle(path)
        home = self._device().store.bundle(bundle)
        output = self._device().device.shell(*bundle.start(home), "--list_features", timeout_s=60)
        kind: RunnerKind = "kit" if features_in(output.stdout) else "foreign"
        return RunnerRecord(kind, str(path), files.sha256(path), libraries=bundle.hashes)

    def open(self, request: LaunchRequest) -> RemoteSession:
        at, bundle = self._device(), self._bundle(request)
        model, inputs = at.store.file(request.model), [at.store.file(path) for path in request.inputs]
        home = at.store.session()
        etdump = f"{home}/etdump" if request.etdump is not None else None
        output = f"{home}/output" if request.output_base is not None else None
        fetch = [(f"{home}/etdump", request.etdump)] if request.etdump is not None else []
        variables, preload = {}, None
        # A user's own runner has the kernels and the operators that it has.
        if request.kernel_trace is not None and request.runner.target and not self.trace_note:
            preload = at.store.file(build_shim(self._build(request)))
            variables = {TRACE_VARIABLE: f"{home}/kernels"}
            fetch.append((f"{home}/kernels", request.kernel_trace))
        needed = libraries_for(self._build(request), request.model) if request.runner.target else ()
        libraries = [at.store.file(path) for path in needed]
        tokens = at.store.file(request.reading.tokens) if request.reading is not None else None
        flags = paced_flags(request, model, inputs, etdump, output, tokens, libraries)
        command = [*self._start(request, bundle, variables, preload), *flags]
        return RemoteSession(at, home, command, request, fetch)

    def launch(self, request: LaunchRequest, executions: int) -> int:
        at, bundle = self._device(), self._bundle(request)
        at.heat.before_turn()
        model, home = at.store.file(request.model), at.store.session()
        flags = launch_flags(request, model, executions, f"{home}/etdump")
        words = start_command(home, [*self._start(request, bundle, {}, None), *flags])
        start = request.log.stat().st_size if request.log.exists() else 0
        try:
            code = self._run_to_the_end(at.device, words, request)
            if request.kernel_trace is not None and (said := at.system_log(home)):
                with files.open_log(request.log) as log:
                    log.write(said.encode(errors="replace"))
            if code != 0:
                raise ended_on_device(at.device, at.facts.boot_id, code, request.log, start)
            assert request.etdump is not None
            if at.device.sha256([f"{home}/etdump"]):
                at.device.pull(f"{home}/etdump", request.etdump)
        finally:
            with contextlib.suppress(KitError):
                end_session(at.device, at.store, home)
        return 0

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Do nothing: the machine is held from the first use of its store until `close`."""
        assert self._device().store
        yield

    def load(self) -> float:
        """Return the machine's load average; the last one known where it cannot be asked any more."""
        with contextlib.suppress(KitError, ValueError, IndexError):
            self._load = float(self._device().device.shell("cat", "/proc/loadavg").stdout.split()[0])
        return self._load

    def conditions(self) -> Conditions:
        at = self._device()
        heat = at.heat.finish()
        turns, at.turns = at.turns, []
        transport = _transport(turns) | (at.pushed.counts() if at.pushed is not None else {})
        return Conditions(at.power(), *heat, transport, at.c_library)

    def close(self) -> None:
        """Give the machine back as it was, or say how the user can."""
        at, self._connected = self._connected, None
        if at is None:
            return
        if at.pushed is not None:
            with contextlib.suppress(KitError):
                at.pushed.clear()
        if trouble := at.let_go(self._choice.remove_pushed):
            self._note(trouble)

    def _device(self) -> RemoteMachine:
        if self._connected is None:
            self._connected = self._connect(self._choice)
            facts = self._connected.facts
            self.identity = f"{facts.unique} {self._connected.mode}".strip()
            self.trace_note = no_trace_note(facts.target)
        return self._connected

    def _build(self, request: LaunchRequest) -> Build:
        path = request.runner.path
        if path not in self._builds:
            self._builds[path] = build_runner(self._device().facts.target)
        return self._builds[path]

    def _bundle(self, request: LaunchRequest) -> Bundle:
        # Only the kit's own runner has a target; a user's needs no compiler here.
        path = request.runner.path
        if not request.runner.target:
            return own_bundle(Path(path))
        if path not in self._bundles:
            self._bundles[path] = self._device().bundle(self._build(request))
        return self._bundles[path]

    def _start(
        self, request: LaunchRequest, bundle: Bundle, variables: dict[str, str], preload: str | None
    ) -> list[str]:
        """Return the words before the runner's flags: variables, cores, the user's prefix, loader."""
        at = self._device()
        settings = [f"{name}={value}" for name, value in variables.items()]
        cores = ["taskset", affinity_mask(request.affinity, at.facts.clusters)] if request.affinity else []
        start = bundle.start(at.store.bundle(bundle), preload)
        return [*(["env", *settings] if settings else []), *cores, *request.launch_prefix, *start]

    def _run_to_the_end(self, device: Device, words: list[str], request: LaunchRequest) -> int:
        command = device.command(*words)
        with files.open_log(request.log) as log:
            try:
                return run_program(command, timeout_s=request.timeout_s, doing="", stdout=log, stderr=log).returncode
            except TimedOutError:
                why = f"the runner did not end within {request.timeout_s:g} s on {device.title}"
                raise RunError(why, "Raise `timeout_s`.") from None
            finally:
                device.freed(command)
