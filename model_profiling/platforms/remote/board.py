"""A machine behind ssh, such as an Arm board or server: pushed to, paced and fetched from as a phone is."""

import contextlib
import getpass
import hashlib
import os
import re
import socket
import subprocess
import time
from datetime import datetime, timezone

from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.on_progress import OnNote
from model_profiling.base.programs import ChildProcess, is_ready, start
from model_profiling.platforms import cpus
from model_profiling.platforms.bundle import Bundle, kit_bundle, small_bundle
from model_profiling.platforms.environment import boot_id
from model_profiling.platforms.heat import Heat, HeatLog
from model_profiling.platforms.locks import TakenError, process_exists, wait_and_take
from model_profiling.platforms.platform_table import Choice
from model_profiling.platforms.process_platform import features_in
from model_profiling.platforms.remote.device import ANSWER_S, PATIENCE, Device, read_script, script_words
from model_profiling.platforms.remote.remote_platform import RemoteMachine, RemotePlatform
from model_profiling.platforms.remote.remote_store import Store
from model_profiling.platforms.remote.ssh import SshDevice
from model_profiling.runner.build import Build
from model_profiling.store.run_directory import NOT_RANDOMISED

_WAIT_FOR_HOST_S = 5.0 * PATIENCE
# How long to wait before a host is asked again whether somebody still measures on it, which costs it a little time.
_LOOK_S = 5.0
# Where the kit may keep its files, best first. A folder that anybody could have made must be the user's own.
_FOLDERS = ("${XDG_CACHE_HOME:-$HOME/.cache}/sme2_kit", "/var/tmp/sme2_kit-$(id -u)", "/tmp/sme2_kit-$(id -u)")
# What the process that holds a machine is called there, and how it says whether it does.
_NAME = "sme2-kit-lock"
_HELD, _TAKEN = "held", "taken"
_HOLD, _HOLDERS = read_script("lock_file", "hold_machine"), read_script("lock_file", "lock_holders")


class Board(RemoteMachine):
    """A machine behind ssh in use."""

    device: SshDevice

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.device = SshDevice(choice.host or "", choice.ssh_config)
        self._folder = choice.remote_dir
        self._lock = TargetLock(self.device)
        try:
            self.facts = probe_board(self.device)
        except BaseException:
            self.device.close()
            raise
        self.heat = HeatLog(lambda: read_heat(self.device), self.device.title, choice.cool_down)

    def take(self) -> Store:
        wait_and_take(self._lock.take, _LOOK_S)
        root = self._usable_folder()
        self.device.script(read_script("end_stale"), root)
        return Store(self.device, root)

    def bundle(self, build: Build) -> Bundle:
        """Return the target's own C library if the runner starts with it, else the one that the kit brings."""
        own = small_bundle(build)
        why = self._tried(own)
        if not why:
            self.c_library = "the target's own"
            return own
        whole = kit_bundle(build)
        if why_not := self._tried(whole):
            raise SetupError(
                f"the runner does not start on {self.device.title}: {why_not} (with its own C library: {why})",
                "Look at the reason; --remote-dir names another folder for the kit's files.",
            )
        self.c_library = f"the kit's ({why})"
        return whole

    def libraries(self, build: Build) -> dict[str, str]:
        """Return the hashes of all that may be pushed, and which C library the machine has itself: which of the two is
        used is known only when the runner was started there."""
        hashes = small_bundle(build).hashes
        with contextlib.suppress(SetupError):  # there is none for it on this machine
            hashes = kit_bundle(build).hashes
        return {**hashes, "libc": str(self.facts.environment.get("own_c_library") or "")}

    def let_go(self, remove_pushed: bool) -> str:
        """Stop everything that still runs; if the connection was lost, one more is tried for that alone."""
        try:
            with contextlib.suppress(KitError):
                if (store := self.pushed) is not None and self.device.reconnect(_WAIT_FOR_HOST_S):
                    self.device.script(read_script("end_stale"), store.root)
                    if remove_pushed:
                        self.device.shell("rm", "-rf", store.root)
            self._lock.release()
        finally:
            self.device.close()
        return ""

    def _tried(self, bundle: Bundle) -> str:
        """Return why the kit's runner does not start from a bundle; empty if it does."""
        home = self.store.bundle(bundle)
        output = self.device.shell(*bundle.start(home), "--list_features", timeout_s=60 * max(1.0, PATIENCE))
        return "" if features_in(output.stdout) else output.reason

    def _usable_folder(self) -> str:
        """Return a folder in which files can be written and run."""
        names = [self._folder] if self._folder is not None else []
        if not names:
            expanded = self.device.script("\n".join(f'echo "{name}"' for name in _FOLDERS)).stdout.splitlines()
            names = [name for name in expanded if name.startswith("/")]
        refusals = []
        for name in names:
            output = self.device.script(read_script("try_folder"), name)
            if output.code == 0:
                return name
            refusals.append((name, output.reason))
        if len(refusals) == 1 or all("No space left" in why for _, why in refusals):
            raise self.device.refused(f"{self.device.title} has no use of the folder {refusals[0][0]}", refusals[0][1])
        tried = "; ".join(f"{name}: {why}" for name, why in refusals)
        raise SetupError(
            f"{self.device.title} has no folder where the runner could lie ({tried})",
            "Name one that you may write, on a file system mounted without noexec, with --remote-dir DIR.",
        )


