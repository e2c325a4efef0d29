"""Targets: machines with SME2 as data, and what one gains on an operator by its dtype and shape. All predicted.

SME2 multiplies a tile of 2 x 2 vectors of 32-bit accumulators at once. So a product takes the time of whole tiles, the
time to read their accumulators out, and the time to pack its left side; and no less than its bytes take from memory.
These four explain KleidiAI's published rates by shape; their constants are the target's, and none is fitted to a model.

NEON has its units in each core, SME2 one unit in each cluster. More threads than units share them, and may be slower
together than one thread for each unit.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from model_profiling.analysis.roofs.roof_rates import Roofs, read_roofs
from model_profiling.analysis.sme2 import forecast_validation
from model_profiling.analysis.sme2.gains import Gain, Switch
from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.work import Product, Size, Work
from model_profiling.base import files
from model_profiling.base.dtypes import OF_ACTIVATIONS, dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.units import counted

SCHEMA = 1
DEFAULT = "apple_m4"
_DIRECTORY = Path(__file__).parents[2] / "targets"
# KleidiAI's SME2 matrix kernels are named 2vlx2vl: two vectors of rows by two of columns.
_TILE_VECTORS = 2
_ACCUMULATOR_BITS = 32
# SMMLA (i8mm) multiplies twice as many int8 as SDOT (dot) does.
I8MM_OVER_DOT = 2.0
# A NEON vector holds twice as many fp16 as fp32.
FP16_OVER_FP32 = 2.0
# Names of earlier versions, and what they were made of.
_FORMER = {"arm_c1": "it mixed two cores; use arm_phone (LiteRT) or arm_c1_pro (onnxruntime)"}


def rate_dtype(work: Work | None) -> str:
    """Return the dtype whose rate counts for an operator: its own, not the program's; '' if not known."""
    row = OF_ACTIVATIONS.get(work.element) if work is not None else None
    return row.computes_as if row is not None else ""


# What every rate, bandwidth and part may be, and what other figures may be: all that is within can be reckoned with.
_RATES = (1e-3, 1e9)
_BOUNDS = {
    **{"vector_bits": (128, 2048), "units": (1, 1 << 20), "near_bytes": (1, 1 << 50)},
    **dict.fromkeys(("readout_ns", "pack_ns"), (0, 1e6)),
}
Rate = Annotated[float, msgspec.Meta(ge=_RATES[0], le=_RATES[1])]


class Figure(msgspec.Struct, frozen=True):
    """A number of a target, with its range if one is known, and how it is known."""

    value: float
    unit: str
    kind: Literal["measured", "published", "derived", "assumed"]
    source: str
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float:
        return self.value if self.low is None else self.low

    @property
    def most(self) -> float:
        return self.value if self.high is None else self.high


class ShapeRate(msgspec.Struct, frozen=True):
    """A published rate of one product: evidence that the rest of the target is held against."""

    m: Size
    k: Size
    n: Size
    element: str
    gflops_prepacked: Rate
    gflops_packing: Rate
    source: str


class Threads(msgspec.Struct, frozen=True):
    """What several threads reach, as parts: SME2 while each has a unit, SME2 while they share units, and NEON."""

    scaling: Figure
    sharing: Figure
    neon: Figure


