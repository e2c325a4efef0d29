"""What the test device is as a phone: its root directory, properties, settings, sensors, and the commands for them."""

import os
import platform
import uuid
from dataclasses import dataclass
from pathlib import Path

# Eight cores in three clusters, as a phone with Arm's C1 cores may have them.
_CLUSTERS = {0: ("0 1 2 3", 2_200_000), 4: ("4 5 6", 3_200_000), 7: ("7", 4_100_000)}
_SME2_FLAGS = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 "
    "sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg dcpodp sve2 sveaes svepmull svebitperm "
    "svesha3 flagm2 frint svei8mm svebf16 i8mm bf16 dgh bti ecv afp mte wfxt sme smei16i64 smef64f64 smei8i32 "
    "smef16f32 smeb16f32 smef32f32 sme2 smei16i32 smebi32i32"
)
_X86_FLAGS = "fpu sse sse2 ssse3 fma sse4_1 sse4_2 f16c avx avx2"
_SETTINGS = {
    "low_power": "1",
    "stay_on_while_plugged_in": "0",
    "window_animation_scale": "1.0",
    "transition_animation_scale": "0.5",
}
_THERMAL = """IsStatusOverride: false
ThermalEventListeners:
	callbacks: 1
Thermal Status: {status}
Cached temperatures:
	Temperature{{mValue=20.0, mType=3, mName=skin, mStatus=0}}
HAL Ready: true
Current temperatures from HAL:
	Temperature{{mValue={cpu}, mType=0, mName=BIG, mStatus={status}}}
	Temperature{{mValue={skin}, mType=3, mName=skin, mStatus={status}}}
	Temperature{{mValue={skin}, mType=2, mName=battery, mStatus=0}}
Current cooling devices from HAL:
	CoolingDevice{{mValue=0, mType=2, mName=thermal-cpufreq-0}}
"""
_BATTERY = """Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  status: 2
  level: 87
  temperature: 312
"""
_COMMANDS = {
    "getprop": 'if [ $# -eq 0 ]; then cat "$DEVICE/properties"; fi',
    "settings": """file="$DEVICE/settings/$3"
[ -e "$DEVICE/settings/.refuse" ] && [ "$1" = put ] && { echo "java.lang.SecurityException: no" >&2; exit 255; }
case "$1" in
  get) cat "$file" 2> /dev/null || echo null ;;
  put) printf '%s\\n' "$4" > "$file" ;;
  delete) rm -f "$file"; echo "Deleted 1 rows" ;;
esac""",
    "svc": '[ "$*" = "power stayon true" ] && echo 15 > "$DEVICE/settings/stay_on_while_plugged_in"',
    "dumpsys": 'cat "$DEVICE/dumpsys/$1"',
    "logcat": 'cat "$DEVICE/logcat" 2> /dev/null || true',
    # The phone's cores are not this machine's: the mask is noted, not applied.
    "taskset": 'echo "$1" >> "$DEVICE/taskset"; shift; exec "$@"',
}


@dataclass
class Phone:
    """A root directory made to look like a phone's.

    `cpu` says what its /proc/cpuinfo shows: `sme2` an SME2 phone, `x86_64` the desktop emulator, `host` this machine.
    """

    root: Path
    cpu: str = "host"
    model: str = "Test Phone"
    serial: str = "TEST0001"

    def __post_init__(self) -> None:
        arm = self.cpu == "sme2" or (self.cpu == "host" and platform.machine() in ("aarch64", "arm64"))
        self._write("properties", self._properties("arm64-v8a" if arm else "x86_64"))
        cpuinfo = Path("/proc/cpuinfo").read_text()
        if self.cpu == "sme2":
            cpuinfo = "".join(f"processor\t: {core}\nFeatures\t: {_SME2_FLAGS}\n\n" for core in range(8))
        if self.cpu == "x86_64":
            cpuinfo = "".join(f"processor\t: {core}\nflags\t\t: {_X86_FLAGS}\n\n" for core in range(8))
        self._write("proc/cpuinfo", cpuinfo)
        self._write("proc/meminfo", "MemTotal:       11534336 kB\nMemFree:         4194304 kB\n")
        for first, (cpus, khz) in _CLUSTERS.items():
            policy = f"sys/devices/system/cpu/cpufreq/policy{first}"
            self._write(f"{policy}/related_cpus", f"{cpus}\n")
            self._write(f"{policy}/cpuinfo_max_freq", f"{khz}\n")
            self._write(f"{policy}/scaling_max_freq", f"{khz}\n")
        for name, value in _SETTINGS.items():
            self._write(f"settings/{name}", f"{value}\n")
        for name, body in _COMMANDS.items():
            self._write(f"system/bin/{name}", f"#!/bin/sh\n{body}\n").chmod(0o755)
        self._write("dumpsys/battery", _BATTERY)
        (self.root / "data/local/tmp").mkdir(parents=True, exist_ok=True)
        self.set_heat(36.5)
        self.new_boot_id()

    def banner(self) -> bytes:
        """What the device says of itself when adb connects; features not named here are not used by adb."""
        name = self.model.replace(" ", "_")
        said = f"ro.product.name={name};ro.product.model={self.model};ro.product.device={name}"
        return f"device::{said};features=shell_v2,cmd,stat_v2".encode()

    def settings(self) -> dict[str, str]:
        """All global settings as they are now."""
        return {path.name: path.read_text().strip() for path in (self.root / "settings").glob("[a-z]*")}

    def set_heat(self, skin: float, status: int = 0) -> None:
        self._write("dumpsys/thermalservice", _THERMAL.format(skin=skin, cpu=skin + 12, status=status))

    def new_boot_id(self) -> None:
        self._write("proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")

    def environment(self) -> dict[str, str]:
        """The variables of a command on the device: its own commands before this machine's."""
        path = f"{self.root}/system/bin:{os.environ.get('PATH', '/usr/bin:/bin')}"
        return {"PATH": path, "DEVICE": str(self.root), "HOME": "/", "LANG": "C.UTF-8"}

    def kit_files(self) -> list[str]:
        """Everything the kit has left in its folder, by relative path."""
        home = self.root / "data/local/tmp/sme2_kit"
        return sorted(str(path.relative_to(home)) for path in home.rglob("*"))

    def _properties(self, abi: str) -> str:
        values = {
            "ro.product.manufacturer": "Example",
            "ro.product.model": self.model,
            "ro.product.cpu.abi": abi,
            "ro.soc.manufacturer": "ExampleSoC",
            "ro.soc.model": "X-1",
            "ro.build.version.release": "16",
            "ro.build.version.sdk": "36",
            "ro.build.fingerprint": "example/test/test:16/TEST/1:user/release-keys",
            "ro.serialno": self.serial,
        }
        return "".join(f"[{name}]: [{value}]\n" for name, value in values.items())

    def _write(self, name: str, text: str) -> Path:
        """Whole or not at all: a command may read it at any moment."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.new")
        scratch.write_text(text)
        scratch.replace(path)
        return path
