"""What the system knows of this process: how long it has lived, the memory it holds, and what others took from it."""

import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

_ME = Path("/proc/self")


class MemoryNow(NamedTuple):
    """Bytes in memory now, and those of them that are no file's; 0 is not known."""

    resident: int = 0
    anonymous: int = 0


def born_ns() -> int:
    """Return when the system started this process, on the clock of perf_counter_ns; now where it does not say."""
    # Until here a process computes and hardly ever waits; Linux' ticks of some milliseconds bound it from both sides.
    computed, now = time.process_time_ns(), time.perf_counter_ns()
    try:
        fields = (_ME / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        most = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(fields[19]) * tick
    except (OSError, AttributeError, ValueError, IndexError):
        return now - computed
    return now - min(max(computed, most - tick, 0), max(most, 0))


def memory_now() -> MemoryNow:
    try:
        _, resident, of_files, *_ = map(int, (_ME / "statm").read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return MemoryNow()
    page = os.sysconf("SC_PAGESIZE")
    return MemoryNow(resident * page, (resident - of_files) * page)


def peak_memory() -> int:
    """Return the most bytes that were in memory at once."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", (_ME / "status").read_text(encoding="utf-8"), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0


def voluntary_switches() -> int:
    """Return how often this thread gave the processor away by itself."""
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nvcsw


def waited_ns() -> int:
    """Return how long all threads together have waited for a processor; -1 where the system does not say."""
    try:
        return sum(
            int((each / "schedstat").read_text(encoding="utf-8").split()[1]) for each in (_ME / "task").iterdir()
        )
    except (OSError, ValueError, IndexError):
        return -1


def drop_from_cache(path: Path) -> None:
    """Take a file out of the system's page cache, where it can be done."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
