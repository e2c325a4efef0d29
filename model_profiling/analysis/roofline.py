"""How far each operator is from what its CPU reaches at its best, and what would be saved if all were there.

An operator that multiplies matrices is held back by one of two roofs: the best rate of the multipliers, or the bytes it
has to move at the best rate of the memory they are in. What only moves bytes has the second one alone, and where probes
of the same operator were measured, those set it. A roof is measured, not calculated: operators can come out above it.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.roofs import Probed, Rates, amount
from model_profiling.analysis.work import Work

Bound = Literal["compute", "memory"]
# XNNPACK reads its clock in whole microseconds: the rate of anything shorter is not known.
SHORTEST_MS = 0.002
# From here on an operator counts as being at its roof.
AT_THE_ROOF = 0.85


class OperatorRoof(msgspec.Struct, frozen=True):
    """An operator's rate and its roof, in G(FL)OP/s where it multiplies matrices, else in GB/s.

    `row` is its place in the breakdown; `of_roof` above 1 means that it is faster than any probe, because what it reads
    was in a nearer cache. `roof_ms` is what it would take at its roof, `headroom_ms` what that would save.
    """

    row: int
    rate: float
    roof: float
    unit: Literal["GOP/s", "GB/s"]
    bound: Bound
    of_roof: float
    roof_ms: float
    headroom_ms: float
    intensity: float | None = None


class Roofline(msgspec.Struct, frozen=True):
    """The operators that have a roof. `covered` is their share of the time, `headroom_ms` what all of them could save.

    `peak` is the best rate of the multipliers (G(FL)OP/s) in the type that takes most of the time, `bandwidth` the best
    rate of the nearest and of the farthest memory (GB/s).
    """

    cpu: str
    measured: str
    operators: list[OperatorRoof]
    covered: float
    headroom_ms: float
    peaks: dict[str, float]
    bandwidth: list[float]

    @property
    def by_row(self) -> dict[int, OperatorRoof]:
        return {entry.row: entry for entry in self.operators}


def roofline(breakdown: Breakdown, rates: Rates, cpu: str, measured: str) -> Roofline:
    """Hold every operator of a breakdown whose work is known against the roofs of its CPU."""
    found = []
    for row, entry in enumerate(breakdown.instances):
        if entry.where == "delegated" and entry.work is not None and entry.ms >= SHORTEST_MS:
            held = _held(row, entry, entry.work, rates)
            if held is not None:
                found.append(held)
    moved = _memory(rates)
    return Roofline(
        cpu=cpu,
        measured=measured,
        operators=found,
        covered=sum(breakdown.instances[entry.row].share for entry in found),
        headroom_ms=sum(entry.headroom_ms for entry in found),
        peaks={element: probed.rate for element, probed in rates.peaks.items()},
        bandwidth=[max(map(_bandwidth, moved)), _farthest(moved)] if moved else [],
    )


def _farthest(moved: Sequence[Probed]) -> float:
    """The best rate of what fits no cache: of the probes that move most."""
    most = max(probed.work.bytes for probed in moved)
    return max(_bandwidth(probed) for probed in moved if probed.work.bytes == most)


def _held(row: int, entry: InstanceTime, work: Work, rates: Rates) -> OperatorRoof | None:
    todo = amount(work)
    if not todo:
        return None
    memory = _memory_ms(entry, work, rates)
    if work.product is None:
        if memory is None:
            return None
        roof_ms, bound = memory, "memory"
    else:
        peaks = rates.depthwise_peaks if entry.kind == "depthwise" else rates.peaks
        if work.element not in peaks:
            return None
        compute = todo / peaks[work.element].rate / 1e6
        roof_ms, bound = (compute, "compute") if memory is None or compute >= memory else (memory, "memory")
    rate, roof = todo / entry.ms / 1e6, todo / roof_ms / 1e6
    return OperatorRoof(
        row=row,
        rate=rate,
        roof=roof,
        unit="GB/s" if work.product is None else "GOP/s",
        bound="compute" if bound == "compute" else "memory",
        of_roof=rate / roof,
        roof_ms=roof_ms,
        headroom_ms=max(0.0, entry.ms - roof_ms),
        intensity=work.intensity,
    )


def _memory_ms(entry: InstanceTime, work: Work, rates: Rates) -> float | None:
    """What moving its bytes takes at best: at the rate of probes of the same operator, if there are any."""
    own = [] if work.product is not None else [p for p in rates.probes(entry.kind, work.element) if _same(p, entry)]
    far = [probed for probed in own or _memory(rates) if probed.work.bytes >= work.bytes / 2]
    # What is larger than any probe comes from as far as the largest.
    known = far or sorted(own or _memory(rates), key=lambda probed: probed.work.bytes)[-1:]
    return work.bytes / max(map(_bandwidth, known)) / 1e6 if known else None


def _same(probed: Probed, entry: InstanceTime) -> bool:
    return probed.operator.partition(" (")[0] == entry.operator.partition(" (")[0]


def _memory(rates: Rates) -> list[Probed]:
    """The probes that show what memory gives: those that do next to nothing with what they read."""
    return [
        probed
        for probed in rates.measurement.probes
        if probed.kind in ("copy", "slice", "binary", "clamp") and probed.best_ms >= SHORTEST_MS and probed.work.bytes
    ]


def _bandwidth(probed: Probed) -> float:
    return probed.work.bytes / probed.best_ms / 1e6
