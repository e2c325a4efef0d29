"""What a process holds in memory, whether it grows with every inference, and two experiments against each other."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from model_profiling.analysis.process.startup import as_turns, unknown_processes
from model_profiling.analysis.timing.intervals import log_ratio_bounds
from model_profiling.analysis.timing.latency import compare
from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key
from model_profiling.store.made_by import RunnerKind
from model_profiling.store.run_directory import Mode, Process, Samples, Timing, Turn

if TYPE_CHECKING:
    from model_profiling.formats.pte import Delegate, Program

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
    peak = int(np.median([each.peak for each in found]))
    if runner == "foreign":
        return Memory(len(found), peak, SAMPLED), ""
    grown, slope, leak = growth(found, samples.timed)
    bytes_: dict[str, Any] = {f"{name}_bytes": _added(found, "", at) for name, at in _HELD.items()}
    bytes_ |= {f"{name}_bytes": _added(found, *ends) for name, ends in _ADDED.items()}
    return Memory(
        processes=len(found),
        peak_bytes=peak,
        **bytes_,
        executions=int(np.median([each.runs for each in found])),
        growth_bytes=grown,
        growth_per_execution_bytes=slope,
        leak=leak,
    ), ""


def with_known_peak(processes: Sequence[Process]) -> list[Process]:
    """Return the processes whose peak is known."""
    return [each for each in processes if each.peak > 0]


# What a process held when it was looked at, and what it added from one look to another.
_HELD = {
    **{"before_load": "resident_before", "after_load": "resident_loaded"},
    **{"after_first": "resident_first", "after_last": "resident_last"},
}
_ADDED = {
    "load": ("resident_before", "resident_loaded"),
    "packing": ("anonymous_before", "anonymous_loaded"),
    "first_inference": ("resident_loaded", "resident_first"),
}


def _added(processes: Sequence[Process], start: str, end: str) -> int | None:
    """Return the median of what processes held at the end, beyond what they held at the start ('': all of it)."""
    ends = [(getattr(each, start) if start else 0, getattr(each, end)) for each in processes]
    known = [after - before for before, after in ends if after > 0 and (before > 0 or not start)]
    return int(np.median(known)) if known else None


def growth(processes: Sequence[Process], turns: Sequence[Turn]) -> tuple[int | None, float | None, bool]:
    """Return how much a process grew after its first inference, what each one adds, and whether that is a leak.

    What each inference adds is the middle of what was added from one reading to the next, the lower of two middles:
    memory that is taken once, at any time, is in one of these steps only.
    """
    by_launch = by_key((turn.launch, turn) for turn in turns)
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
    # The lower bound of what processes have in common; of too few for one, the least of them.
    bounds = log_ratio_bounds(np.array(steady, dtype=np.float64), np.zeros(len(steady)), paired=True)
    least = min(steady) if bounds is None else bounds[0]
    leak = two_steps and least > (_LEAST_GROWTH if len(steady) > 1 else _LEAST_GROWTH_OF_ONE)
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


def compare_memory(
    before: tuple[str, Sequence[Process]], after: tuple[str, Sequence[Process]], paired: bool
) -> MemoryComparison | None:
    """Hold the peak of `after` against that of `before`, process by process, as latency is compared."""
    old, new = with_known_peak(before[1]), with_known_peak(after[1])
    # A peak that was sampled, of a runner that says nothing of itself, is no match for one that the system kept.
    sampled = [all(process.resident_loaded == 0 for process in those) for those in (old, new)]
    if not old or not new or sampled[0] != sampled[1]:
        return None
    peaks = [as_turns(those, lambda process: process.peak) for those in (old, new)]
    found = compare((before[0], peaks[0]), (after[0], peaks[1]), paired)

    def percent(ratio: float) -> float:
        """Return how much more, instead of how many times faster."""
        return 100 * (1 / ratio - 1)

    low, high = (None, None) if found.high is None else (percent(found.high), percent(found.low))
    sizes = round(found.before_ms * 1e6), round(found.after_ms * 1e6)
    return MemoryComparison(found.before, found.after, *sizes, percent(found.ratio), low, high, min(len(old), len(new)))


# The method that the kit's runner executes.
_METHOD = "forward"


class Arena(msgspec.Struct, frozen=True):
    """Memory that was planned at export for values outside delegates, shared by values that do not live together."""

    memory_id: int
    bytes: int


class DelegateData(msgspec.Struct, frozen=True):
    """What the delegates of one backend bring along. `constant_bytes`, a part of it, are weights in XNNPACK's blobs;
    None where the blobs do not say."""

    backend: str
    delegates: int
    blob_bytes: int
    constant_bytes: int | None = None


class ProgramMemory(msgspec.Struct, frozen=True):
    """Bytes that follow from the file. `named_bytes` are weights that delegates look up by name, so as to share them;
    `constant_bytes` are tensors that no delegate has taken."""

    method: str
    arenas: list[Arena]
    constant_bytes: int
    named_bytes: int
    delegates: list[DelegateData]
    # What a language model keeps between executions, keys and values above all; a part of the arenas.
    cache_bytes: int = 0

    @property
    def planned_bytes(self) -> int:
        return sum(arena.bytes for arena in self.arenas)

    @property
    def all_constant_bytes(self) -> int:
        """All weights in the file; of a delegate that does not say, its blob, which is weights above all."""
        inside = [each.blob_bytes if each.constant_bytes is None else each.constant_bytes for each in self.delegates]
        return self.constant_bytes + self.named_bytes + sum(inside)


def program_memory(model: Path | None) -> ProgramMemory | None:
    """Return what the .pte says; None if it is gone or cannot be read."""
    if model is None:
        return None
    from model_profiling.formats import pte
    from model_profiling.formats.pte.sequence import sequence_program

    try:
        program = pte.read(model)
        method = program.method(_METHOD) or next(iter(program.methods), None)
        if method is None:
            return None
        backends: dict[str, set[Delegate]] = {}
        for delegate in method.delegates:
            backends.setdefault(delegate.backend, set()).add(delegate)
        delegates = [_data(program, backend, blobs) for backend, blobs in backends.items()]
    except InputError:
        return None
    arenas = [Arena(number, size) for number, size in enumerate(method.planned, 1)]
    sequence = sequence_program(program)
    kept = sequence.cache_bytes if sequence is not None else 0
    return ProgramMemory(method.name, arenas, program.constant_bytes, program.named_bytes, delegates, kept)


def _data(program: "Program", backend: str, blobs: "set[Delegate]") -> DelegateData:
    from model_profiling.formats.pte import xnnpack_graph

    sizes: list[int | None] = [None]
    if backend == xnnpack_graph.BACKEND:
        sizes = [xnnpack_graph.constant_bytes(program, blob) for blob in blobs]
    known = [size for size in sizes if size is not None]
    constants = sum(known) if len(known) == len(sizes) else None
    return DelegateData(backend, len(blobs), sum(blob.size for blob in blobs), constants)
