"""An Android device behind adb: the kit's Linux runner with its own C library, paced as on a desktop."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.directories import cache_directory
from model_profiling.base.errors import InputError, KitError, SetupError
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import StartError, TimedOutError, run_program
from model_profiling.platforms import cpus
from model_profiling.platforms.bundle import Bundle, kit_bundle
from model_profiling.platforms.cpus import CpuCluster, DeviceFacts
from model_profiling.platforms.heat import SEVERITIES, HeatLog, read_heat
from model_profiling.platforms.locks import Busy, Claim, Claims, TakenError, is_inherited, target_lock, wait_and_take
from model_profiling.platforms.platform_table import Choice, checked_machine
from model_profiling.platforms.remote.device import ANSWER_S, PATIENCE, CommandOutput, Device, DeviceLostError
from model_profiling.platforms.remote.remote_platform import RemoteMachine, RemotePlatform
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.runner.build import Build

# The real `adb`, wrapped thinly: no shell interprets what it is given, every call ends, every failure has a name.
#
# `adb shell` joins its arguments and hands them to the device's shell, so all words are quoted for that shell first;
# scripts are constants of this package and take what varies as positional parameters.
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
# The learning path's two modes; `stayon` is its `svc power stayon true`. `keep` changes nothing.
_ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
MODES: dict[str, dict[str, str]] = {
    "keep": {},
    "boost": {"low_power": "0", "stay_on_while_plugged_in": "15", **dict.fromkeys(_ANIMATIONS, "0")},
    "app": {"low_power": "0", "stay_on_while_plugged_in": "1", **dict.fromkeys(_ANIMATIONS, "1")},
}
_UNSET = "null"
# `svc power stayon true` sets all the ways to be plugged in that this Android knows: 7, or 15 since docks count.
_STAY_ON = {"7", "15"}
_WAIT_FOR_DEVICE_S = 10.0 * PATIENCE


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


def _list_devices(adb: str) -> list[ListedDevice]:
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
    listed = _list_devices(adb)
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
        # Older devices do not tell how a command ended, nor keep its two outputs apart.
        if "shell_v2" not in self._run(["features"], ANSWER_S).stdout.split():
            why = f"the Android of the device {serial} is too old for the kit"
            raise SetupError(why, "Use a device with Android 7 or newer.")

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


class SavedSettings(msgspec.Struct, frozen=True):
    """The settings a device had before the kit touched them; `null` is one that was not set."""

    serial: str
    earlier: dict[str, str]


class PowerSettings:
    """Holds the device in a power mode from `apply` to `restore`."""

    def __init__(self, device: AdbDevice, mode: str) -> None:
        self._device = device
        self._mode = mode
        self._journal = device_directory(device.serial) / "settings.json"
        self.record: dict[str, object] = {"mode": mode}

    def apply(self) -> None:
        """Put back what an earlier run left changed, then set this mode and make sure that it took."""
        self.restore()
        wanted = MODES[self._mode]
        if not wanted:
            # Nothing is changed; what there is goes into the manifest as far as it can be read.
            with contextlib.suppress(KitError):
                self.record |= {"found": {name: self._get(name) for name in MODES["boost"]}}
            return
        earlier = {name: self._get(name) for name in wanted}
        self.record = {"mode": self._mode, "earlier": earlier}
        files.write_json(self._journal, SavedSettings(self._device.serial, earlier))
        for name, value in wanted.items():
            self._set(name, value)
        if self._mode == "boost":
            self._device.shell("svc", "power", "stayon", "true")
        applied = {name: self._get(name) for name in wanted}
        self.record |= {"applied": applied}
        if wrong := [f"{n}={v} (it is {applied[n]})" for n, v in wanted.items() if not _same(n, v, applied[n])]:
            raise SetupError(
                f"the device {self._device.serial} did not take the setting {wrong[0]}",
                "Some makers want `USB debugging (Security settings)` on as well; or use --power-mode keep.",
            )

    def restore(self) -> None:
        """Put the earlier settings back and prove it; does nothing if none were changed."""
        if not self._journal.is_file():
            return
        earlier = self._earlier()
        for name, value in earlier.items():
            self._set(name, value)
        if wrong := [name for name, value in earlier.items() if not _same(name, value, self._get(name))]:
            said = f"the device {self._device.serial} did not take back its settings {', '.join(wrong)}"
            raise SetupError(said, self.by_hand())
        self._journal.unlink()
        self.record |= {"restored": True}

    def restore_whatever_happened(self) -> str:
        """Call `restore`, waiting a little for a device that went away; return what to tell the user if it stays so."""
        with contextlib.suppress(KitError):
            if self._journal.is_file() and self._device.reconnect(_WAIT_FOR_DEVICE_S):
                self.restore()
        if not self._journal.is_file():
            return ""
        return f"the power settings of {self._device.serial} are still changed. {self.by_hand()}"

    def by_hand(self) -> str:
        """Return the commands that restore the settings without the kit."""
        try:
            earlier = self._earlier()
        except KitError as error:
            return f"{error.message}. {error.hint}"
        adb = ["adb", "-s", self._device.serial, "shell", "settings"]
        calls = [shlex.join([*adb, *_change(name, value)]) for name, value in earlier.items()]
        return f"The next run restores them first; by hand: {'; '.join(calls)}"

    def _earlier(self) -> dict[str, str]:
        try:
            return files.read_json(self._journal, SavedSettings, "settings journal").earlier
        except InputError as error:
            raise SetupError(
                f"the settings that {self._device.serial} had are not known any more: {error.message}",
                f"Set battery saver, stay awake and animations as you like them, then remove {self._journal}.",
            ) from None

    def _get(self, name: str) -> str:
        said = self._device.must(f"report its setting {name}", "settings", "get", "global", name).strip()
        return said if re.fullmatch(r"[\w.+-]{1,64}", said) else _UNSET

    def _set(self, name: str, value: str) -> None:
        self._device.must(f"change its setting {name}", "settings", *_change(name, value))


def _change(name: str, value: str) -> list[str]:
    return ["delete", "global", name] if value == _UNSET else ["put", "global", name, value]


def _same(name: str, wanted: str, found: str) -> bool:
    if name == "stay_on_while_plugged_in" and wanted in _STAY_ON:
        return found in _STAY_ON
    try:
        return float(wanted) == float(found)  # 1 and 1.0 are the same animation scale
    except ValueError:
        return wanted == found


def device_directory(serial: str) -> Path:
    """Return this computer's folder for a device; its name holds nothing of the serial that a file name could not."""
    return cache_directory() / "android" / re.sub(r"[^A-Za-z0-9_-]", "_", serial)[:80]


