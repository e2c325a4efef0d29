"""A paced runner on another machine: the same conversation as with a process here, through adb or ssh."""

import contextlib
import selectors
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import KitError, RunError
from model_profiling.platforms.heat import HeatLog
from model_profiling.platforms.remote.device import PATIENCE, Device
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.runner.protocol import Done
from model_profiling.runner.session import ProcessSession, runner_failure

# The process notes its number and becomes the runner, so that it can be ended if it hangs.
_START = 'echo $$ > "$1/pid"; shift; exec "$@"'
# Killed only while the number still belongs to a process of the kit: it runs what lies in the kit's folder.
_END = """pid=$(cat "$1/pid" 2> /dev/null)
case "$pid" in ''|*[!0-9]*) ;; *)
  case "$(tr '\\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null)" in *"$2"*) kill -9 "$pid" ;; esac ;;
esac
rm -rf "$1"
true"""
# Whoever is silent this long is asked whether they are still there; executions take longer only in rare models.
_SILENCE_S = 10.0 * PATIENCE
_ANSWER_S = 10.0 * PATIENCE


def start_command(home: str, words: list[str]) -> list[str]:
    """Return `words` as a process of the session in `home`."""
    return ["sh", "-c", _START, "sh", home, *words]


def end_session(device: Device, store: Store, home: str) -> None:
    """Make sure that the session's process is gone, and its folder."""
    device.script(_END, home, store.root)


@dataclass
class TransportLog:
    """How long turns took from here beyond what the runner measured there: the way there, and reading answers."""

    overheads_s: list[float] = field(default_factory=list)
    measured_s: float = 0.0

    def note(self, elapsed_s: float, times: list[int]) -> None:
        measured = sum(times) / 1e9
        self.measured_s += measured
        self.overheads_s.append(max(0.0, elapsed_s - measured))

    def summary(self) -> dict[str, float]:
        """Return how it was since the last call."""
        measured_s, overheads_s = self.measured_s, self.overheads_s
        self.measured_s, self.overheads_s = 0.0, []
        if not overheads_s:
            return {}
        return {
            "turns": len(overheads_s),
            "measured_on_device_s": round(measured_s, 6),
            "around_turns_s": round(sum(overheads_s), 6),
            "around_a_turn_median_ms": round(statistics.median(overheads_s) * 1e3, 3),
        }


@dataclass(frozen=True)
class SessionFiles:
    """Where a session lives: its device and folder, and which of its files belong where on this computer."""

    device: Device
    store: Store
    home: str
    boot_id: str
    fetch: tuple[tuple[str, Path], ...]
    # Outputs are as many as the model has: `<home>/output-0.bin` becomes `<base>-0.bin`.
    output_base: Path | None = None


class RemoteSession(ProcessSession):
    """Keeps the Session protocol over a device's shell; its files are pulled and proven when it finishes."""

    def __init__(
        self,
        place: SessionFiles,
        command: list[str],
        log: Path,
        timeout_s: float,
        heat: HeatLog,
        transport: TransportLog,
        once: bool = False,
    ) -> None:
        self._place = place
        self._heat = heat
        self._transport = transport
        self._ended = self._fetching = False
        self._begun = not place.device.begins
        self._command = place.device.command(*start_command(place.home, command))
        super().__init__(self._command, log, timeout_s, once=once)

    def run(self, count: int, settle: int = 0) -> list[int]:
        self._heat.before_turn()
        start = time.monotonic()
        times = super().run(count, settle)
        self._transport.note(time.monotonic() - start, times)
        return times

    def finish(self) -> Done:
        # The process is closed before its files are here; only then may the folder go.
        self._fetching = True
        try:
            done = super().finish()
            # Seen from here, the way to the device is part of it.
            self.life_ns = done.life_ns
            self._fetch(done)
        finally:
            self._fetching = False
        self._ended = True
        self._place.device.freed(self._command)
        self._place.store.done_with(self._place.home)
        return done

    def _fetch(self, done: Done) -> None:
        for remote, local in self._place.fetch:
            self._place.device.pull(remote, local)
        if self._place.output_base is not None:
            base = self._place.output_base
            for index in (i for i, output in enumerate(done.outputs) if output.dtype != "scalar"):
                local = base.with_name(f"{base.name}-{index}.bin")
                self._place.device.pull(f"{self._place.home}/output-{index}.bin", local)

    def close(self) -> None:
        """Remove the session from the device as well, as far as the device still answers."""
        super().close()
        if not self._fetching and not self._ended:
            self._ended = True
            self._place.device.freed(self._command)
            with contextlib.suppress(KitError):
                end_session(self._place.device, self._place.store, self._place.home)

    def _line(self) -> bytes:
        line = super()._line()
        while not self._begun:
            # What a login shell prints before it does what it was asked.
            self._begun = line.strip() == self._place.device.begins
            line = super()._line()
        return line

    def _await_word(self, selector: selectors.BaseSelector, deadline: float) -> None:
        """Wait for the runner; when it is silent for long, see whether the device itself still answers."""
        while True:
            wait = min(_SILENCE_S, deadline - time.monotonic())
            if selector.select(max(0.0, wait)):
                return
            if not self._place.device.answers(_ANSWER_S):
                raise self._place.device.lost(f"said nothing for {_SILENCE_S:g} s and does not answer")
            if time.monotonic() >= deadline:
                super()._await_word(selector, deadline)

    def _failure(self) -> KitError:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 1
        return ended_on_device(self._place.device, self._place.boot_id, code, self._log_path, self._log_start)


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
