"""The real `adb`, wrapped thinly: no shell interprets what it is given, every call ends, every failure has a name.

`adb shell` joins its arguments and hands them to the device's shell, so all words are quoted for that shell first;
scripts are constants of this package and take what varies as positional parameters.
"""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError, KitError, RunError, SetupError


def _patience() -> float:
    """How much longer to wait for devices than usual (SME2_KIT_ADB_PATIENCE), for slow ones or to give up sooner."""
    try:
        return min(100.0, max(0.05, float(os.environ.get("SME2_KIT_ADB_PATIENCE", "1"))))
    except ValueError:
        return 1.0


PATIENCE = _patience()
# A device that says nothing for this long to a question that needs no work is not going to answer.
ANSWER_S = 20.0 * PATIENCE
# A slow cable moves this much in a second; pushing and pulling may take as long as that and no longer.
_SLOWEST_BYTES_PER_S = 500_000
_INSTALL = "Install it: apt-get install adb, or Android's platform tools, and add it to PATH."
_STATE_HINTS = {
    "unauthorized": "Unlock the device and accept `Allow USB debugging?`, then run again.",
    "authorizing": "Unlock the device and accept `Allow USB debugging?`, then run again.",
    "offline": "Unplug it and plug it in again, or run `adb reconnect offline`.",
    "no permissions": "Install android-sdk-platform-tools-common (its udev rules), then plug it in again.",
    "recovery": "Let it boot into Android.",
    "sideload": "Let it boot into Android.",
    "bootloader": "Let it boot into Android.",
    "connecting": "Wait a moment, then run again.",
}
# What adb itself says when the way to the device is gone, whatever was asked of it.
_GONE = re.compile(
    r"^(error|adb): (error: )?(closed|device '.*' not found|device offline|device unauthorized|device still|"
    r"no devices/emulators found|protocol fault|cannot connect to daemon|"
    r"failed to (copy|read|stat).*(read|device|EOF|closed|reset))",
    re.MULTILINE,
)


class DeviceLostError(RunError):
    """The way to the device is gone: cable, reboot, adb's server."""


@dataclass(frozen=True)
class Output:
    """What a command on the device said, and its exit code there."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Listed:
    """One line of `adb devices`."""

    serial: str
    state: str
    model: str = ""


def find_adb() -> str:
    path = shutil.which("adb")
    if path is None:
        raise SetupError("adb is not in PATH", _INSTALL)
    return path


def list_devices(adb: str) -> list[Listed]:
    """All devices that adb's server knows, whatever their state."""
    said = _call([adb, "devices", "-l"], ANSWER_S, "adb").stdout
    return [_listed(line) for line in said.splitlines()[1:] if line.strip() and not line.startswith("*")]


def _listed(line: str) -> Listed:
    serial, _, rest = line.partition(" ")
    if "\t" in serial:
        serial, _, rest = line.partition("\t")
    rest = rest.strip()
    state = "no permissions" if rest.startswith("no permissions") else rest.split(" ")[0]
    model = next((word.removeprefix("model:") for word in rest.split() if word.startswith("model:")), "")
    return Listed(serial, state, model)


def connect(adb: str, address: str) -> str:
    """Connect to a device over the network; returns its serial, which is the address."""
    said = _call([adb, "connect", address], ANSWER_S, "adb").stdout.strip()
    if not said.startswith(("connected to", "already connected to")):
        raise SetupError(
            f"adb cannot connect to {address}: {said or 'it gave no reason'}",
            "Turn on wireless debugging there (or `adb tcpip 5555` over the cable), and check host and port.",
        )
    return address


def choose_device(adb: str, device: str | None, remote: str | None) -> str:
    """The serial of the one device meant; none, several, unauthorized and offline are errors that say what to do."""
    wanted = connect(adb, remote) if remote else device or os.environ.get("ANDROID_SERIAL")
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


