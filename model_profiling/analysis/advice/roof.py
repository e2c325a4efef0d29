"""Findings from the roofline: operators that do their work slower than this CPU was seen to do such work."""

from collections.abc import Callable, Iterator

from model_profiling.analysis.advice.finding import Evidence, Finding, FindingKind
from model_profiling.analysis.roofs.group_work import of_roof
from model_profiling.analysis.roofs.roof_rates import PRODUCT, roof_kind
from model_profiling.analysis.roofs.roofline import OperatorRoof
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.profile import Part
from model_profiling.analysis.timing.work import Product
from model_profiling.base.units import counted

# Kernels compute tiles: 4 to 8 rows by 8 to 16 columns with NEON and up to 32 x 32 with SME2. Below these sizes a good
# part of a tile is empty, or is loaded and stored for few steps along k.
_FEW_COLUMNS, _FEW_ROWS, _SHORT = 16, 8, 32

# An operator differs from the probes of its kind in its shape and in where its data come from. That makes it up to
# twice as slow; below that something is wrong with it. What memory limits, and is no product, may be slower still.
_FAR_BELOW = 0.5

Reason = Callable[[Product, OperatorRoof], bool]
_REASONS: tuple[tuple[str, Reason], ...] = (
    ("memory bound", lambda product, roof: roof.bound == "memory"),
    ("few output channels (n)", lambda product, roof: product.n < _FEW_COLUMNS),
    ("few rows (m)", lambda product, roof: product.m < _FEW_ROWS),
    ("a short sum (k)", lambda product, roof: product.k < _SHORT),
)
_STEPS = {
    "CONV": "Merge small layers: wide ones use more of the CPU.",
    "GEMM": "Merge small products: large ones use more of the CPU.",
}
_OTHERWISE = (
    "The same operator was measured faster: look at what runs beside it, and whether its input is still in a cache."
)


def below_roof(e: Evidence) -> Iterator[Finding]:
    """Yield findings about operators below their roof, category by category, with what their shapes have in common."""
    roofs = e.roofs
    rows: dict[tuple[Part, bool], list[int]] = {}
    for row in e.free(lambda entry: True):
        entry = e.breakdown.instances[row]
        products = _product(entry) is not None
        if row in roofs and _below(roofs[row], products):
            rows.setdefault((entry.category, products), []).append(row)
    for (category, products), members in rows.items():
        reached = of_roof(e.breakdown, members, roofs) or 0.0
        which = counted(len(members), f"{category} operator")
        verb = "runs" if len(members) == 1 else "run"
        title = f"{which} {verb} at {reached:.0%} of what this CPU reaches: {e.of_time(members)}"
        step = _STEPS[category] if products else _OTHERWISE
        yield e.finding(FindingKind.BELOW_ROOF, title, members, step, _reasons(e, members, roofs))


def _below(roof: OperatorRoof, product: bool) -> bool:
    return roof.of_roof < _FAR_BELOW and (product or roof.bound == "compute")


def _reasons(e: Evidence, rows: list[int], roofs: dict[int, OperatorRoof]) -> list[str]:
    """Return what the shapes of these operators show, and of how many of them it is true."""
    found = []
    products = [(_product(e.breakdown.instances[row]), roofs[row]) for row in rows]
    for words, holds in _REASONS:
        alike = sum(product is not None and holds(product, roof) for product, roof in products)
        if alike:
            which = "all of them" if alike == len(rows) > 1 else f"{alike} of {len(rows)}"
            found.append(f"{which}: {words}")
    return found


def _product(entry: InstanceTime) -> Product | None:
    """Return the operator's matrix product; one of many groups is narrow by nature, as its roof knows."""
    work = entry.work
    return work.product if work and roof_kind(entry.operator, entry.kind, work, entry.where) == PRODUCT else None
