"""The real `adb`, wrapped thinly: no shell interprets what it is given, every call ends, every failure has a name.

`adb shell` joins its arguments and hands them to the device's shell, so all words are quoted for that shell first;
scripts are constants of this package and take what varies as positional parameters.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.programs import StartError, TimedOutError, run_program
from model_profiling.platforms.platform_table import checked_machine
from model_profiling.platforms.remote.device import ANSWER_S, CommandOutput, Device, DeviceLostError

# A slow cable moves this much in a second; pushing and pulling may take as long as that and no longer.
_SLOWEST_BYTES_PER_S = 500_000
_INSTALL = "Install it: apt-get install adb, or Android's platform tools, and add it to PATH."
_STATE_HINTS = {
    **dict.fromkeys(
        ("unauthorized", "authorizing"), "Unlock the device and accept `Allow USB debugging?`, then run again."
    ),
    "offline": "Unplug it and plug it in again, or run `adb reconnect offline`.",
    "no permissions": "Install android-sdk-platform-tools-common (its udev rules), then plug it in again.",
    **dict.fromkeys(("recovery", "sideload", "bootloader"), "Let it boot into Android."),
    "connecting": "Wait a moment, then run again.",
}
# What adb itself says when the way to the device is gone, whatever was asked of it.
_GONE = re.compile(
    r"^(error|adb): (error: )?(closed|device '.*' not found|device offline|device unauthorized|device still|"
    r"no devices/emulators found|protocol fault|cannot connect to daemon|"
    r"failed to (copy|read|stat).*(read|device|EOF|closed|reset))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ListedDevice:
    """One line of `adb devices`."""

    serial: str
    state: str
    model: str = ""


def find_adb() -> str:
    if (path := shutil.which("adb")) is None:
        raise SetupError("adb is not in PATH", _INSTALL)
    return path


def list_devices(adb: str) -> list[ListedDevice]:
    """Return all devices that adb's server knows, whatever their state."""
    said = _call([adb, "devices", "-l"], ANSWER_S, "adb").stdout
    found = []
    for line in (line for line in said.splitlines()[1:] if line.strip() and not line.startswith("*")):
        serial, _, rest = line.replace("\t", " ").partition(" ")
        state = "no permissions" if rest.strip().startswith("no permissions") else rest.strip().split(" ")[0]
        model = re.search(r"(?<!\S)model:(\S+)", rest)
        found.append(ListedDevice(serial, state, model[1] if model else ""))
    return found


def connect(adb: str, address: str) -> None:
    """Connect to a device over the network; its serial is then the address."""
    said = _call([adb, "connect", address], ANSWER_S, "adb").stdout.strip()
    if not said.startswith(("connected to", "already connected to")):
        raise SetupError(
            f"adb cannot connect to {address}: {said or 'it gave no reason'}",
            "Turn on wireless debugging there (or `adb tcpip 5555` over the cable), and check host and port.",
        )


def choose_device(adb: str, device: str | None, remote: str | None) -> str:
    """Return the serial of the device meant; none, several, unauthorized and offline are errors with a hint."""
    given = remote or device or os.environ.get("ANDROID_SERIAL")
    wanted = checked_machine(given) if given else None
    if remote:
        connect(adb, remote)
    listed = list_devices(adb)
    if wanted:
        found = [entry for entry in listed if entry.serial == wanted]
        if not found:
            others = ", ".join(entry.serial for entry in listed) or "none"
            raise InputError(f"no device '{wanted}' is connected", f"adb sees: {others}.")
    else:
        # A device that cannot be used does not make the choice harder where another one can.
        found = [entry for entry in listed if entry.state == "device"] or listed
        if not found:
            raise SetupError(
                "no Android device is connected",
                "Plug one in with USB debugging on (Settings, Developer options), or give --remote-device HOST:PORT.",
            )
        if len(found) > 1:
            names = ", ".join(f"{entry.serial} ({entry.model or entry.state})" for entry in found)
            raise InputError(f"{len(found)} Android devices are connected: {names}", "Choose one with --device SERIAL.")
    chosen = found[0]
    if chosen.state != "device":
        hint = _STATE_HINTS.get(chosen.state, "Look at the device, and at `adb devices`.")
        raise SetupError(f"the device {chosen.serial} is {chosen.state}", hint)
    return chosen.serial


