"""The work of several operators together, how fast they do it, and how near to their roofs they are."""

from collections.abc import Mapping, Sequence

import msgspec

from model_profiling.analysis.roofs.roof_rates import SHORTEST_MS
from model_profiling.analysis.roofs.roofline import OperatorRoof, Roofline
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.profile import Part
from model_profiling.analysis.timing.work import Work

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
    held = [(row, roofs[row]) for row in rows if row in roofs]
    found = GroupWork() if len(works) < len(rows) else _summed(breakdown, rows, works)
    reached = of_roof(breakdown, rows, roofs)
    saved = sum(entry.headroom_ms for _, entry in held) if reached is not None else None
    return msgspec.structs.replace(found, of_roof=reached, headroom_ms=saved)


def of_roof(breakdown: Breakdown, rows: Sequence[int], roofs: Mapping[int, OperatorRoof]) -> float | None:
    """Return which part of their best rate operators reach together; None where too little of their time has a roof."""
    whole = sum(breakdown.instances[row].ms for row in rows)
    held = [row for row in rows if row in roofs]
    ms = sum(breakdown.instances[row].ms for row in held)
    return sum(roofs[row].roof_ms for row in held) / ms if ms and ms >= _MOST_OF_IT * whole else None


def compute_of_roof(breakdown: Breakdown, roofs: Mapping[int, OperatorRoof]) -> dict[Part, float]:
    """Return which part of their best rate CONV and GEMM reach, where it is known of them."""
    rows: dict[Part, list[int]] = {"CONV": [], "GEMM": []}
    for row, entry in enumerate(breakdown.instances):
        if entry.category in rows:
            rows[entry.category].append(row)
    reached = {category: of_roof(breakdown, members, roofs) for category, members in rows.items()}
    return {category: value for category, value in reached.items() if value is not None}


def roofs_by_row(roofline: Roofline | None) -> dict[int, OperatorRoof]:
    return {} if roofline is None else roofline.by_row


def _summed(breakdown: Breakdown, rows: Sequence[int], works: list[Work]) -> GroupWork:
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
    )
