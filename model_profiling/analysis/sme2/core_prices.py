"""What operators take on an Arm core, by prices that were measured there: how a program that no Arm CPU ran is timed.

A product takes as long as its multiplications, counted in whole vectors of columns, and the writing of its results; one
row as long as its weights come from memory; a transpose by how many values it moves at once; all else by its bytes.
Prices are fitted to operators of a few networks (benchmarks/operator_prices.py), which their file names, and are held
against others that they were not fitted to (docs/forecast.md). All that comes of them is a prediction.
"""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.profile import Where
from model_profiling.analysis.timing.work import BITS
from model_profiling.base import files
from model_profiling.base.records import by_key
from model_profiling.formats.graph_terms import base_name

DIRECTORY = Path(__file__).parents[2] / "targets" / "cores"
CORE = "neoverse_n1"
DEPTHWISE, ONE_ROW, TRANSPOSE, ROWS, OTHER = "depthwise", "one row", "transpose", "transpose of rows", "other"
# Bytes of the columns of a product that are computed at once.
_BLOCK_BYTES = 32
# A transpose's rows are farther apart with each doubling from here on.
_NEAR_BYTES = 32 << 10
# What is called the same when it is computed.
_ELEMENTS = {"quint8": "qint8", "qpint8": "qdint8", "pfp32": "fp32"}


class Price(msgspec.Struct, frozen=True):
    """Nanoseconds of one kind of operator in one type, for each of what there is of it (`amounts`); `operators` is how
    many it was fitted to, 0 where `source` says another way."""

    where: Where
    operator: str
    element: str
    ns: dict[str, float]
    operators: int = 0
    source: str = ""


class CorePrices(msgspec.Struct, frozen=True, tag="core_prices", tag_field="kind", dict=True):
    """What is known of one core with these features. `fitted_to` names the networks that its prices are from.

    `rest_low` and `rest_high` bound what multiplies no matrices, as parts of what was predicted of it, in nine of ten
    networks that are not among them.
    """

    cpu: str
    executorch: str
    features: list[str]
    source: str
    fitted_to: list[str]
    rest_low: float
    rest_high: float
    prices: list[Price]
    schema: int = 1

    @functools.cached_property
    def _by_operator(self) -> dict[tuple[Where, str], list[Price]]:
        return by_key(((price.where, price.operator), price) for price in self.prices)

    def price(self, where: Where, operator: str, element: str) -> Price | None:
        """Return the price of an operator; of its nearest type where its own has none, of all others of its place."""
        own = self._by_operator.get((where, operator)) or self._by_operator.get((where, OTHER), [])
        bits = BITS.get(element, 32)
        ranked = sorted(own, key=lambda price: (price.element != element, abs(BITS.get(price.element, 32) - bits)))
        return ranked[0] if ranked else None

    def ns(self, entry: InstanceTime, inside: int = 0) -> float:
        """Return what an operator takes, or a delegate call itself, with so many operators `inside`."""
        operator, element = priced_as(entry)
        price, counts = self.price(entry.where, operator, element), amounts(entry, inside)
        return sum(each * counts.get(name, 0.0) for name, each in price.ns.items()) if price is not None else 0.0


def core_prices(name: str = CORE) -> CorePrices:
    """Return the prices of a core that come with the kit."""
    return files.read_json(DIRECTORY / f"{name}.json", CorePrices, "core prices")


def priced_as(entry: InstanceTime) -> tuple[str, str]:
    """Return the operator and type whose price counts: products and transposes by their form, others by their name."""
    work = entry.work
    if entry.where != "delegated":
        return base_name(entry.operator), work.element if work is not None else ""
    element = _ELEMENTS.get(work.element, work.element) if work is not None else ""
    product = work.product if work is not None else None
    if product is not None:
        one = product.m == 1 and product.count == 1
        return ONE_ROW if one else DEPTHWISE if entry.kind == "depthwise" else entry.kind, element
    if entry.kind == "transpose" and work is not None:
        return TRANSPOSE if len(work.inner) > 1 else ROWS, element
    return entry.operator.partition(" (")[0], element