class Target(msgspec.Struct, frozen=True, tag="target", tag_field="kind"):
    """A machine with SME2. Rates are in G(FL)OP/s by dtype; what is None is not known and not counted.

    `derived_from` names the published results that its numbers come from: none of them is a test of it.
    """

    name: str
    cpu: str
    about: str
    vector_bits: Figure
    units: Figure
    sme2: dict[str, Figure]
    neon: dict[str, Figure]
    readout_ns: Figure | None = None
    pack_ns: Figure | None = None
    near_gb_s: Figure | None = None
    far_gb_s: Figure | None = None
    near_bytes: Figure | None = None
    threads: Threads | None = None
    derived_from: list[str] = []
    shapes: list[ShapeRate] = []
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        for name, figure in self.figures().items():
            low, high = _BOUNDS.get(name, _RATES)
            if not low <= figure.least <= figure.value <= figure.most <= high:
                raise ValueError(f"{name} must be {low:g} to {high:g}, and its low <= value <= high: {figure.value:g}")

    @property
    def dtypes(self) -> list[str]:
        """The dtypes whose gain is known."""
        return [dtype for dtype in self.sme2 if dtype in self.neon]

    @property
    def side(self) -> int:
        """Rows, and columns, of the tile that is computed at once."""
        return int(_TILE_VECTORS * self.vector_bits.value // _ACCUMULATOR_BITS)

    def refuse(self, dtypes: set[str]) -> None:
        """Refuse operators of which nothing is known here, in none of their dtypes."""
        known = sorted(self.dtypes)
        if dtypes and not dtypes & set(known):
            raise InputError(
                f"what SME2 gains in {' and '.join(sorted(dtypes))} on {self.cpu} is not known: the target has "
                f"{', '.join(known)}",
                f"Use another target ({', '.join(targets())}), or assume with --speedup.",
            )

    def refuse_test(self, result: str) -> None:
        """Refuse to be held against a published result that the target was derived from."""
        if result in self.derived_from:
            raise InputError(
                f"{self.name} was derived from {result}: agreement with it says nothing",
                "Hold it against a result that derived_from of the target does not name.",
            )

    def figures(self) -> dict[str, Figure]:
        """Return every number of the target that has a source, by its name."""
        found: dict[str, Figure] = {}
        for name, value in msgspec.structs.asdict(self).items():
            own = msgspec.structs.asdict(value) if isinstance(value, Threads) else value
            if isinstance(own, Figure):
                found[name] = own
            elif isinstance(own, dict):
                found |= {f"{name} {key}": figure for key, figure in own.items()}
        return found

    def gain(self, entry: InstanceTime, threads: int = 1) -> Gain | None:
        """Return what SME2 gains on an operator that it runs, against NEON of the same machine with as many threads.

        None if that is not known. Below 1 where NEON is faster: it has a unit for each thread.
        """
        work = entry.work
        product = work.product if work is not None else None
        dtype = rate_dtype(work)
        if work is None or product is None or dtype not in self.dtypes:
            return None
        if product.m == 1 and not self._memory_ns(work):
            return None  # what one row takes is decided by memory, which nobody published of this machine
        times = [self.times(work, product, dtype, *ends, threads=threads) for ends in ((0, 0), (-1, 1), (1, -1))]
        expected, low, high = (neon / sme2 for neon, sme2 in times)
        why = self._why(work, product, dtype, threads) + ("; NEON is faster" if expected < 1 else "")
        return Gain(expected, min(low, expected), max(high, expected), why)

    def thread_gains(self, threads: int, sme2: int = 0, neon: int = 0) -> tuple[float, float]:
        """Return how many times faster than one thread NEON and SME2 are on several, at an end of their range each."""
        own = self.threads
        on_neon = threads * (_end(own.neon, neon) if own is not None and threads > 1 else 1.0)
        units = int(self.units.value)
        on_sme2 = float(min(threads, units))
        if own is not None and on_sme2 > 1:
            on_sme2 *= _end(own.scaling, sme2)
        if own is not None and threads > units:
            on_sme2 *= _end(own.sharing, sme2)
        return on_neon, on_sme2

    def times(
        self, work: Work, product: Product, dtype: str, sme2: int = 0, neon: int = 0, threads: int = 1
    ) -> tuple[float, float]:
        """Return what NEON and SME2 take (ns), with their rates at the low (-1), expected (0) or high (1) end."""
        floor = self._memory_ns(work)
        neon_threads, sme2_threads = self.thread_gains(threads, sme2, neon)
        fast, slow = _end(self.sme2[dtype], sme2), _end(self.neon[dtype], neon)
        # NEON writes every result once, too: where k is short, that is most of it.
        written = product.m * product.n * product.count * (self.readout_ns.value if self.readout_ns else 0.0)
        on_neon = (2 * product.multiply_accumulates / slow + written) / neon_threads
        # Memory is shared; yet several cores may load more of it than a unit of SME2 does.
        neon_floor = floor / threads if neon > 0 else floor
        return max(on_neon, neon_floor), max(self.sme2_ns(product, dtype, fast, sme2) / sme2_threads, floor)

    def sme2_ns(self, product: Product, dtype: str, rate: float | None = None, end: int = 0) -> float:
        """Return what SME2 takes for a product whose numbers are at hand."""
        rate = rate or self.sme2[dtype].value
        if product.m == 1:
            # One row fills no tile: KleidiAI multiplies vectors then, as fast as they come from memory.
            return 0.0
        rows, columns = (math.ceil(size / self.side) * self.side for size in (product.m, product.n))
        computed = 2 * rows * columns * product.k / rate
        read_out = rows * columns * _end(self.readout_ns, -end) if self.readout_ns else 0.0
        left_bytes = product.m * product.k * dtype_of(dtype).element_bytes
        packed = left_bytes * _end(self.pack_ns, -end) if self.pack_ns else 0.0
        return product.count * (computed + read_out + packed)

    def _memory_ns(self, work: Work) -> float:
        if self.near_gb_s is None or self.far_gb_s is None or self.near_bytes is None:
            return 0.0
        rate = self.near_gb_s if work.bytes <= self.near_bytes.value else self.far_gb_s
        return work.bytes / rate.value

    def filled(self, product: Product) -> float:
        """Return which part of the tiles that are computed holds results."""
        rows, columns = (math.ceil(size / self.side) * self.side for size in (product.m, product.n))
        return product.m * product.n / (rows * columns)

    def _why(self, work: Work, product: Product, dtype: str, threads: int) -> str:
        rate = self.sme2[dtype].value / self.neon[dtype].value
        reasons = [f"{dtype}: {rate:.1f} times NEON's rate"]
        _, sme2 = self.times(work, product, dtype, threads=threads)
        if product.m == 1:
            reasons.append("one row fills no tile: vectors are multiplied")
        elif self.filled(product) < 0.9:
            reasons.append(f"{self.filled(product):.0%} of its tiles used")
        if sme2 <= self._memory_ns(work):
            reasons.append("memory bound")
        elif product.m > 1:
            computed = product.multiply_accumulates * 2 / self.filled(product) / self.sme2[dtype].value
            alone = self.sme2_ns(product, dtype)
            if computed < 0.8 * alone:
                reasons.append(f"{1 - computed / alone:.0%} packing and reading out")
        if threads > self.units.value:
            reasons.append(self._shared(threads))
        return "; ".join(reasons)

    def _shared(self, threads: int) -> str:
        units = int(self.units.value)
        said = f"{threads} threads share {counted(units, 'unit')}"
        if self.threads is None:
            return said
        part = self.threads.sharing
        return f"{said}: together {part.least:.0%} to {part.most:.0%} of what {counted(units, 'thread')} would reach"


def _end(figure: Figure, end: int) -> float:
    return (figure.least, figure.value, figure.most)[end + 1]


def targets() -> list[str]:
    """Return the targets that come with the kit."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.json"))


def kit_targets() -> list[Target]:
    """Return what is known of each target that comes with the kit."""
    return [files.read_json(_DIRECTORY / f"{name}.json", Target, "target") for name in targets()]


class MeasuredTarget:
    """A machine with SME2 whose roofs were measured with SME2 off and on."""

    def __init__(self, roofs: Roofs) -> None:
        self.name = self.cpu = roofs.cpu
        self._roofs = roofs
        self._switches: dict[tuple[str, int], Switch | None] = {}

    def refuse(self, dtypes: set[str]) -> None:
        known = [dtype for dtype in dtypes if any(self._switch(dtype, t) for t in self._threads(dtype))]
        if dtypes and not known:
            raise InputError(
                f"the roofs of {self.cpu} were not measured in {' and '.join(sorted(dtypes))} with SME2 off and on",
                "Measure them there: sme2-kit roofs.",
            )

    def gain(self, entry: InstanceTime, threads: int = 1) -> Gain | None:
        """Return what the nearest probes gained with so many threads; None if not known."""
        switch = self._switch(rate_dtype(entry.work), threads)
        if switch is None or entry.work is None:
            return None
        return switch.of_probes(entry.kind, entry.work, entry.operator)

    def _threads(self, dtype: str) -> set[int]:
        return {entry.threads for entry in self._roofs.measurements if entry.dtype == dtype}

    def _switch(self, dtype: str, threads: int) -> Switch | None:
        key = (dtype, threads)
        if key not in self._switches:
            fitting = [m for m in self._roofs.measurements if (m.dtype, m.threads) == key]
            on = next((m for m in fitting if "sme2" in m.active), None)
            # Without SME2 alone, XNNPACK runs kernels of SME: what it gains is against neither.
            off = next((m for m in fitting if not {"sme", "sme2"} & set(m.active)), None)
            self._switches[key] = Switch(off, on) if on is not None and off is not None else None
        return self._switches[key]


AnyTarget = Target | MeasuredTarget


def read_target(name: str | Path) -> AnyTarget:
    """Return a target by its name, or from a file: like those of the kit, or of `roofs` or `validate-forecast`."""
    path = _DIRECTORY / f"{name}.json" if str(name) in targets() else Path(name)
    if not path.is_file():
        former = _FORMER.get(str(name))
        raise InputError(
            f"there is no target {name}" + (f" any more: {former}" if former else ""),
            f"Use {', '.join(targets())}, or the path of a file; `sme2-kit targets` describes them.",
        )
    kind = files.read_json(path, dict[str, Any], "target").get("kind")
    if kind == forecast_validation.KIND:
        return MeasuredTarget(forecast_validation.target_roofs(path))
    return MeasuredTarget(read_roofs(path)) if kind == "roofs" else files.read_json(path, Target, "target")
