"""Everything about the host that could explain a number, collected in one place and without special rights."""

import contextlib
import os
import platform
import re
import sys
from pathlib import Path

from model_profiling.base.programs import StartError, TimedOutError, run_program
from model_profiling.platforms.cpus import apple_units, cpu_names, known, linux_units
from model_profiling.store.run_directory import NOT_RANDOMISED

# From <sys/personality.h>; what `setarch -R` sets.
_ADDR_NO_RANDOMIZE = 0x0040000


def describe_host() -> dict[str, object]:
    """Return operating system, CPU, memory, clock policy and load of this machine; what cannot be known is left out."""
    facts: dict[str, object] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_1m_5m_15m": [round(value, 2) for value in os.getloadavg()],
    }
    facts |= _macos_facts() if sys.platform == "darwin" else _linux_facts()
    return known(facts)


def boot_id() -> str:
    """Return what differs after every restart of this machine."""
    return _sysctl("kern.boottime") if sys.platform == "darwin" else _read(Path("/proc/sys/kernel/random/boot_id"))


def _linux_facts() -> dict[str, object]:
    cpus, cpuinfo = Path("/sys/devices/system/cpu"), _read(Path("/proc/cpuinfo"))
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    # Unless every process gets its memory elsewhere, launches do not show how much that matters.
    policy, personality = _read(Path("/proc/sys/kernel/randomize_va_space")), _read(Path("/proc/self/personality"))
    switched_off = personality and int(personality, 16) & _ADDR_NO_RANDOMIZE
    return {
        "cpu": ", ".join(cpu_names(cpuinfo)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "governors": sorted({_read(path) for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}),
        "max_khz": sorted({_read(path) for path in cpus.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq")} - {""}),
        "turbo_disabled": _read(cpus / "intel_pstate" / "no_turbo"),
        "smt": _read(cpus / "smt" / "active"),
        "sme_units": linux_units(cpus),
        "sme_vector_bytes": _read(Path("/proc/sys/abi/sme_default_vector_length")),
        "address_randomisation": NOT_RANDOMISED if policy == "0" or switched_off else "on" if policy else "",
        "virtualised": (flags is not None and "hypervisor" in flags[1].split()) or None,
    }


def _macos_facts() -> dict[str, object]:
    memory = _sysctl("hw.memsize")
    return {
        "cpu": _sysctl("machdep.cpu.brand_string"),
        "memory_bytes": int(memory) if memory.isdigit() else None,
        "performance_cores": _sysctl("hw.perflevel0.physicalcpu"),
        "efficiency_cores": _sysctl("hw.perflevel1.physicalcpu"),
        "sme_units": apple_units(_sysctl),
        "sme_vector_bytes": _sysctl("hw.optional.arm.sme_max_svl_b"),
    }


def _sysctl(name: str) -> str:
    with contextlib.suppress(StartError, TimedOutError):
        return run_program(["sysctl", "-n", name], timeout_s=10, doing="").stdout.strip()
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
