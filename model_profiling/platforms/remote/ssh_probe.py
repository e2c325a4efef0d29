"""What a machine behind ssh is, from /proc and /sys: CPUs, clusters, features, SME units, clocks, heat, C library."""

import hashlib
import re

from model_profiling.base.errors import SetupError
from model_profiling.platforms import cpus
from model_profiling.platforms.heat import Heat
from model_profiling.platforms.remote.device import Device
from model_profiling.store.run_directory import NOT_RANDOMISED

_TARGETS = {
    **dict.fromkeys(("aarch64", "arm64"), "linux-aarch64"),
    **dict.fromkeys(("x86_64", "amd64"), "linux-x86_64"),
}
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
_HEAT = """for z in /sys/class/thermal/thermal_zone*; do
  [ -r "$z/temp" ] && echo "zone|$(cat "$z/type" 2> /dev/null)|$(cat "$z/temp" 2> /dev/null)"
done
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq 2> /dev/null
true"""
# Sensors that say something of the processor, the likeliest first; other zones are batteries, modems, power supplies.
_CPU_ZONES = (r"cpu|x86_pkg|coretemp|k10temp", r"soc|package|acpitz|thermal")


def probe_board(device: Device) -> cpus.DeviceFacts:
    """Ask the machine everything that could explain a number."""
    found = _sections(device.script(_SCRIPT).stdout)
    system, machine, release = [*found["uname"].split("\n"), "", "", ""][:3]
    if system != "Linux" or machine not in _TARGETS:
        what = f"{system or 'an unknown system'} on {machine or 'an unknown processor'}"
        raise SetupError(
            f"{device.title} runs {what}; over ssh the kit runs on 64-bit Linux, Arm or x86",
            "On a Mac, run the kit there itself.",
        )
    target = _TARGETS[machine]
    arch = target.removeprefix("linux-")
    clusters = cpus.clusters_in(found["clusters"])
    identity = found["machine_id"] or found["name"]
    # The number that tells machines apart is not for everybody who reads a report.
    unique = f"{found['name']} {hashlib.sha256(identity.encode()).hexdigest()[:12]}".strip()
    return cpus.DeviceFacts(
        target,
        arch,
        cpus.features(found["cpuinfo"], arch),
        clusters,
        found["boot"],
        unique,
        _environment(device, found, clusters, release),
    )


def _environment(
    device: Device, found: dict[str, str], clusters: tuple[cpus.CpuCluster, ...], release: str
) -> dict[str, object]:
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', found["os"], re.MULTILINE)
    names = cpus.cpu_names(found["cpuinfo"])
    heat = read_heat(device)
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
        "load_1m_5m_15m": _loads(found["load"]),
        "own_c_library": found["libc"].split("\n")[0][:120],
        "address_randomisation": {"0": NOT_RANDOMISED, "1": "on", "2": "on"}.get(found["randomize"], ""),
        "temperature_celsius": heat.celsius,
    }
    return {key: value for key, value in facts.items() if value not in (None, "", {}, [])}


def read_heat(device: Device) -> Heat:
    """Return the hottest of the sensors that are the processor's, and the clock limits."""
    zones: list[tuple[str, float]] = []
    limits: list[int] = []
    for line in device.script(_HEAT).stdout.splitlines():
        zone = re.fullmatch(r"zone\|([^|]*)\|(-?[0-9]{1,9})", line.strip())
        if zone:
            zones.append((zone[1], int(zone[2]) / 1000))
        elif re.fullmatch(r"[0-9]{1,12}", line.strip()):
            limits.append(int(line))
    for pattern in _CPU_ZONES:
        values = [celsius for name, celsius in zones if re.search(pattern, name, re.IGNORECASE)]
        if values:
            return Heat(max(values), "CPU", 0, tuple(limits))
    return Heat(None, "", 0, tuple(limits))


def _loads(text: str) -> list[float]:
    found = re.match(r"([0-9.]{1,12}) ([0-9.]{1,12}) ([0-9.]{1,12}) ", text)
    try:
        return [float(each) for each in found.groups()] if found else []
    except ValueError:
        return []


def _sections(text: str) -> dict[str, str]:
    """Return what the machine said, by section; '' of what it did not."""
    found = dict.fromkeys(_SECTIONS, "")
    for part in f"\n{text}".split(f"\n{_BREAK}")[1:]:
        name, _, said = part.partition("\n")
        if name in found:
            found[name] = said.strip()
    return found
