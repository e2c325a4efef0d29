"""How a program starts: from the start of its process to its first result, over launches that do nothing else."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.timing.intervals import log_ratio_bounds
from model_profiling.analysis.timing.latency import Comparison, compare
from model_profiling.store.made_by import RunnerKind
from model_profiling.store.run_directory import Mode, Process, Samples, Timing, Turn

# Whether the system had the .pte in memory before it was loaded: what a second start finds, or the first after a boot.
PageCache = Literal["warm", "cold", "partly warm", "not known"]
# The page cache keeps what it likes of a file: nearly all of it is all, hardly any is none.
_ALL_CACHED, _NONE_CACHED = 95, 5


class MedianTime(msgspec.Struct, frozen=True):
    """A median over launches and its 95 % interval; None where too few launches bound it."""

    median_ms: float
    low_ms: float | None = None
    high_ms: float | None = None


class Startup(msgspec.Struct, frozen=True):
    """Medians over launches. The parts of one launch add up: process (with its libraries), program, method (memory,
    delegates, packing weights), inputs and the first inference to `first_result`; with `ending` to the process's life.
    """

    launches: int
    page_cache: PageCache
    process: MedianTime
    program: MedianTime
    method: MedianTime
    inputs: MedianTime
    first_inference: MedianTime
    first_result: MedianTime
    # From the first result to the end of the process; None where nobody saw it end.
    ending: MedianTime | None = None


class Ratio(msgspec.Struct, frozen=True):
    """How many times faster, and bounds of it; None where that cannot be said."""

    ratio: float | None
    low: float | None
    high: float | None


class StartupComparison(msgspec.Struct, frozen=True):
    """Two experiments' time to the first result, as latency is compared; and how each part changed."""

    first_result: Comparison
    parts: dict[str, Ratio]


def startup(
    samples: Samples | None, timing: Timing = "measured", mode: Mode = "timing", runner: RunnerKind = "kit"
) -> tuple[Startup | None, str]:
    """Return how an experiment starts, or in words why nobody knows."""
    why = unknown_processes(samples, timing, mode)
    if why:
        return None, why
    assert samples is not None
    if runner == "foreign":
        return None, "a foreign runner does not say how it starts"
    starts = with_first_result(samples.starts)
    if not starts:
        return None, "no launches were made for it (startup_launches is 0)"
    known = dict.fromkeys(PART_NS, starts) | {"ending": [each for each in starts if each.life_ns > 0]}
    times = {
        part: median_time(np.array([PART_NS[part](each) / 1e6 for each in those], dtype=np.float64))
        for part, those in known.items()
        if those
    }
    return Startup(launches=len(starts), page_cache=_page_cache(starts), **times), ""


def unknown_processes(samples: Samples | None, timing: Timing, mode: Mode) -> str:
    """Return why nothing can be said of an experiment's processes; '' where something can."""
    if samples is None:
        return "the experiment did not finish"
    if timing != "measured":
        return "the CPU was emulated"
    return "its kernels were traced, which changes both" if mode == "trace" else ""


def with_first_result(starts: Sequence[Process]) -> list[Process]:
    """Return the processes that say when their first result was there."""
    return [each for each in starts if each.first_result_ns > 0 and each.load_ns > 0]


# Each part's nanoseconds. Loading is of the program, of its method, and of the inputs.
PART_NS: dict[str, Callable[[Process], int]] = {
    "process": lambda each: each.before_load_ns,
    "program": lambda each: each.program_ns,
    "method": lambda each: each.method_ns,
    "inputs": lambda each: max(0, each.load_ns - each.program_ns - each.method_ns),
    "first_inference": lambda each: each.first_ns,
    "first_result": lambda each: each.first_result_ns,
    "ending": lambda each: max(0, each.life_ns - each.first_result_ns),
}


def median_time(times: npt.NDArray[np.float64]) -> MedianTime:
    """Return the median of milliseconds, and the interval of Wilcoxon's signed-rank test: that of a ratio to one."""
    middle = float(np.median(times))
    if not (times > 0).all():
        return MedianTime(middle)
    bounds = log_ratio_bounds(np.log(times), np.zeros(len(times)), paired=True)
    if bounds is None:
        return MedianTime(middle)
    # The median and the middle of the pairwise averages estimate one thing; the interval holds both.
    return MedianTime(middle, min(middle, math.exp(bounds[0])), max(middle, math.exp(bounds[1])))


def _page_cache(starts: Sequence[Process]) -> PageCache:
    cached = [each.cached_percent for each in starts]
    if min(cached) < 0:
        return "not known"
    if min(cached) >= _ALL_CACHED:
        return "warm"
    return "cold" if max(cached) <= _NONE_CACHED else "partly warm"


def compare_startups(
    before: tuple[str, Sequence[Process]], after: tuple[str, Sequence[Process]], paired: bool, contended: bool = False
) -> StartupComparison | None:
    """Compare `after` with `before`; paired means that launch n of both came one after the other."""
    old, new = with_first_result(before[1]), with_first_result(after[1])
    if not old or not new:
        return None
    caches, parts = (_page_cache(old), _page_cache(new)), {}
    caveats = [f"the page cache was {caches[0]} before and {caches[1]} after"] if caches[0] != caches[1] else []
    for part, ns in PART_NS.items():
        if all(ns(each) > 0 for each in (*old, *new)):
            found = compare((before[0], as_turns(old, ns)), (after[0], as_turns(new, ns)), paired)
            parts[part] = Ratio(found.ratio, found.low if found.high is not None else None, found.high)
            if part == "first_result":
                whole = msgspec.structs.replace(found, contended=contended, caveats=caveats)
    return StartupComparison(whole, parts)


def as_turns(processes: Sequence[Process], value: Callable[[Process], int]) -> list[Turn]:
    """Return one number of each process as the one execution of a turn, compared as latency is."""
    return [Turn(each.launch, each.at_s, [value(each)], launch=each.launch) for each in processes]