class AdbDevice(Device):
    """One device behind adb."""

    link = "try another cable"
    cut = "adb's server was restarted, or the cable moved"
    gone = _GONE
    writable = "The kit works in /data/local/tmp, which adb's user must be able to write."

    def __init__(self, adb: str, serial: str, remote: bool = False) -> None:
        self.serial = self.key = serial
        self.title = f"the device {serial}"
        self._adb = adb
        self._remote = remote

    def command(self, *words: str) -> list[str]:
        """Return the adb call whose words are run on the device, each taken as it is."""
        return [self._adb, "-s", self.serial, "shell", "-T", shlex.join(words)]

    def shell(self, *words: str, timeout_s: float = ANSWER_S) -> CommandOutput:
        done = self._run(["shell", "-T", "-n", shlex.join(words)], timeout_s)
        return CommandOutput(done.returncode, done.stdout, done.stderr)

    def push(self, sources: Mapping[str, Path], folder: str) -> None:
        for name, local in sources.items():
            allowed_s = ANSWER_S + local.stat().st_size / _SLOWEST_BYTES_PER_S
            done = self._run(["push", str(local.resolve()), f"{folder}/{name}"], allowed_s)
            if done.returncode != 0:
                raise self.refused(f"{local.name} could not be pushed to {self.title}", _last(done))

    def fetch(self, remote: str, size: int, local: Path) -> None:
        done = self._run(["pull", remote, str(local.absolute())], ANSWER_S + size / _SLOWEST_BYTES_PER_S)
        if done.returncode != 0:
            raise self.refused(f"{local.name} could not be pulled from {self.title}", _last(done))

    def require_exit_codes(self) -> None:
        """Refuse older devices, which do not tell how a command ended, nor keep its two outputs apart."""
        if "shell_v2" not in self._run(["features"], ANSWER_S).stdout.split():
            why = f"the Android of the device {self.serial} is too old for the kit"
            raise SetupError(why, "Use a device with Android 7 or newer.")

    def present(self) -> bool:
        with contextlib.suppress(KitError):
            said = _call([self._adb, "-s", self.serial, "get-state"], ANSWER_S, "adb")
            return said.returncode == 0 and said.stdout.strip() == "device"
        return False

    def answers(self, within_s: float) -> bool:
        return _attempt([self._adb, "-s", self.serial, "shell", "-n", "true"], within_s)

    def reconnect(self, wait_s: float) -> bool:
        self._lost = None
        if self._remote:
            _attempt([self._adb, "connect", self.serial], min(ANSWER_S, wait_s))
        if not _attempt([self._adb, "-s", self.serial, "wait-for-device"], wait_s):
            return False
        return self.answers(min(ANSWER_S, wait_s))

    def _run(self, arguments: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
        if self._lost is not None:
            raise self._lost
        try:
            done = _call([self._adb, "-s", self.serial, *arguments], timeout_s, self.title)
        except DeviceLostError as error:
            self._lost = error
            raise
        # A shell that was cut off ends with 1 and no word, like many a command: only adb knows which it was.
        if done.returncode != 0 and (_GONE.search(done.stderr) or not self.present()):
            raise self.lost(f"is not reachable any more ({_last(done)})")
        return done


def _call(command: list[str], timeout_s: float, who: str) -> "subprocess.CompletedProcess[str]":
    try:
        return run_program(command, timeout_s=timeout_s, doing="")
    except TimedOutError:
        raise DeviceLostError(
            f"{who} did not answer within {timeout_s:g} s",
            "Check whether it hangs, reconnect it, and run the same command: what was finished is kept.",
        ) from None
    except StartError as error:
        error.hint = f"{error.hint} {_INSTALL}"
        raise


def _attempt(command: list[str], timeout_s: float) -> bool:
    with contextlib.suppress(KitError):
        return _call(command, timeout_s, "adb").returncode == 0
    return False


def _last(done: "subprocess.CompletedProcess[str]") -> str:
    """Return adb's complaint, which push and pull bury among progress on standard output; else the last line."""
    lines = (done.stderr.strip() + "\n" + done.stdout.strip()).strip().splitlines()
    complaint = next((line for line in lines if line.startswith(("adb: error", "error:"))), None)
    return (complaint or lines[-1]).strip() if lines else f"exit code {done.returncode}"
