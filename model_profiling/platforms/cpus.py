"""What another machine says of its processors, in /proc and /sys: features, clusters, SME units, memory."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base.errors import InputError
from model_profiling.runner import features as feature_tables

# From a CPU's folder in /sys/devices/system/cpu.
REGISTER = "regs/identification/smidr_el1"
# SMIDR_EL1 (Arm DDI 0601): NSMC 59:56, how many units an affinity has, less one, and 0 also where that is not told;
# implementer 31:24, revision 23:16, SMPS 15 (priorities; Linux shows 0), SH 14:13, and the
# affinity, of which 51:32 are the upper bits and 11:0 the lower ones. SH 0b10: this CPU has a unit of its own; 0b11: it
# shares one with every CPU of the same affinity; 0b00, as in the first edition: it shares one unless 11:0 are zero.
_SHARED, _OWN = 0b11, 0b10


def linux_units(cpus: Path = Path("/sys/devices/system/cpu")) -> dict[str, object]:
    """Return the SME units of this machine; empty where Linux does not say."""
    registers = {}
    for path in cpus.glob(f"cpu[0-9]*/{REGISTER}"):
        try:
            registers[path.parts[-4]] = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # a CPU that is offline has none
            continue
    return units(registers)


def units(registers: Mapping[str, str]) -> dict[str, object]:
    """Return the units, from each CPU's SMIDR_EL1 as text; empty if one is no such register: a part says nothing.

    CPUs that share several units are divided among them. `at_least` says that some may share more than are counted.
    """
    shared: dict[object, list[int]] = {}
    several: dict[object, int] = {}
    for name, text in registers.items():
        cpu, value = re.fullmatch(r"cpu([0-9]{1,4})", name), re.fullmatch(r"0x([0-9a-f]{1,16})", text.strip().lower())
        if cpu is None or value is None:
            return {}
        register = int(value[1], 16)
        unit = _unit(register, name)
        shared.setdefault(unit, []).append(int(cpu[1]))
        several[unit] = max(several.get(unit, 0), register >> 56 & 0xF)
    members = sorted((sorted(cpus), min(several[unit] + 1, len(cpus))) for unit, cpus in shared.items())
    if not members:
        return {}
    counts = [len(cpus[place::count]) for cpus, count in members for place in range(count)]
    ranges = [_ranges(cpus) for cpus, count in members for _ in range(count)]
    found: dict[str, object] = {"shared_by": counts, "cpus": ranges, "source": "smidr_el1"}
    return found | ({"at_least": True} if any(count == 1 < len(cpus) for cpus, count in members) else {})


def _unit(register: int, name: str) -> object:
    """Return what is the same for CPUs that share a unit."""
    sharing, low, high = register >> 13 & 0b11, register & 0xFFF, register >> 32 & 0xFFFFF
    if sharing == _OWN or (sharing != _SHARED and not low):
        return name
    return high, low


def _ranges(cpus: list[int]) -> str:
    """Return `0-3, 8` as Linux writes lists of CPUs."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def apple_units(sysctl: Callable[[str], str]) -> dict[str, object]:
    """Return the SME units of an Apple chip: one for each cluster, the cores that share a second-level cache."""
    if "1" not in (sysctl("hw.optional.arm.FEAT_SME"), sysctl("hw.optional.arm.FEAT_SME2")):
        return {}
    found: list[int] = []
    for level in ("perflevel0", "perflevel1"):
        cores, together = sysctl(f"hw.{level}.physicalcpu"), sysctl(f"hw.{level}.cpusperl2")
        if cores.isdigit() and together.isdigit() and int(together):
            whole, rest = divmod(int(cores), int(together))
            found += [int(together)] * whole + [rest] * bool(rest)
    return {"shared_by": found, "source": "one for each cluster of cores"} if found else {}


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
    """A device as it was when the run began; what is empty or unknown of its `environment` is left out."""

    target: str
    features: tuple[str, ...]
    clusters: tuple[CpuCluster, ...]
    boot_id: str
    unique: str
    environment: dict[str, object]


def known(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the facts that say something."""
    return {key: value for key, value in facts.items() if value not in (None, "", [], {})}


def features(cpuinfo: str, arch: str) -> tuple[str, ...]:
    """Return those of XNNPACK's features that every core has: a phone's cores may differ, each with its own line."""
    lines = re.findall(r"^(?:Features|flags)\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    flags = set.intersection(*(set(line.split()) for line in lines)) if lines else set()
    spelled = _SPELLINGS[arch]
    return tuple(each.name for each in feature_tables.TABLES[arch] if spelled.get(each.name, each.name) in flags)


def cpu_names(cpuinfo: str) -> list[str]:
    """Return the different CPUs of a machine, in the order in which Linux counts them."""
    named = re.findall(r"^model name\s*:\s*(\S.*?)\s*$", cpuinfo, re.MULTILINE)
    makers = re.findall(r"^CPU implementer\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", cpuinfo, re.MULTILINE)
    arm = {("0x41", part): f"Arm {name}" for part, name in _ARM_CORES.items()}
    found = (arm.get(cpu, f"Arm implementer {cpu[0]} part {cpu[1]}") for cpu in zip(makers, parts, strict=False))
    return list(dict.fromkeys(named or found))


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