def open_platform(choice: Choice, emulated: bool, on_note: OnNote) -> RemotePlatform:
    """Open the platform `ssh`; the connection is made when it is first needed."""
    return RemotePlatform(choice, Board, emulated, on_note)


_TARGETS = dict.fromkeys(("aarch64", "arm64"), "linux-aarch64") | dict.fromkeys(("x86_64", "amd64"), "linux-x86_64")
_BREAK = "--- sme2-kit: "
# One question for everything: a word a section, then what the machine says of it.
_SECTIONS = {
    "uname": "uname -s; uname -m; uname -r",
    "os": "cat /etc/os-release",
    "board": "tr -d '\\0' < /proc/device-tree/model || cat /sys/class/dmi/id/product_name",
    "machine_id": "cat /etc/machine-id",
    "name": "hostname || uname -n",
    "user": "id -un",
    "boot": "cat /proc/sys/kernel/random/boot_id",
    "cpuinfo": "cat /proc/cpuinfo",
    "clusters": cpus.CLUSTERS,
    "sme": cpus.SME_REGISTERS,
    "governors": "cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
    "khz": "cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",
    "memory": "cat /proc/meminfo",
    "load": "cat /proc/loadavg",
    "libc": "ldd --version 2>&1 | head -n 2",
    "randomize": "cat /proc/sys/kernel/randomize_va_space",
}
_SCRIPT = "\n".join(f"echo; echo '{_BREAK}{name}'; {{ {script}; }} 2> /dev/null" for name, script in _SECTIONS.items())
_SCRIPT = f"exec < /dev/null\n{_SCRIPT}\ntrue"
# Sensors that say something of the processor, the likeliest first; other zones are batteries, modems, power supplies.
_CPU_ZONES = (r"cpu|x86_pkg|coretemp|k10temp", r"soc|package|acpitz|thermal")


def probe_board(device: Device) -> cpus.DeviceFacts:
    """Ask the machine everything that could explain a number."""
    text = device.script(_SCRIPT).stdout
    found = dict.fromkeys(_SECTIONS, "")
    for part in f"\n{text}".split(f"\n{_BREAK}")[1:]:
        name, _, said = part.partition("\n")
        if name in found:
            found[name] = said.strip()
    system, machine, release = [*found["uname"].split("\n"), "", "", ""][:3]
    if system != "Linux" or machine not in _TARGETS:
        what = f"{system or 'an unknown system'} on {machine or 'an unknown processor'}"
        raise SetupError(
            f"{device.title} runs {what}; over ssh the kit runs on 64-bit Linux, Arm or x86",
            "On a Mac, run the kit there itself.",
        )
    target = _TARGETS[machine]
    clusters = cpus.clusters_in(found["clusters"])
    identity = found["machine_id"] or found["name"]
    # The number that tells machines apart is not for everybody who reads a report.
    unique = f"{found['name']} {hashlib.sha256(identity.encode()).hexdigest()[:12]}".strip()
    environment = _environment(device, found, clusters, release)
    features = cpus.features(found["cpuinfo"], target.removeprefix("linux-"))
    return cpus.DeviceFacts(target, features, clusters, found["boot"], unique, environment)


