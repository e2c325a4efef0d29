"""One model in several runtimes, measured in turns: which is how fast, how each starts, and do their outputs agree?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import Agreement, Array, agreement_of
from model_profiling.analysis.compare.program_changes import OVERHEAD, ModuleChange, PartChange, ProgramChanges
from model_profiling.analysis.process.memory import with_known_peak
from model_profiling.analysis.process.startup import MedianTime, median_time, with_first_result
from model_profiling.analysis.timing.latency import Comparison, compare, launch_medians_of
from model_profiling.base import files
from model_profiling.base.dtypes import UNKNOWN
from model_profiling.base.errors import KitError
from model_profiling.base.records import sum_by_key
from model_profiling.base.units import shown_ms
from model_profiling.store.artifacts import DtypeCost
from model_profiling.store.run_directory import Process, Turn

# A line is named from so many times as long on, by the near end of its interval, and such a part of the whole time.
LEAST_RATIO, LEAST_SHARE = 1.2, 0.01


class SlowerLine(NamedTuple):
    """One line of PyTorch, in as many modules as `parts` has. `least` is the near end of the interval of the ratio."""

    parts: Sequence[PartChange]
    before_ms: float
    after_ms: float
    least: float

    @property
    def ratio(self) -> float:
        return self.before_ms / self.after_ms


def slower_lines(changes: ProgramChanges) -> list[SlowerLine]:
    """Return the lines at which `before` is slower, the costliest first; those of equal operators in several modules
    are one. What only `after` does beside a line counts as a part of it: `before` may have fused it."""
    alone = sum_by_key((_holder(part), part.after_ms) for part in changes.parts if not part.before_rows)
    groups: dict[object, list[tuple[PartChange, float]]] = {}
    for part in changes.parts:
        if part.matched not in ("line", "module") or not part.source_line or part.high_ms is None:
            continue
        most = part.before_ms + part.high_ms + alone.get(_holder(part), 0.0)
        if part.high_ms < 0 and part.after_ms > 0 and 0 < most * LEAST_RATIO <= part.before_ms:
            operators = next(((a.before, a.after) for a in part.aspects if a.what == "operators"), None)
            key = (part.source_line, operators or tuple(part.operators))
            groups.setdefault(key, []).append((part, most))
    found = []
    for members in groups.values():
        before, after = sum(part.before_ms for part, _ in members), sum(part.after_ms for part, _ in members)
        if before >= LEAST_SHARE * changes.before_ms:
            least = before / sum(most for _, most in members)
            found.append(SlowerLine([part for part, _ in members], before, after, least))
    return sorted(found, key=lambda line: line.after_ms - line.before_ms)


def _holder(part: PartChange) -> str:
    return part.module.rpartition(".")[0]


ChangeT = TypeVar("ChangeT", PartChange, ModuleChange, ProgramChanges)
# What a tracer may cost without a word.
_NOTICEABLE = 0.05
# What outputs are held against where the export kept them.
EAGER_AT_EXPORT = "eager PyTorch, as it was exported"


class RuntimeRow(msgspec.Struct, frozen=True):
    """One runtime: how fast it was, or why nobody knows (`reason`, and what to do about it in `hint`).

    `comparison` holds it against the baseline, whose own is None. Of outputs that differ it is None, too: what computes
    something else is shown and not ranked.
    """

    name: str
    runtime: str
    label: str
    # The versions of its packages, and what else decides how fast it is, in words.
    versions: dict[str, str] = {}
    settings: dict[str, str] = {}
    # The program that it executed.
    file: str = ""
    latency: MedianTime | None = None
    comparison: Comparison | None = None
    # From the start of the process to the first result, and the most bytes in memory; None is not known.
    startup: MedianTime | None = None
    peak_bytes: int | None = None
    outputs: Agreement | None = None
    ranked: bool = False
    reason: str = ""
    hint: str = ""
    notes: list[str] = []
    # By module and line, traced: what it does in other time than the baseline, which is before; None is not known.
    changes: ProgramChanges | None = None


class RuntimeComparison(msgspec.Struct, frozen=True, tag="runtime_comparison", tag_field="kind"):
    """What `compare --runtimes` prints as JSON: ranked rows first, the fastest first of them."""

    model: str
    dtype: str
    threads: int
    # The name of the row that the others are compared with; '' if none can be.
    baseline: str
    # What outputs are held against.
    reference: str
    rows: list[RuntimeRow]
    schema: int = 1
    caveats: list[str] = []
    # The .pte that ExecuTorch ran, '' where there is none; and what was asked for, by which a run knows its own again.
    pte_sha256: str = ""
    asked: dict[str, str] = {}


def read_runtimes(path: Path) -> RuntimeComparison:
    """Return what a run directory keeps of other runtimes."""
    return files.read_json(path, RuntimeComparison, "comparison of runtimes")


@dataclass(frozen=True)
class RuntimeSide:
    """What was measured of a runtime, or its failure."""

    row: RuntimeRow
    failure: KitError | None = None
    turns: list[Turn] = field(default_factory=list)
    starts: Sequence[Process] = ()
    processes: Sequence[Process] = ()
    outputs: list[Array] = field(default_factory=list)
    # Whether the first launch compiles what later ones find.
    compiles: bool = False
    # Whether the program is the user's: nobody knows what its dtype costs.
    own_file: bool = False


@dataclass(frozen=True)
class Reference:
    """What outputs are held against, and what the dtype explains of a difference."""

    name: str
    outputs: list[Array]
    dtype: str
    cost: DtypeCost | None = None


def compare_runtimes(
    sides: Sequence[RuntimeSide], reference: Reference, preferred: str
) -> tuple[list[RuntimeRow], str, str]:
    """Return a row for each side, the name of the baseline and of what outputs are held against.

    The baseline is `preferred`, or the first whose outputs are right. Without outputs of the reference, those of the
    first side that has some are it.
    """
    measured = [side for side in sides if side.failure is None and side.turns]
    if not reference.outputs:
        first = next((side for side in measured if side.outputs), None)
        reference = Reference(first.row.name if first else "", first.outputs if first else [], reference.dtype)
    rows = {side.row.name: _described(side, reference) for side in measured}
    right = [side for side in measured if rows[side.row.name].ranked]
    base = next((side for side in right if side.row.runtime == preferred), right[0] if right else None)
    for side in right:
        if base is not None and side is not base:
            found = compare((base.row.name, base.turns), (side.row.name, side.turns), paired=True)
            rows[side.row.name] = msgspec.structs.replace(rows[side.row.name], comparison=found)
    failed = []
    for side in sides:
        if side.row.name not in rows:
            why = side.failure or KitError("it made no execution", "")
            failed.append(msgspec.structs.replace(side.row, reason=why.message, hint=why.hint))
    ordered = sorted(rows.values(), key=lambda row: (not row.ranked, row.latency.median_ms if row.latency else 0.0))
    return [*ordered, *failed], base.row.name if base is not None else "", reference.name


def _described(side: RuntimeSide, reference: Reference) -> RuntimeRow:
    """Return the row of a side that was measured, not yet held against the baseline."""
    notes = list(side.row.notes)
    starts = with_first_result(side.starts or side.processes)
    first = next((each for each in with_first_result(side.processes) if each.launch == 0), None)
    if side.compiles and first is not None:
        if later := [each.first_result_ns / 1e6 for each in starts if each is not first]:
            cached = f"later ones, from its cache: {shown_ms(float(np.median(later)))}"
            notes.append(f"start-up is of the first start, which compiles; {cached}")
        starts = [first]
    peaks = [each.peak for each in with_known_peak(side.processes)]
    dtype, cost = (UNKNOWN, None) if side.own_file else (reference.dtype, reference.cost)
    is_reference = side.row.name == reference.name
    outputs = None
    if side.outputs and reference.outputs and not is_reference:
        outputs = agreement_of(side.row.name, side.outputs, reference.name, reference.outputs, dtype, cost)
        if outputs is None:
            notes.append(f"its outputs have other shapes than those of {reference.name}")
    elif not side.outputs:
        notes.append("its outputs could not be compared")
    return msgspec.structs.replace(
        side.row,
        latency=median_time(launch_medians_of(side.turns) / 1e6),
        startup=median_time(np.array([each.first_result_ns / 1e6 for each in starts])) if starts else None,
        peak_bytes=int(np.median(peaks)) if peaks else None,
        outputs=outputs,
        ranked=is_reference or (outputs is not None and outputs.verdict == "agrees"),
        notes=notes,
    )


def with_tracing_cost(
    changes: ProgramChanges, latencies: tuple[MedianTime | None, MedianTime | None]
) -> ProgramChanges:
    """Return differences of two runtimes with bounds that hold whatever their tracers cost: any part may take as much
    less untraced as the whole does. Of the overhead, which holds the tracers, nothing is known."""
    traced = (changes.before_ms, changes.after_ms)
    costs = [
        max(0.0, 1 - latency.median_ms / ms) if latency is not None and ms > 0 else 0.0
        for latency, ms in zip(latencies, traced, strict=True)
    ]

    def widened(change: ChangeT) -> ChangeT:
        if change.low_ms is None or change.high_ms is None:
            return change
        low, high = change.low_ms - costs[1] * change.after_ms, change.high_ms + costs[0] * change.before_ms
        return msgspec.structs.replace(change, low_ms=low, high_ms=high)

    unknown = {"low_ms": None, "high_ms": None}
    parts = [
        msgspec.structs.replace(part, **unknown) if part.matched == "runtime" else widened(part)
        for part in changes.parts
    ]
    modules = [
        msgspec.structs.replace(module, **unknown) if module.module == OVERHEAD else widened(module)
        for module in changes.modules
    ]
    longer = [
        f"{name} took {100 * cost / (1 - cost):.0f} % longer with its profiler, which intervals allow for"
        for name, cost in zip((changes.before, changes.after), costs, strict=True)
        if cost > _NOTICEABLE
    ]
    return msgspec.structs.replace(widened(changes), parts=parts, modules=modules, notes=[*changes.notes, *longer])