class Device:
    """One device behind adb. Once it is lost, every further call fails at once until `reconnect`."""

    def __init__(self, adb: str, serial: str, remote: bool = False) -> None:
        self.serial = serial
        self._adb = adb
        self._remote = remote
        self._lost: DeviceLostError | None = None

    def command(self, *words: str) -> list[str]:
        """The adb call whose words are run on the device, each taken as it is."""
        return [self._adb, "-s", self.serial, "shell", "-T", shlex.join(words)]

    def shell(self, *words: str, timeout_s: float = ANSWER_S) -> Output:
        """Run one command on the device to its end; its exit code is the caller's to judge."""
        done = self._run(["shell", "-T", "-n", shlex.join(words)], timeout_s)
        return Output(done.returncode, done.stdout, done.stderr)

    def script(self, text: str, *parameters: str, timeout_s: float = ANSWER_S) -> Output:
        """Run a script of this package on the device; what varies is in `$1`, `$2`, …"""
        return self.shell("sh", "-c", text, "sh", *parameters, timeout_s=timeout_s)

    def must(self, what: str, *words: str, timeout_s: float = ANSWER_S) -> str:
        """`shell` where the command has to succeed; returns what it said."""
        output = self.shell(*words, timeout_s=timeout_s)
        if output.code != 0:
            raise self.refusal(what, output)
        return output.stdout

    def refusal(self, what: str, output: Output) -> KitError:
        """Why the device would not do something."""
        said = (output.stderr or output.stdout).strip().splitlines()
        return _refusal(f"the device {self.serial} cannot {what}", said[-1] if said else f"exit code {output.code}")

    def push(self, local: Path, remote: str) -> None:
        """Copy a file to the device; the caller verifies what arrived with `sha256`."""
        size = local.stat().st_size
        done = self._run(["push", str(local.resolve()), remote], ANSWER_S + size / _SLOWEST_BYTES_PER_S)
        if done.returncode != 0:
            raise _refusal(f"{local.name} could not be pushed to the device {self.serial}", _last(done))

    def pull(self, remote: str, local: Path) -> None:
        """Copy a file from the device and make sure that it arrived whole."""
        digest = self.sha256([remote]).get(remote)
        if digest is None:
            raise RunError(f"the device {self.serial} has no {remote}", "Look into the runner's log.")
        said = self.must("report the size of a file", "stat", "-c", "%s", remote).strip()
        if not re.fullmatch(r"[0-9]{1,18}", said):
            raise RunError(f"the device {self.serial} did not report the size of {remote}: {said[:80]!r}", "Run again.")
        size = int(said)
        done = self._run(["pull", remote, str(local.absolute())], ANSWER_S + size / _SLOWEST_BYTES_PER_S)
        if done.returncode != 0:
            raise _refusal(f"{local.name} could not be pulled from the device {self.serial}", _last(done))
        if files.sha256(local) != digest:
            raise RunError(f"{local.name} was damaged on its way from the device", "Run again; try another cable.")

    def sha256(self, remotes: list[str]) -> dict[str, str]:
        """The hash of each of these files that is there."""
        found: dict[str, str] = {}
        script = 'for f in "$@"; do sha256sum < "$f" 2> /dev/null || echo -; done'
        for start in range(0, len(remotes), 50):
            part = remotes[start : start + 50]
            lines = self.script(script, *part, timeout_s=120).stdout.splitlines()
            found |= {path: line.split()[0] for path, line in zip(part, lines, strict=False) if len(line) >= 64}
        return found

    def boot_id(self) -> str:
        return self.shell("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def require_exit_codes(self) -> None:
        """Older devices do not tell how a command ended, nor keep its two outputs apart."""
        if "shell_v2" not in self._run(["features"], ANSWER_S).stdout.split():
            raise SetupError(
                f"the Android of the device {self.serial} is too old for the kit",
                "Use a device with Android 7 or newer.",
            )

    def present(self) -> bool:
        """Whether adb's server has a working connection to the device, as far as it knows."""
        try:
            said = _call([self._adb, "-s", self.serial, "get-state"], ANSWER_S, "adb")
        except KitError:
            return False
        return said.returncode == 0 and said.stdout.strip() == "device"

    def answers(self, within_s: float) -> bool:
        """Whether the device's shell still does something."""
        return _attempt([self._adb, "-s", self.serial, "shell", "-n", "true"], within_s)

    def lost(self, why: str) -> DeviceLostError:
        """Remember that the device is gone, and say so."""
        self._lost = DeviceLostError(
            f"the device {self.serial} {why}",
            "Connect it again and run the same command: what was finished is kept.",
        )
        return self._lost

    def reconnect(self, wait_s: float) -> bool:
        """Whether the device answers, or does again within `wait_s`."""
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
            done = _call([self._adb, "-s", self.serial, *arguments], timeout_s, f"the device {self.serial}")
        except DeviceLostError as error:
            self._lost = error
            raise
        # A shell that was cut off ends with 1 and no word, like many a command: only adb knows which it was.
        if done.returncode != 0 and (_GONE.search(done.stderr) or not self.present()):
            raise self.lost(f"is not reachable any more ({_last(done)})")
        return done


def _call(command: list[str], timeout_s: float, who: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            text=True,
            errors="replace",
            # Ctrl-C is for the pipeline, which still has settings to restore through adb.
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise DeviceLostError(
            f"{who} did not answer within {timeout_s:g} s",
            "Check whether it hangs, reconnect it, and run the same command: what was finished is kept.",
        ) from None
    except OSError as error:
        raise SetupError(f"adb cannot be started: {error.strerror}", _INSTALL) from None


def _attempt(command: list[str], timeout_s: float) -> bool:
    try:
        return _call(command, timeout_s, "adb").returncode == 0
    except KitError:
        return False


def from_adb(line: str) -> bool:
    """Whether adb itself says here that the way to the device is gone."""
    return _GONE.search(line) is not None


def _last(done: "subprocess.CompletedProcess[str]") -> str:
    """adb's own complaint, which push and pull bury among their progress on standard output; else the last word."""
    lines = (done.stderr.strip() + "\n" + done.stdout.strip()).strip().splitlines()
    complaint = next((line for line in lines if line.startswith(("adb: error", "error:"))), None)
    return (complaint or lines[-1]).strip() if lines else f"exit code {done.returncode}"


def _refusal(what: str, why: str) -> KitError:
    if "No space left" in why or "Disk quota" in why:
        return RunError(
            f"{what}: its disk is full ({why})", "Free some space there (17 MB and the model), then run again."
        )
    if "Permission denied" in why or "Read-only" in why:
        return SetupError(f"{what}: {why}", "The kit works in /data/local/tmp, which adb's user must be able to write.")
    return RunError(f"{what}: {why}", "Look at the device, then run again: what was finished is kept.")
