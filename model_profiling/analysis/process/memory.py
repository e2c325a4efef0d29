"""What a process holds in memory, whether it grows with every inference, and two experiments against each other."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from model_profiling.analysis.process.startup import as_turns, unknown_processes
from model_profiling.analysis.timing.intervals import log_ratio_bounds
from model_profiling.analysis.timing.latency import compare
from model_profiling.store.run_directory import Mode, Process, RunnerKind, Samples, Timing, Turn

# Linux counts a process's pages in batches, which one reading may miss: growth below this is no growth. A single
# process has to show more, since nothing says how much others would differ.
_LEAST_GROWTH, _LEAST_GROWTH_OF_ONE = 256 << 10, 1 << 20

# A foreign runner can only be looked at while it runs, and it runs with a tracer.
SAMPLED: Literal["sampled every 50 ms, with a tracer"] = "sampled every 50 ms, with a tracer"
PeakSource = Literal["the system's account", "sampled every 50 ms, with a tracer"]


class Memory(msgspec.Struct, frozen=True):
    """Bytes in memory, medians over the processes of timed executions; None is not known.

    `packing_bytes` is what loading added that is no file's: packed weights, if there are any, and buffers. `load_bytes`
    is all that loading added. Growth is over inferences after the first; `leak` says that every inference adds to it.
    """

    processes: int
    peak_bytes: int
    peak_source: PeakSource = "the system's account"
    before_load_bytes: int | None = None
    after_load_bytes: int | None = None
    after_first_bytes: int | None = None
    after_last_bytes: int | None = None
    load_bytes: int | None = None
    packing_bytes: int | None = None
    first_inference_bytes: int | None = None
    # Inferences of a process, the first included.
    executions: int = 0
    growth_bytes: int | None = None
    growth_per_execution_bytes: float | None = None
    leak: bool = False


class MemoryComparison(msgspec.Struct, frozen=True):
    """Peak memory of `after` against `before`: `percent` is how much more, `low` and `high` bound it at 95 %.

    Both are None where too few processes bound nothing.
    """

    before: str
    after: str
    before_bytes: int
    after_bytes: int
    percent: float
    low_percent: float | None
    high_percent: float | None
    processes: int


def memory(
    samples: Samples | None, timing: Timing = "measured", mode: Mode = "timing", runner: RunnerKind = "kit"
) -> tuple[Memory | None, str]:
    """Return what an experiment holds in memory, or in words why nobody knows."""
    why = unknown_processes(samples, timing, mode)
    if why:
        return None, "an emulator's memory is not that of its guest" if timing != "measured" else why
    assert samples is not None
    found = with_known_peak(samples.processes)
    if not found:
        return None, "nobody could look at the runner's memory"
    peak = _median(found, lambda each: each.peak)
    assert peak is not None
    if runner == "foreign":
        return Memory(len(found), peak, SAMPLED), ""
    grown, slope, leak = growth(found, samples.timed)
    return Memory(
        processes=len(found),
        peak_bytes=peak,
        before_load_bytes=_median(found, lambda each: each.resident_before),
        after_load_bytes=_median(found, lambda each: each.resident_loaded),
        after_first_bytes=_median(found, lambda each: each.resident_first),
        after_last_bytes=_median(found, lambda each: each.resident_last),
        load_bytes=_difference(found, lambda each: (each.resident_before, each.resident_loaded)),
        packing_bytes=_difference(found, lambda each: (each.anonymous_before, each.anonymous_loaded)),
        first_inference_bytes=_difference(found, lambda each: (each.resident_loaded, each.resident_first)),
        executions=int(np.median([each.runs for each in found])),
        growth_bytes=grown,
        growth_per_execution_bytes=slope,
        leak=leak,
    ), ""


def with_known_peak(processes: Sequence[Process]) -> list[Process]:
    """Return the processes whose peak is known."""
    return [each for each in processes if each.peak > 0]


def _median(processes: Sequence[Process], value: Callable[[Process], int]) -> int | None:
    known = [value(each) for each in processes if value(each) > 0]
    return int(np.median(known)) if known else None


def _difference(processes: Sequence[Process], ends: Callable[[Process], tuple[int, int]]) -> int | None:
    known = [after - before for before, after in map(ends, processes) if before > 0 and after > 0]
    return int(np.median(known)) if known else None


def growth(processes: Sequence[Process], turns: Sequence[Turn]) -> tuple[int | None, float | None, bool]:
    """Return how much a process grew after its first inference, what each one adds, and whether that is a leak.

    What each inference adds is the middle of what was added from one reading to the next, the lower of two middles:
    memory that is taken once, at any time, is in one of these steps only.
    """
    by_launch: dict[int, list[Turn]] = {}
    for turn in turns:
        by_launch.setdefault(turn.launch, []).append(turn)
    grown, slopes, steady, two_steps = [], [], [], False
    for process in processes:
        points = _points(process, by_launch.get(process.launch, []))
        if len(points) < 2:
            continue
        steps = sorted(
            (there - here) / (later - earlier) for (earlier, here), (later, there) in itertools.pairwise(points)
        )
        slope = steps[(len(steps) - 1) // 2]
        slopes.append(slope)
        steady.append(slope * (points[-1][0] - points[0][0]))
        grown.append(points[-1][1] - points[0][1])
        two_steps = two_steps or len(steps) > 1
    if not slopes:
        return None, None, False
    leak = two_steps and _at_least(steady) > (_LEAST_GROWTH if len(steady) > 1 else _LEAST_GROWTH_OF_ONE)
    return int(np.median(grown)), float(np.median(slopes)), leak


def _points(process: Process, turns: Sequence[Turn]) -> list[tuple[float, int]]:
    """Return after how many inferences a process held how much: after the first, after warm-up, and after each turn."""
    if not turns or any(turn.resident <= 0 for turn in turns):
        return []
    points = [(1.0, process.resident_first)] if process.resident_first > 0 and process.warmups > 1 else []
    points += [(float(process.warmups), process.resident_warm)] if process.resident_warm > 0 else []
    timed = sum(len(turn.ns) for turn in turns)
    # Uncounted inferences come before each turn, equally many.
    uncounted = max(0, process.runs - process.warmups - timed) / len(turns)
    done = float(process.warmups)
    for turn in sorted(turns, key=lambda turn: turn.turn):
        done += uncounted + len(turn.ns)
        points.append((done, turn.resident))
    return points


def _at_least(values: Sequence[float]) -> float:
    """Return the lower bound of what processes have in common; of too few for one, the least of them."""
    bounds = log_ratio_bounds(np.array([values], dtype=np.float64), np.zeros((1, len(values))), paired=True)
    return min(values) if bounds is None else float(bounds[0][0])


def compare_memory(
    before: tuple[str, Sequence[Process]], after: tuple[str, Sequence[Process]], paired: bool
) -> MemoryComparison | None:
    """Hold the peak of `after` against that of `before`, process by process, as latency is compared."""
    old, new = with_known_peak(before[1]), with_known_peak(after[1])
    # A peak that was sampled is no match for one that the system kept.
    if not old or not new or _sampled(old) != _sampled(new):
        return None
    found = compare((before[0], as_turns(old, _peak)), (after[0], as_turns(new, _peak)), paired)
    # A ratio of bytes, turned round: how much more instead of how many times faster.
    low, high = (None, None) if found.high is None else (1 / found.high, 1 / found.low)
    return MemoryComparison(
        found.before,
        found.after,
        round(found.before_ms * 1e6),
        round(found.after_ms * 1e6),
        _percent(1 / found.ratio),
        None if low is None else _percent(low),
        None if high is None else _percent(high),
        min(len(old), len(new)),
    )


def _sampled(processes: Sequence[Process]) -> bool:
    """Return whether these are of a runner that says nothing of itself."""
    return all(process.resident_loaded == 0 for process in processes)


def _peak(process: Process) -> int:
    return process.peak


def _percent(ratio: float) -> float:
    return (ratio - 1) * 100
