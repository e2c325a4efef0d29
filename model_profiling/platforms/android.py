"""An Android device behind adb: the kit's Linux runner with its own C library, paced as on a desktop."""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling import files
from model_profiling.errors import KitError, RunError, SetupError
from model_profiling.on_progress import OnNote, no_notes
from model_profiling.platforms.adb import Device, choose_device, find_adb
from model_profiling.platforms.android_power import PowerSettings, device_directory
from model_profiling.platforms.android_probe import Facts, affinity_mask, examine
from model_profiling.platforms.android_session import (
    AndroidSession,
    Place,
    TransportLog,
    end_process,
    ended_on_device,
    start_command,
)
from model_profiling.platforms.android_store import ROOT, Store
from model_profiling.platforms.android_thermal import HeatLog
from model_profiling.platforms.base import Files, Probe, Request, launch_flags, paced_flags
from model_profiling.platforms.bundle import Bundle, kit_bundle, own_bundle
from model_profiling.platforms.operators import libraries_for
from model_profiling.platforms.process import no_trace_note
from model_profiling.run_directory import Conditions, RunnerKind, RunnerRecord, Timing
from model_profiling.runner.build import Build, build_runner
from model_profiling.runner.kernel_trace import TRACE_VARIABLE, build_shim
from model_profiling.runner.protocol import Features, decode_message


@dataclass(frozen=True)
class AndroidOptions:
    """Which device, and how to treat it."""

    device: str | None = None
    remote_device: str | None = None
    power_mode: str = "keep"
    cool_down: float | None = None
    # Whether the folder on the device goes when the run is over; else what was pushed is there for the next one.
    remove_pushed: bool = False


class Connected:
    """A device in use: chosen, examined, held for this run alone."""

    def __init__(self, options: AndroidOptions) -> None:
        adb = find_adb()
        serial = choose_device(adb, options.device, options.remote_device)
        self.device = Device(adb, serial, remote=options.remote_device is not None)
        self.device.require_exit_codes()
        self.facts: Facts = examine(self.device)
        self.power = PowerSettings(self.device, options.power_mode)
        self.heat = HeatLog(self.device, options.cool_down)
        self.transport = TransportLog()
        self.held = contextlib.ExitStack()
        self._store: Store | None = None
        self._refused: KitError | None = None
        self._holding = False

    @property
    def store(self) -> Store:
        """The folder on the device. Its first use takes the device for this run and sets its power mode."""
        if self._refused is not None:
            raise self._refused
        if self._store is None:
            try:
                self.hold()
                self._store = Store(self.device)
                self.power.apply()
            except KitError as error:
                # Nothing may be measured in another power mode than was asked for.
                self._refused = error
                raise
        return self._store

    def hold(self) -> None:
        """Take the device for this run; whoever does not hold it changes nothing on it."""
        if self._holding:
            return
        try:
            self.held.enter_context(files.locked(device_directory(self.device.serial), "run"))
        except SetupError:
            raise SetupError(
                f"another run is using the device {self.device.serial}", "Wait for it to end, or choose another device."
            ) from None
        self._holding = True

    def let_go(self) -> str:
        """Put the settings back, also those that an earlier run could not; returns what the user has to be told."""
        with self.held:
            try:
                self.hold()
            except SetupError:
                return ""  # they are the other run's
            return self.power.restore_whatever_happened()

    @property
    def pushed(self) -> Store | None:
        return self._store


