"""What another machine says of its processors, in /proc and /sys: features, clusters, SME units, memory."""

import re
from dataclasses import dataclass

from model_profiling.base.errors import InputError
from model_profiling.platforms.sme_units import REGISTER, units
from model_profiling.runner import features as feature_tables

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
# Arm's own part numbers (MIDR_EL1, implementer 0x41), which Linux shows in place of a name.
_ARM_CORES = {
    **{"0xd03": "Cortex-A53", "0xd05": "Cortex-A55", "0xd08": "Cortex-A72", "0xd0b": "Cortex-A76"},
    **{"0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd49": "Neoverse-N2", "0xd4f": "Neoverse-V2"},
    **{"0xd84": "Neoverse-V3", "0xd8e": "Neoverse-N3", "0xd41": "Cortex-A78", "0xd44": "Cortex-X1"},
    **{"0xd46": "Cortex-A510", "0xd47": "Cortex-A710", "0xd48": "Cortex-X2", "0xd4d": "Cortex-A715"},
    **{"0xd4e": "Cortex-X3", "0xd80": "Cortex-A520", "0xd81": "Cortex-A720", "0xd82": "Cortex-X4"},
    **{"0xd85": "Cortex-X925", "0xd87": "Cortex-A725", "0xd8a": "C1-Nano", "0xd8b": "C1-Pro"},
    **{"0xd8c": "C1-Ultra", "0xd90": "C1-Premium"},
}
CLUSTERS = """for p in /sys/devices/system/cpu/cpufreq/policy*; do
  echo "$(cat "$p/related_cpus" 2> /dev/null)|$(cat "$p/cpuinfo_max_freq" 2> /dev/null)"
done"""
SME_REGISTERS = f"""for p in /sys/devices/system/cpu/cpu[0-9]*/{REGISTER}; do
  [ -r "$p" ] && echo "$p|$(cat "$p" 2> /dev/null)"
done"""


@dataclass(frozen=True)
class CpuCluster:
    """Cores that share a clock."""

    cpus: tuple[int, ...]
    max_khz: int


@dataclass(frozen=True)
class DeviceFacts:
    """A device as it was when the run began."""

    target: str
    arch: str
    features: tuple[str, ...]
    clusters: tuple[CpuCluster, ...]
    boot_id: str
    unique: str
    environment: dict[str, object]


def features(cpuinfo: str, arch: str) -> tuple[str, ...]:
    """Return those of XNNPACK's features that every core has."""
    flags = _cpu_flags(cpuinfo)
    spelled = _SPELLINGS[arch]
    return tuple(each.name for each in feature_tables.TABLES[arch] if spelled.get(each.name, each.name) in flags)


def cpu_names(cpuinfo: str) -> list[str]:
    """Return the different CPUs of a machine, in the order in which Linux counts them."""
    named = re.findall(r"^model name\s*:\s*(\S.*?)\s*$", cpuinfo, re.MULTILINE)
    makers = re.findall(r"^CPU implementer\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    return list(dict.fromkeys(named or map(_arm_name, makers, parts)))


def _arm_name(implementer: str, part: str) -> str:
    if implementer == "0x41" and part in _ARM_CORES:
        return f"Arm {_ARM_CORES[part]}"
    return f"Arm implementer {implementer} part {part}"


def _cpu_flags(text: str) -> set[str]:
    """Return features that every core has; a phone's cores may differ, and Linux then shows each its own line."""
    lines = re.findall(r"^(?:Features|flags)\s*:\s*(.*)$", text, re.MULTILINE)
    return set.intersection(*(set(line.split()) for line in lines)) if lines else set()


def clusters_in(text: str) -> tuple[CpuCluster, ...]:
    """Return clusters from the slowest to the fastest."""
    found = []
    for line in text.splitlines():
        cpus, _, khz = line.partition("|")
        if re.fullmatch(r"[0-9]{1,12}", khz.strip()) and re.fullmatch(r"[0-9]{1,4}( +[0-9]{1,4})*", cpus.strip()):
            found.append(CpuCluster(tuple(int(cpu) for cpu in cpus.split()), int(khz)))
    return tuple(sorted(found, key=lambda cluster: (cluster.max_khz, cluster.cpus)))


def sme_units(text: str) -> dict[str, object]:
    lines = [line.partition("|") for line in text.splitlines()]
    return units({path.removesuffix(f"/{REGISTER}").rpartition("/")[2]: value for path, _, value in lines})


def cluster_names(clusters: tuple[CpuCluster, ...]) -> dict[CpuCluster, str]:
    """Return the names of clusters: `big` is the fastest, `little` the slowest of several, `mid` what lies between."""
    speeds = sorted({cluster.max_khz for cluster in clusters})
    ends = {speeds[0]: "little", speeds[-1]: "big"} if speeds else {}
    return {cluster: ends.get(cluster.max_khz, "mid") for cluster in clusters}


def affinity_mask(affinity: str, clusters: tuple[CpuCluster, ...]) -> str:
    """Return the hexadecimal mask of a cluster's name; a mask is taken as it is."""
    if affinity not in ("big", "mid", "little"):
        return f"{int(affinity, 16):x}"
    names = cluster_names(clusters)
    cpus = [cpu for cluster, name in names.items() if name == affinity for cpu in cluster.cpus]
    if not cpus:
        known = ", ".join(sorted({*names.values()})) or "no clusters that can be read"
        raise InputError(f"the device has no '{affinity}' cores", f"It has {known}; a hexadecimal mask works always.")
    return f"{sum(1 << cpu for cpu in cpus):x}"


def memory_bytes(text: str) -> int | None:
    found = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def named_clusters(clusters: tuple[CpuCluster, ...]) -> dict[str, object]:
    """Return clusters as an environment shows them."""
    names = cluster_names(clusters)
    return {f"{names[c]}{c.cpus[0]}": {"cpus": list(c.cpus), "max_khz": c.max_khz} for c in clusters}
