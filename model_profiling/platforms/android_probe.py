"""What a device is: model, chip, Android, cores and clusters, CPU features, memory, battery, heat."""

import re
from dataclasses import dataclass

from model_profiling.errors import InputError, SetupError
from model_profiling.platforms.adb import Device
from model_profiling.platforms.android_thermal import SEVERITIES, look
from model_profiling.platforms.sme_units import REGISTER, units
from model_profiling.runner import features

# Android's name for an architecture: the kit's target.
TARGETS = {"arm64-v8a": "linux-aarch64", "x86_64": "linux-x86_64"}
# How /proc/cpuinfo spells a feature where it does not spell it as we do.
_SPELLINGS = {
    "aarch64": {
        **{"rdm": "asimdrdm", "fp16arith": "asimdhp", "dot": "asimddp", "sme_i16i32": "smei16i32"},
        **{"sme_bi32i32": "smebi32i32", "sme_b16b16": "smeb16b16", "sme_f16f16": "smef16f16"},
    },
    "x86_64": {
        **{"avxvnni": "avx_vnni", "fma3": "fma", "avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg"},
        **{"avx512vpopcntdq": "avx512_vpopcntdq", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16"},
        **{"avx512fp16": "avx512_fp16"},
    },
}
_CLUSTERS = """for p in /sys/devices/system/cpu/cpufreq/policy*; do
  echo "$(cat "$p/related_cpus" 2> /dev/null)|$(cat "$p/cpuinfo_max_freq" 2> /dev/null)"
done"""
_SME = f"""for p in /sys/devices/system/cpu/cpu[0-9]*/{REGISTER}; do
  [ -r "$p" ] && echo "$p|$(cat "$p" 2> /dev/null)"
done"""


@dataclass(frozen=True)
class Cluster:
    """Cores that share a clock."""

    cpus: tuple[int, ...]
    max_khz: int


@dataclass(frozen=True)
class Facts:
    """A device as it was when the run began."""

    target: str
    arch: str
    features: tuple[str, ...]
    clusters: tuple[Cluster, ...]
    boot_id: str
    unique: str
    environment: dict[str, object]


def examine(device: Device) -> Facts:
    """Ask the device everything that could explain a number."""
    properties = _properties(device.must("report its properties", "getprop"))
    abi = properties.get("ro.product.cpu.abi", "")
    if abi not in TARGETS:
        raise SetupError(
            f"the device {device.serial} runs {abi or 'an unknown ABI'}; ExecuTorch's wheels are for arm64 and x86_64",
            "Use a device with arm64-v8a or x86_64, or give your own runner through runner_path on one.",
        )
    arch = TARGETS[abi].removeprefix("linux-")
    flags = _cpu_flags(device.shell("cat", "/proc/cpuinfo").stdout)
    present = tuple(
        feature.name for feature in features.TABLES[arch] if _SPELLINGS[arch].get(feature.name, feature.name) in flags
    )
    clusters = _clusters(device.script(_CLUSTERS).stdout)
    unique = " ".join([properties.get("ro.serialno") or device.serial, properties.get("ro.product.model", "")])
    environment = _environment(device, properties, abi, clusters)
    return Facts(TARGETS[abi], arch, present, clusters, device.boot_id(), unique, environment)


def _environment(
    device: Device, properties: dict[str, str], abi: str, clusters: tuple[Cluster, ...]
) -> dict[str, object]:
    maker, model = properties.get("ro.product.manufacturer", ""), properties.get("ro.product.model", "")
    chip = " ".join(filter(None, (properties.get("ro.soc.manufacturer"), properties.get("ro.soc.model"))))
    names = cluster_names(clusters)
    heat = look(device)
    facts: dict[str, object] = {
        "cpu": ", ".join(filter(None, (f"{maker} {model}".strip(), chip or properties.get("ro.board.platform")))),
        "device": {"serial": device.serial, "manufacturer": maker, "model": model, "soc": chip},
        "system": f"Android {properties.get('ro.build.version.release', '?')}",
        "api_level": properties.get("ro.build.version.sdk"),
        "build": properties.get("ro.build.fingerprint"),
        "abi": abi,
        "cores": sum(len(cluster.cpus) for cluster in clusters) or None,
        "clusters": {
            f"{'/'.join(names[c]) or 'cpu'}{c.cpus[0]}": {"cpus": list(c.cpus), "max_khz": c.max_khz} for c in clusters
        },
        "sme_units": _sme_units(device.script(_SME).stdout),
        "memory_bytes": _memory(device.shell("cat", "/proc/meminfo").stdout),
        "battery": _battery(device.shell("dumpsys", "battery").stdout),
        "temperature_celsius": heat.celsius,
        "thermal_status": SEVERITIES[heat.status],
    }
    return {key: value for key, value in facts.items() if value not in (None, "", {}, [])}


def _properties(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\[([^\]\n]+)\]: \[(.*)\]\r?$", text, re.MULTILINE))


def _cpu_flags(text: str) -> set[str]:
    """Features that every core has; a phone's cores may differ, and Linux then shows each its own line."""
    lines = re.findall(r"^(?:Features|flags)\s*:\s*(.*)$", text, re.MULTILINE)
    return set.intersection(*(set(line.split()) for line in lines)) if lines else set()


def _clusters(text: str) -> tuple[Cluster, ...]:
    """Clusters from the slowest to the fastest."""
    found = []
    for line in text.splitlines():
        cpus, _, khz = line.partition("|")
        if re.fullmatch(r"[0-9]{1,12}", khz.strip()) and re.fullmatch(r"[0-9]{1,4}( +[0-9]{1,4})*", cpus.strip()):
            found.append(Cluster(tuple(int(cpu) for cpu in cpus.split()), int(khz)))
    return tuple(sorted(found, key=lambda cluster: (cluster.max_khz, cluster.cpus)))


def _sme_units(text: str) -> dict[str, object]:
    lines = [line.partition("|") for line in text.splitlines()]
    return units({path.removesuffix(f"/{REGISTER}").rpartition("/")[2]: value for path, _, value in lines})


def cluster_names(clusters: tuple[Cluster, ...]) -> dict[Cluster, tuple[str, ...]]:
    """`big` is the fastest, `little` the slowest of several, `mid` whatever lies between."""
    speeds = sorted({cluster.max_khz for cluster in clusters})
    names: dict[Cluster, tuple[str, ...]] = {}
    for cluster in clusters:
        if cluster.max_khz == speeds[-1]:
            names[cluster] = ("big",)
        else:
            names[cluster] = ("little",) if cluster.max_khz == speeds[0] else ("mid",)
    return names


def affinity_mask(affinity: str, clusters: tuple[Cluster, ...]) -> str:
    """The hexadecimal mask of a cluster's name; a mask is taken as it is."""
    if affinity not in ("big", "mid", "little"):
        return f"{int(affinity, 16):x}"
    names = cluster_names(clusters)
    cpus = [cpu for cluster in clusters if affinity in names[cluster] for cpu in cluster.cpus]
    if not cpus:
        known = ", ".join(sorted({name for each in names.values() for name in each})) or "no clusters that can be read"
        raise InputError(f"the device has no '{affinity}' cores", f"It has {known}; a hexadecimal mask works always.")
    return f"{sum(1 << cpu for cpu in cpus):x}"


def _memory(text: str) -> int | None:
    found = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _battery(text: str) -> dict[str, object]:
    """Charge in percent, temperature, and whether it is plugged in: charging heats, and not charging saves power."""
    level = re.search(r"^\s*level: ([0-9]{1,9})(?!\d)", text, re.MULTILINE)
    tenths = re.search(r"^\s*temperature: (-?[0-9]{1,9})(?!\d)", text, re.MULTILINE)
    if not level:
        return {}
    plugged = re.findall(r"^\s*(AC|USB|Wireless|Dock) powered: true", text, re.MULTILINE)
    return {
        "level_percent": int(level[1]),
        "celsius": int(tenths[1]) / 10 if tenths else None,
        "plugged": plugged[0] if plugged else "no",
    }