ROOT = "/data/local/tmp/sme2_kit"
# The mode that changes no settings.
_KEEP = "keep"


class AndroidDevice(RemoteMachine):
    """A device behind adb in use."""

    device: AdbDevice

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        adb = find_adb()
        serial = choose_device(adb, choice.device, choice.remote_device)
        self.device = AdbDevice(adb, serial, remote=choice.remote_device is not None)
        self.facts = probe_device(self.device)
        self.heat = HeatLog(lambda: read_heat(self.device), self.device.title, choice.cool_down)
        self.mode = choice.power_mode or _KEEP
        self._power = PowerSettings(self.device, self.mode)
        self._claim: Claim | None = None

    def take(self) -> Store:
        wait_and_take(self._hold)
        store = Store(self.device, ROOT)
        self._power.apply()
        return store

    def bundle(self, build: Build) -> Bundle:
        return kit_bundle(build)

    def libraries(self, build: Build) -> dict[str, str]:
        return kit_bundle(build).hashes

    def power(self) -> dict[str, object]:
        return self._power.record

    def system_log(self, home: str) -> str:
        """Return the system log: XNNPACK built with trace logging names its kernels there."""
        pid = self.device.shell("cat", f"{home}/pid").stdout.strip()
        return self.device.shell("logcat", "-d", f"--pid={pid}", timeout_s=60).stdout if pid.isdigit() else ""

    def let_go(self, remove_pushed: bool) -> str:
        """Put the settings back, also those that an earlier run could not."""
        if remove_pushed and self.pushed is not None:
            with contextlib.suppress(KitError):
                self.device.shell("rm", "-rf", ROOT)
        try:
            self._hold()
            return self._power.restore_whatever_happened()
        except TakenError:
            return ""  # they are the other run's
        finally:
            if self._claim is not None:
                self._claim.close()

    def _hold(self) -> None:
        """Take the device for this run; whoever does not hold it changes nothing on it."""
        name = target_lock("android", self.device.key)
        if self._claim is None and not is_inherited(name):
            claim = Claims().try_target(name)
            if isinstance(claim, Busy):
                raise TakenError(self.device.title, claim.who)
            self._claim = claim


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> RemotePlatform:
    """Open the platform `android`; a device is chosen when it is first needed."""
    return RemotePlatform(choice, AndroidDevice, emulated, on_note)