class AndroidPlatform:
    """Keeps the Platform protocol on a device; adb is not asked anything before something needs the device."""

    name = "android"

    def __init__(self, options: AndroidOptions, emulated: bool = False, on_note: OnNote = no_notes) -> None:
        """`on_note` is told what the user has to put right on the device when the kit could not."""
        # A launch_prefix that is an emulator makes all times meaningless.
        self.timing: Timing = "emulated" if emulated else "measured"
        self.trace_note = ""
        self.identity = ""
        self._options = options
        self._note = on_note
        self._connected: Connected | None = None
        self._built: tuple[Build, Bundle] | None = None
        self._load = 0.0

    def probe(self) -> Probe:
        facts = self._device().facts
        return Probe(facts.arch, facts.features, "/proc/cpuinfo of the device", facts.environment, facts.boot_id)

    def runner(self, runner_path: str | None) -> RunnerRecord:
        if runner_path is None:
            build, _ = self._build()
            digest = files.sha256(build.path)
            return RunnerRecord("kit", str(build.path), digest, build.target.name, build.compiler, build.sdk.version)
        path = Path(runner_path).resolve()
        bundle = own_bundle(path)
        home = self._device().store.bundle(bundle)
        output = self._device().device.shell(*bundle.start(home), "--list_features", timeout_s=60)
        try:
            first = output.stdout.splitlines()[0] if output.stdout else ""
            kind: RunnerKind = "kit" if isinstance(decode_message(first), Features) else "foreign"
        except msgspec.DecodeError:
            kind = "foreign"
        return RunnerRecord(kind, str(path), files.sha256(path))

    def open(self, request: Request) -> AndroidSession:
        at, bundle = self._device(), self._bundle(request)
        model, inputs = at.store.file(request.model), [at.store.file(path) for path in request.inputs]
        home, fetch = at.store.session(), list[tuple[str, Path]]()
        etdump = f"{home}/etdump" if request.etdump is not None else None
        output = f"{home}/output" if request.output_base is not None else None
        if etdump is not None and request.etdump is not None:
            fetch.append((etdump, request.etdump))
        variables, preload = {}, None
        if request.kernel_trace is not None and bundle.loader and not self.trace_note:
            preload = at.store.file(build_shim(self._build()[0]))
            variables = {TRACE_VARIABLE: f"{home}/kernels"}
            fetch.append((f"{home}/kernels", request.kernel_trace))
        # A user's own runner has the operators that it has.
        needed = libraries_for(self._build()[0], request.model) if request.runner.target else ()
        libraries = [at.store.file(path) for path in needed]
        tokens = at.store.file(request.reading.tokens) if request.reading is not None else None
        flags = paced_flags(request, Files(model, inputs, etdump, output, tokens, libraries))
        command = [*self._start(request, bundle, variables, preload), *flags]
        place = Place(at.device, at.store, home, at.facts.boot_id, tuple(fetch), request.output_base)
        return AndroidSession(place, command, request.log, request.timeout_s, at.heat, at.transport, request.once)

    def launch(self, request: Request, executions: int) -> int:
        at, bundle = self._device(), self._bundle(request)
        at.heat.before_turn()
        model, home = at.store.file(request.model), at.store.session()
        flags = launch_flags(request, model, executions, f"{home}/etdump")
        command = start_command(home, [*self._start(request, bundle, {}, None), *flags])
        start = request.log.stat().st_size if request.log.exists() else 0
        try:
            code = self._run_to_the_end(at.device.command(*command), request)
            self._keep_logcat(request, home)
            if code != 0:
                raise ended_on_device(at.device, at.facts.boot_id, code, request.log, start)
            assert request.etdump is not None
            if at.device.sha256([f"{home}/etdump"]):
                at.device.pull(f"{home}/etdump", request.etdump)
        finally:
            with contextlib.suppress(KitError):
                end_process(at.device, home)
                at.store.remove(home)
        return 0

    def load(self) -> float:
        """The device's load average; the last one known where it cannot be asked any more."""
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
        at.transport.clear()
        return Conditions(at.power.record, heat, throttled, at.heat.cooled_down_s(), transport)

    def close(self) -> None:
        """Give the device its settings back, or say how the user can, and let go of it."""
        at, self._connected = self._connected, None
        if at is None:
            return
        if self._options.remove_pushed and at.pushed is not None:
            with contextlib.suppress(KitError):
                at.device.shell("rm", "-rf", ROOT)
        if trouble := at.let_go():
            self._note(trouble)

    def _device(self) -> Connected:
        if self._connected is None:
            self._connected = Connected(self._options)
            facts = self._connected.facts
            self.identity = f"{facts.unique} {self._options.power_mode}"
            self.trace_note = no_trace_note(facts.target)
        return self._connected

    def _build(self) -> tuple[Build, Bundle]:
        if self._built is None:
            build = build_runner(self._device().facts.target)
            self._built = (build, kit_bundle(build))
        return self._built

    def _bundle(self, request: Request) -> Bundle:
        # Only the kit's own runner has a target; a user's needs no compiler here.
        if request.runner.target:
            return self._build()[1]
        return own_bundle(Path(request.runner.path))

    def _start(self, request: Request, bundle: Bundle, variables: dict[str, str], preload: str | None) -> list[str]:
        """The words before the runner's flags: variables, cores, the user's prefix, loader."""
        at = self._device()
        settings = [f"{name}={value}" for name, value in variables.items()]
        cores = ["taskset", affinity_mask(request.affinity, at.facts.clusters)] if request.affinity else []
        start = bundle.start(at.store.bundle(bundle), preload)
        return [*(["env", *settings] if settings else []), *cores, *request.launch_prefix, *start]

    def _run_to_the_end(self, command: list[str], request: Request) -> int:
        with request.log.open("ab") as log:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=request.timeout_s,
                    check=False,
                    start_new_session=True,
                )
            except subprocess.TimeoutExpired:
                raise RunError(
                    f"the runner did not end within {request.timeout_s:g} s on the device", "Raise `timeout_s`."
                ) from None
            except OSError as error:
                raise SetupError(f"adb cannot be started: {os.strerror(error.errno or 0)}", "Install adb.") from None
        return done.returncode

    def _keep_logcat(self, request: Request, home: str) -> None:
        """In trace mode, what the process logged: XNNPACK built with trace logging names its kernels there."""
        if request.kernel_trace is None:
            return
        device = self._device().device
        pid = device.shell("cat", f"{home}/pid").stdout.strip()
        if pid.isdigit():
            said = device.shell("logcat", "-d", f"--pid={pid}", timeout_s=60).stdout
            with request.log.open("a", errors="replace") as log:
                log.write(said)
