"""How far each operator is from what its CPU reaches at its best, and what would be saved if all were there.

An operator that multiplies matrices is held back by one of two roofs: the best rate of the multipliers, or the bytes it
has to move at the best rate of the memory they are in. All others are compared with probes of their own kind and of a
similar shape: what a GELU costs, or a 7x7 window, is no headroom. Where none was measured, an operator has no roof.
A roof is measured, not calculated: operators can come out above it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.roofs.roof_rates import PRODUCT, SHORTEST_MS, Rates, amount, roof_kind
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.profile import Part
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
    """Compare every operator of a breakdown whose work is known with the roofs of its CPU."""
    timed = [(row, entry) for row, entry in enumerate(breakdown.instances) if entry.ms >= SHORTEST_MS]
    each = (_roof(row, x, x.work, rates) for row, x in timed if x.where != "runtime" and x.work is not None)
    found = [roof for roof in each if roof is not None]
    computed = {work.element for entry in found if (work := breakdown.instances[entry.row].work) and work.product}
    moved = rates.memory
    # What fits no cache: the probes that move most.
    most = max((probed.work.bytes for probed in moved), default=0)
    farthest = [probed for probed in moved if probed.work.bytes == most]
    return Roofline(
        cpu=cpu,
        measured=measured,
        operators=found,
        covered=sum(breakdown.instances[entry.row].share for entry in found),
        headroom_ms=sum(entry.headroom_ms for entry in found),
        peaks={element: probed.rate for element, probed in rates.peaks.items() if element in computed},
        bandwidth=[max(probed.bandwidth for probed in probes) for probes in (moved, farthest) if probes],
    )


def _roof(row: int, entry: InstanceTime, work: Work, rates: Rates) -> OperatorRoof | None:
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


# What is known of so much of their time is said of all of them.
_MOST_OF_IT = 0.9


class GroupWork(msgspec.Struct, frozen=True):
    """None is not known. `m`, `n`, `k` and `count` are those of the matrix product, where all operators have the same.

    Bytes and multiply-accumulates are sums, `intensity` is operations per byte. `rate` is in G(FL)OP/s or GB/s, as
    `rate_unit` says; `of_roof` is the part of the best rate of this CPU, and `headroom_ms` what reaching that saves.
    """

    m: int | None = None
    n: int | None = None
    k: int | None = None
    count: int | None = None
    multiply_accumulates: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    weight_bytes: int | None = None
    intensity: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    of_roof: float | None = None
    headroom_ms: float | None = None


def group_work(breakdown: Breakdown, rows: Sequence[int], roofs: Mapping[int, OperatorRoof]) -> GroupWork:
    """Return the work of some rows of a breakdown; `roofs` are those of the rows that have one."""
    works = [work for row in rows if (work := breakdown.instances[row].work) is not None]
    reached = of_roof(breakdown, rows, roofs)
    saved = sum(roofs[row].headroom_ms for row in rows if row in roofs) if reached is not None else None
    if len(works) < len(rows):
        return GroupWork(of_roof=reached, headroom_ms=saved)
    products = {work.product for work in works}
    product = products.pop() if len(products) == 1 else None
    macs = sum(work.multiply_accumulates for work in works)
    moved = sum(work.bytes for work in works)
    ms = sum(breakdown.instances[row].ms for row in rows)
    todo = 2 * macs or moved
    return GroupWork(
        **(msgspec.structs.asdict(product) if product else {}),
        multiply_accumulates=macs,
        bytes_read=sum(work.read_bytes for work in works),
        bytes_written=sum(work.written_bytes for work in works),
        weight_bytes=sum(work.weight_bytes for work in works),
        intensity=2 * macs / moved if macs and moved else None,
        rate=todo / ms / 1e6 if todo and ms >= SHORTEST_MS * len(rows) else None,
        rate_unit="" if not todo else "GOP/s" if macs else "GB/s",
        of_roof=reached,
        headroom_ms=saved,
    )


def of_roof(breakdown: Breakdown, rows: Sequence[int], roofs: Mapping[int, OperatorRoof]) -> float | None:
    """Return which part of their best rate operators reach together; None where too little of their time has a roof."""
    whole = sum(breakdown.instances[row].ms for row in rows)
    held = [row for row in rows if row in roofs]
    ms = sum(breakdown.instances[row].ms for row in held)
    return sum(roofs[row].roof_ms for row in held) / ms if ms and ms >= _MOST_OF_IT * whole else None


def compute_of_roof(breakdown: Breakdown, roofs: Mapping[int, OperatorRoof]) -> dict[Part, float]:
    """Return which part of their best rate CONV and GEMM reach, where it is known of them."""
    compute: tuple[Part, ...] = ("CONV", "GEMM")
    rows = {kind: [row for row, entry in enumerate(breakdown.instances) if entry.category == kind] for kind in compute}
    reached = {category: of_roof(breakdown, members, roofs) for category, members in rows.items()}
    return {category: value for category, value in reached.items() if value is not None}


def roofs_by_row(roofline: Roofline | None) -> dict[int, OperatorRoof]:
    return {} if roofline is None else roofline.by_row
