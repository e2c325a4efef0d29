"""Platforms on another machine: the kit's runner is pushed there, paced as here, and what it writes is fetched."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.kept_hashes import kept_sha256
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import TimedOutError, run_program
from model_profiling.platforms.base import Capabilities, LaunchFiles, LaunchRequest, launch_flags, paced_flags
from model_profiling.platforms.bundle import Bundle, own_bundle
from model_profiling.platforms.cpus import DeviceFacts, affinity_mask
from model_profiling.platforms.heat import HeatLog
from model_profiling.platforms.operator_libraries import libraries_for
from model_profiling.platforms.process_platform import features_in, kit_record, no_trace_note, operators_for
from model_profiling.platforms.remote.device import Device
from model_profiling.platforms.remote.remote_session import (
    RemoteSession,
    SessionFiles,
    TransportLog,
    end_session,
    ended_on_device,
    start_command,
)
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.runner.build import Build, build_runner
from model_profiling.runner.kernel_trace import TRACE_VARIABLE, build_shim
from model_profiling.store.run_directory import Conditions, RunnerKind, RunnerRecord, Timing


class RemoteMachine(ABC):
    """Another machine in use: chosen, examined, and from the first use of its store on held for this run alone."""

    device: Device
    facts: DeviceFacts
    heat: HeatLog
    c_library = ""

    def __init__(self) -> None:
        self.transport = TransportLog()
        self._store: Store | None = None
        self._refused: KitError | None = None

    @property
    def store(self) -> Store:
        """The kit's folder there. Its first use takes the machine for this run and makes it ready to be measured."""
        if self._refused is not None:
            raise self._refused
        if self._store is None:
            try:
                self._store = self.take()
            except KitError as error:
                # Nothing may be measured on a machine that is another's, or in another state than was asked for.
                self._refused = error
                raise
        return self._store

    @property
    def pushed(self) -> Store | None:
        return self._store

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


class RemotePlatform:
    """Keeps the Platform protocol on another machine; nothing is asked of it before something needs it."""

    def __init__(
        self,
        name: str,
        folder: str,
        mode: str,
        connect: Callable[[], RemoteMachine],
        emulated: bool,
        remove_pushed: bool,
        on_note: OnNote,
    ) -> None:
        """`mode` tells measurements of one machine apart; `on_note` is told what the user has to put right there."""
        self.name, self.folder, self.kernels_folder = name, folder, f"{folder}_kernels"
        # A launch_prefix that is an emulator makes all times meaningless.
        self.timing: Timing = "emulated" if emulated else "measured"
        self.trace_note = ""
        self.identity = ""
        self.remote = True
        self._mode = mode
        self._connect = connect
        self._remove_pushed = remove_pushed
        self._note = on_note
        self._connected: RemoteMachine | None = None
        # By the path of the runner: there is one for each ExecuTorch that is asked for.
        self._builds: dict[str, Build] = {}
        self._bundles: dict[str, Bundle] = {}
        self._load = 0.0

    def probe(self) -> Capabilities:
        at = self._device()
        proof = f"/proc/cpuinfo of {at.device.title}"
        return Capabilities(at.facts.arch, at.facts.features, proof, at.facts.environment, at.facts.boot_id)

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
        home, fetch = at.store.session(), list[tuple[str, Path]]()
        etdump = f"{home}/etdump" if request.etdump is not None else None
        output = f"{home}/output" if request.output_base is not None else None
        if etdump is not None and request.etdump is not None:
            fetch.append((etdump, request.etdump))
        variables, preload = {}, None
        # A user's own runner has the kernels and the operators that it has.
        if request.kernel_trace is not None and request.runner.target and not self.trace_note:
            preload = at.store.file(build_shim(self._build(request)))
            variables = {TRACE_VARIABLE: f"{home}/kernels"}
            fetch.append((f"{home}/kernels", request.kernel_trace))
        needed = libraries_for(self._build(request), request.model) if request.runner.target else ()
        libraries = [at.store.file(path) for path in needed]
        tokens = at.store.file(request.reading.tokens) if request.reading is not None else None
        flags = paced_flags(request, LaunchFiles(model, inputs, etdump, output, tokens, libraries))
        command = [*self._start(request, bundle, variables, preload), *flags]
        place = SessionFiles(at.device, at.store, home, at.facts.boot_id, tuple(fetch), request.output_base)
        return RemoteSession(place, command, request.log, request.timeout_s, at.heat, at.transport, request.once)

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
        try:
            heat, throttled = at.heat.finish()
        except KitError:
            heat, throttled = list(at.heat.samples), ""
        transport = at.transport.summary()
        if at.pushed is not None:
            transport |= at.pushed.counts()
        return Conditions(at.power(), heat, throttled, at.heat.cooled_down_s(), transport, at.c_library)

    def close(self) -> None:
        """Give the machine back as it was, or say how the user can."""
        at, self._connected = self._connected, None
        if at is None:
            return
        if at.pushed is not None:
            with contextlib.suppress(KitError):
                at.pushed.clear()
        if trouble := at.let_go(self._remove_pushed):
            self._note(trouble)

    def _device(self) -> RemoteMachine:
        if self._connected is None:
            self._connected = self._connect()
            facts = self._connected.facts
            self.identity = f"{facts.unique} {self._mode}".strip()
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
                raise RunError(
                    f"the runner did not end within {request.timeout_s:g} s on {device.title}", "Raise `timeout_s`."
                ) from None
            finally:
                device.freed(command)
