"""How far each operator is from what its CPU reaches at its best, and what would be saved if all were there.

An operator that multiplies matrices is held back by one of two roofs: the best rate of the multipliers, or the bytes it
has to move at the best rate of the memory they are in. All others are held against probes of their own kind and of a
similar shape: what a GELU costs, or a 7x7 window, is no headroom. Where none was measured, an operator has no roof.
A roof is measured, not calculated: operators can come out above it.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.roofs.roof_rates import PRODUCT, SHORTEST_MS, ProbeResult, Rates, amount, roof_kind
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.work import Work

Bound = Literal["compute", "memory"]
# From here on an operator counts as being at its roof.
AT_THE_ROOF = 0.85
# What takes so many times as long as moving its bytes does is bound by what it computes.
_COMPUTES = 1.5


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
        if entry.where != "runtime" and entry.work is not None and entry.ms >= SHORTEST_MS:
            held = _held(row, entry, entry.work, rates)
            if held is not None:
                found.append(held)
    computed = {work.element for entry in found if (work := breakdown.instances[entry.row].work) and work.product}
    moved = rates.memory
    return Roofline(
        cpu=cpu,
        measured=measured,
        operators=found,
        covered=sum(breakdown.instances[entry.row].share for entry in found),
        headroom_ms=sum(entry.headroom_ms for entry in found),
        peaks={element: probed.rate for element, probed in rates.peaks.items() if element in computed},
        bandwidth=[max(probed.bandwidth for probed in moved), _farthest(moved)] if moved else [],
    )


def _farthest(moved: Sequence[ProbeResult]) -> float:
    """Return the best rate of what fits no cache: of the probes that move most."""
    most = max(probed.work.bytes for probed in moved)
    return max(probed.bandwidth for probed in moved if probed.work.bytes == most)


def _held(row: int, entry: InstanceTime, work: Work, rates: Rates) -> OperatorRoof | None:
    todo = amount(work)
    if not todo:
        return None
    memory = rates.memory_ms(work)
    bound: Bound
    if roof_kind(entry.operator, entry.kind, work, entry.where) == PRODUCT:
        if work.element not in rates.peaks:
            return None
        compute = todo / rates.peaks[work.element].rate / 1e6
        roof_ms, bound = (compute, "compute") if memory is None or compute >= memory else (memory, "memory")
    else:
        own = rates.best_ms(entry.operator, entry.kind, work, entry.where)
        if own is None:
            return None
        moves = entry.category == "Data Movement" or (memory is not None and own < _COMPUTES * memory)
        roof_ms, bound = own, "memory" if moves else "compute"
    rate, roof = todo / entry.ms / 1e6, todo / roof_ms / 1e6
    return OperatorRoof(
        row=row,
        rate=rate,
        roof=roof,
        unit="GB/s" if work.product is None else "GOP/s",
        bound=bound,
        of_roof=rate / roof,
        roof_ms=roof_ms,
        headroom_ms=max(0.0, entry.ms - roof_ms),
        intensity=work.intensity,
    )
