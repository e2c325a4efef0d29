"""Which CPUs share an SME unit: more threads than units take turns on them, while each core has its own for NEON.

Linux shows each CPU's register SMIDR_EL1 where it supports SME (since 5.19); Apple has one unit for each cluster.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

# From a CPU's folder in /sys/devices/system/cpu.
REGISTER = "regs/identification/smidr_el1"
# SMIDR_EL1 (Arm DDI 0601): implementer 31:24, revision 23:16, SMPS 15 (priorities; Linux shows 0), SH 14:13, and the
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
    """Return the units, from each CPU's SMIDR_EL1 as text; empty if one is no such register: a part says nothing."""
    shared: dict[object, list[int]] = {}
    for name, text in registers.items():
        cpu, value = re.fullmatch(r"cpu([0-9]{1,4})", name), re.fullmatch(r"0x([0-9a-f]{1,16})", text.strip().lower())
        if cpu is None or value is None:
            return {}
        shared.setdefault(_unit(int(value[1], 16), name), []).append(int(cpu[1]))
    members = sorted(sorted(cpus) for cpus in shared.values())
    if not members:
        return {}
    return {"shared_by": [len(cpus) for cpus in members], "cpus": list(map(_ranges, members)), "source": "smidr_el1"}


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