def _environment(
    device: Device, found: dict[str, str], clusters: tuple[cpus.CpuCluster, ...], release: str
) -> dict[str, object]:
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', found["os"], re.MULTILINE)
    names = cpus.cpu_names(found["cpuinfo"])
    heat, loads = read_heat(device), re.match(r"(\d{1,9}\.\d\d) (\d{1,9}\.\d\d) (\d{1,9}\.\d\d) ", found["load"])
    facts: dict[str, object] = {
        "cpu": ", ".join(names),
        "device": {"host": device.key, "name": found["name"], "board": found["board"]},
        "system": f"Linux {release}".strip(),
        "distribution": named[1] if named else "",
        "cores": len(re.findall(r"^processor\s*:", found["cpuinfo"], re.MULTILINE)) or None,
        "clusters": cpus.named_clusters(clusters),
        "sme_units": cpus.sme_units(found["sme"]),
        "governors": sorted(set(found["governors"].split())),
        "khz": [int(each) for each in re.findall(r"^[0-9]{1,12}$", found["khz"], re.MULTILINE)],
        "max_khz": sorted({str(cluster.max_khz) for cluster in clusters}),
        "memory_bytes": cpus.memory_bytes(found["memory"]),
        "load_1m_5m_15m": [float(each) for each in loads.groups()] if loads else [],
        "own_c_library": found["libc"].split("\n")[0][:120],
        "address_randomisation": {"0": NOT_RANDOMISED, "1": "on", "2": "on"}.get(found["randomize"], ""),
        "temperature_celsius": heat.celsius,
    }
    return cpus.known(facts)


def read_heat(device: Device) -> Heat:
    """Return the hottest of the sensors that are the processor's, and the clock limits."""
    zones: list[tuple[str, float]] = []
    limits: list[int] = []
    for line in device.script(read_script("board_heat")).stdout.splitlines():
        zone = re.fullmatch(r"zone\|([^|]*)\|(-?[0-9]{1,9})", line.strip())
        if zone:
            zones.append((zone[1], int(zone[2]) / 1000))
        elif re.fullmatch(r"[0-9]{1,12}", line.strip()):
            limits.append(int(line))
    for pattern in _CPU_ZONES:
        if values := [celsius for name, celsius in zones if re.search(pattern, name, re.IGNORECASE)]:
            return Heat(max(values), "CPU", 0, tuple(limits))
    return Heat(None, "", 0, tuple(limits))


class TargetLock:
    """Holds the machine from `take` to `release`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._command: list[str] = []
        self._process: ChildProcess | None = None

    def take(self) -> None:
        """Hold the machine, or say who does."""
        if self._try():
            return
        if self._end_our_own_dead() and self._try():
            return
        raise TakenError(self._device.title, self._by_whom())

    def release(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.end_all()
            process.wait()
        process.stdout.close()
        self._device.freed(self._command)

    def _try(self) -> bool:
        # The time stands first: nobody else's command line has this name and then a number.
        who = [str(int(time.time())), boot_id(), str(os.getpid()), f"{_user()}@{socket.gethostname()}"]
        self._command = self._device.command(*script_words(_HOLD, *who, name=_NAME))
        self._process = start(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        said = self._answer(self._process)
        if said == _HELD:
            return True
        self.release()
        if said != _TAKEN:
            raise self._device.lost("did not say whether somebody measures on it")
        return False

    def _answer(self, process: ChildProcess) -> str:
        assert process.stdout is not None
        said, deadline = b"", time.monotonic() + ANSWER_S
        while len(said) < 1 << 20 and is_ready(process.stdout, deadline - time.monotonic()):
            if not (chunk := os.read(process.stdout.fileno(), 1 << 16)):
                break
            said += chunk
            if found := {_HELD.encode(), _TAKEN.encode()}.intersection(said.splitlines()):
                return found.pop().decode()
        return ""

    def _holders(self) -> list[re.Match[str]]:
        lines = self._device.script(_HOLDERS).stdout.splitlines()
        form = re.compile(rf"(\d+) {_NAME} (\d{{1,12}}) (\S*) (\d{{1,12}}) ([^\s@]+@\S+)")
        return [found for line in lines if (found := form.match(line))]

    def _by_whom(self) -> str:
        with contextlib.suppress(KitError):
            for holder in self._holders():
                since = datetime.fromtimestamp(int(holder[2]), timezone.utc)
                who = re.sub(r"[^\w.@-]", "?", holder[5])[:80]
                return f"{who} (process {holder[4]} there), since {since:%Y-%m-%d %H:%M} UTC"
        return ""

    def _end_our_own_dead(self) -> bool:
        """End the holders of runs of this computer that are no more; whether there were any."""
        ended = False
        for holder in self._holders():
            if holder[3] == boot_id() and not process_exists(int(holder[4])):
                ended |= self._device.shell("kill", "-9", holder[1]).code == 0
        if ended:
            time.sleep(0.2)
        return ended


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # nobody we know
        name = str(os.getuid())
    return re.sub(r"[^\w.-]", "_", name)