# Android's name for an architecture: the kit's target.
TARGETS = {"arm64-v8a": "linux-aarch64", "x86_64": "linux-x86_64"}


def probe_device(device: AdbDevice) -> DeviceFacts:
    """Ask the device everything that could explain a number."""
    said = device.must("report its properties", "getprop")
    properties: dict[str, str] = dict(re.findall(r"^\[([^\]\n]+)\]: \[(.*)\]\r?$", said, re.MULTILINE))
    abi = properties.get("ro.product.cpu.abi", "")
    if abi not in TARGETS:
        raise SetupError(
            f"the device {device.serial} runs {abi or 'an unknown ABI'}; ExecuTorch's wheels are for arm64 and x86_64",
            "Use a device with arm64-v8a or x86_64, or give your own runner through runner_path on one.",
        )
    present = cpus.features(device.shell("cat", "/proc/cpuinfo").stdout, TARGETS[abi].removeprefix("linux-"))
    clusters = cpus.clusters_in(device.script(cpus.CLUSTERS).stdout)
    unique = " ".join([properties.get("ro.serialno") or device.serial, properties.get("ro.product.model", "")])
    environment = _environment(device, properties, abi, clusters)
    return DeviceFacts(TARGETS[abi], present, clusters, device.boot_id(), unique, environment)


def _environment(
    device: AdbDevice, properties: dict[str, str], abi: str, clusters: tuple[CpuCluster, ...]
) -> dict[str, object]:
    maker, model = properties.get("ro.product.manufacturer", ""), properties.get("ro.product.model", "")
    chip = " ".join(filter(None, (properties.get("ro.soc.manufacturer"), properties.get("ro.soc.model"))))
    heat = read_heat(device)
    facts: dict[str, object] = {
        "cpu": ", ".join(filter(None, (f"{maker} {model}".strip(), chip or properties.get("ro.board.platform")))),
        "device": {"serial": device.serial, "manufacturer": maker, "model": model, "soc": chip},
        "system": f"Android {properties.get('ro.build.version.release', '?')}",
        "api_level": properties.get("ro.build.version.sdk"),
        "build": properties.get("ro.build.fingerprint"),
        "abi": abi,
        "cores": sum(len(cluster.cpus) for cluster in clusters) or None,
        "clusters": cpus.named_clusters(clusters),
        "sme_units": cpus.sme_units(device.script(cpus.SME_REGISTERS).stdout),
        "memory_bytes": cpus.memory_bytes(device.shell("cat", "/proc/meminfo").stdout),
        "battery": _battery(device.shell("dumpsys", "battery").stdout),
        "temperature_celsius": heat.celsius,
        "thermal_status": SEVERITIES[heat.status],
    }
    return cpus.known(facts)


def _battery(text: str) -> dict[str, object]:
    """Charge in percent, temperature, and whether it is plugged in: charging heats, and not charging saves power."""
    level = re.search(r"^\s*level: ([0-9]{1,9})(?!\d)", text, re.MULTILINE)
    tenths = re.search(r"^\s*temperature: (-?[0-9]{1,9})(?!\d)", text, re.MULTILINE)
    if not level:
        return {}
    plugged = re.search(r"^\s*(AC|USB|Wireless|Dock) powered: true", text, re.MULTILINE)
    celsius = int(tenths[1]) / 10 if tenths else None
    return {"level_percent": int(level[1]), "celsius": celsius, "plugged": plugged[1] if plugged else "no"}