def amounts(entry: InstanceTime, inside: int = 0) -> dict[str, float]:
    """Return how much there is of all that is priced."""
    work = entry.work
    if work is None:
        return {"calls": 1.0, "inside": float(inside)}
    values, size = work.elements / 2, work.read_bytes + work.written_bytes
    found = {"calls": 1.0, "bytes": float(size), "weight bytes": float(work.weight_bytes)}
    product = work.product
    if product is not None:
        columns = product.n
        if entry.kind != "depthwise":
            block = 8 if not work.element.startswith("fp") else max(1, 8 * _BLOCK_BYTES // BITS.get(work.element, 32))
            columns = math.ceil(product.n / block) * block
        results = float(product.m * columns * product.count)
        left = product.m * product.k * product.count
        return {**found, "multiply-accumulates": results * product.k, "results": results, "left": left}
    doublings = math.log2(max(1.0, size / 2 / _NEAR_BYTES))
    runs = values / max(1, min(work.inner)) if work.inner else 0.0
    return {**found, "values": values, "runs": runs, "values by doublings": values * doublings}


# SMMLA (i8mm) multiplies twice as many int8 as SDOT (dot) does.
I8MM_OVER_DOT = 2.0
INT8 = ("qint8", "quint8", "qdint8", "qpint8")


def on_core(breakdown: Breakdown, prices: CorePrices, threads: int = 1) -> Breakdown:
    """Return a breakdown with the times that its operators would take on a core, if it had i8mm as CPUs with SME2.

    XNNPACK divides its operators among threads; portable kernels and ExecuTorch have one.
    """
    delegated = (entry for entry in breakdown.instances if entry.where == "delegated" and not _goes(entry))
    inside = Counter(entry.instruction for entry in delegated)
    times = []
    for entry in breakdown.instances:
        step = I8MM_OVER_DOT if gains_by_i8mm(entry) and "i8mm" not in prices.features else 1.0
        step *= threads if entry.where == "delegated" else 1
        times.append(0.0 if _goes(entry) else prices.ns(entry, inside[entry.instruction]) / 1e6 / step)
    return with_times(breakdown, times)


def gains_by_i8mm(entry: InstanceTime) -> bool:
    """Return whether an operator multiplies matrices in int8."""
    matrix = entry.category in ("CONV", "GEMM") and entry.kind != "depthwise" and entry.where == "delegated"
    return matrix and entry.work is not None and entry.work.element in INT8


def unpriced(breakdown: Breakdown) -> list[str]:
    """Return the operators that multiply matrices and whose sizes are not known: nothing is told of their time."""
    unknown = [x.operator for x in breakdown.instances if x.category in ("CONV", "GEMM") and x.work is None]
    return list(dict.fromkeys(unknown))


def _goes(entry: InstanceTime) -> bool:
    """Return whether an operator is there only because the CPU at hand has no arithmetic in the program's type."""
    return entry.where == "delegated" and entry.kind == "convert" and entry.work is None


def with_times(breakdown: Breakdown, times: Sequence[float]) -> Breakdown:
    """Return a breakdown whose operators take other times, in milliseconds."""
    whole = sum(times)
    instances = [
        msgspec.structs.replace(entry, ms=ms, share=ms / whole if whole else 0.0)
        for entry, ms in zip(breakdown.instances, times, strict=True)
    ]
    by_category = {entry.category: 0.0 for entry in breakdown.categories}
    for entry in instances:
        by_category[entry.category] += entry.ms
    categories = [
        msgspec.structs.replace(old, ms=by_category[old.category], share=by_category[old.category] / (whole or 1.0))
        for old in breakdown.categories
    ]
    return msgspec.structs.replace(breakdown, execute_ms=whole, instances=instances, categories=categories)
