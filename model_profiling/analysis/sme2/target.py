"""Targets: machines with SME2 as data, and what one gains on an operator by its dtype and shape. All predicted.

SME2 multiplies a tile of 2 x 2 vectors of 32-bit accumulators at once. So a product takes the time of whole tiles, the
time to read their accumulators out, and the time to pack its left side, with a fixed part for each call; and no less
than its bytes take from memory. XNNPACK goes over tiles of columns and, inside, over all rows; of a convolution, over
positions and, inside, over channels. So the packed left side, or a convolution's weights, is read again and again,
which takes long where it is larger than the cache. The constants are the target's, and none is fitted to a model.

NEON has its units in each core, SME2 one unit in each cluster. More threads than units share them, and may be slower
together than one thread for each unit.
"""

import itertools
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from model_profiling.analysis.roofs.roof_rates import Roofs, read_roofs
from model_profiling.analysis.sme2 import forecast_validation
from model_profiling.analysis.sme2.gains import Gain, Switch
from model_profiling.analysis.sme2.kernel_table import Cpu
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
    **{"vector_bits": (128, 2048), "units": (1, 1 << 20), "near_bytes": (1, 1 << 40)},
    **dict.fromkeys(("readout_ns", "pack_ns", "call_ns"), (0, 1e6)),
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
    call_ns: Figure | None = None
    near_gb_s: Figure | None = None
    far_gb_s: Figure | None = None
    near_bytes: Figure | None = None
    # Beyond the nearest memory, by how many MiB are read: `{"8 MiB": …}`. What is twice the largest comes from far.
    load_gb_s: dict[Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]{0,5} MiB$")], Figure] = {}
    threads: Threads | None = None
    other_work: Figure | None = None
    # Which kernels it runs: "sme1" where it has SME and not SME2.
    level: Cpu = "sme2"
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
    def rest(self) -> tuple[float, float]:
        """The range of what all that is no product takes here, as parts of what it takes beside products elsewhere."""
        return (1.0, 1.0) if self.other_work is None else (self.other_work.least, self.other_work.most)

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
        window = entry.category == "CONV"
        times = [self.times(work, product, dtype, *ends, threads, window) for ends in ((0, 0), (-1, 1), (1, -1))]
        expected, low, high = (neon / sme2 for neon, sme2 in times)
        why = self._why(work, product, dtype, threads) + ("; NEON is faster" if expected < 1 else "")
        return Gain(expected, min(low, expected), max(high, expected), why)

    def thread_gains(self, threads: int, sme2: int = 0, neon: int = 0) -> tuple[float, float]:
        """Return how many times faster than one thread NEON and SME2 are on several, at an end of their range each."""
        own, units = self.threads, int(self.units.value)
        on_neon, on_sme2 = float(threads), float(min(threads, units))
        if own is not None and threads > 1:
            on_neon *= _end(own.neon, neon)
            on_sme2 *= _end(own.scaling, sme2) if on_sme2 > 1 else 1.0
            on_sme2 *= _end(own.sharing, sme2) if threads > units else 1.0
        return on_neon, on_sme2

    def times(
        self,
        work: Work,
        product: Product,
        dtype: str,
        sme2: int = 0,
        neon: int = 0,
        threads: int = 1,
        window: bool = False,
    ) -> tuple[float, float]:
        """Return what NEON and SME2 take (ns), with their rates at the low (-1), expected (0) or high (1) end."""
        floor = self._memory_ns(work)
        neon_threads, sme2_threads = self.thread_gains(threads, sme2, neon)
        fast, slow = _end(self.sme2[dtype], sme2), _end(self.neon[dtype], neon)
        # NEON writes every result once, too: where k is short, that is most of it.
        written = product.m * product.n * product.count * _end(self.readout_ns, 0)
        on_neon = (2 * product.multiply_accumulates / slow + written) / neon_threads
        # Memory is shared; yet several cores may load more of it than a unit of SME2 does.
        neon_floor = floor / threads if neon > 0 else floor
        on_sme2 = self.sme2_ns(product, dtype, fast, sme2, window) / sme2_threads
        return max(on_neon, neon_floor), max(on_sme2, floor)

    def sme2_ns(
        self, product: Product, dtype: str, rate: float | None = None, end: int = 0, window: bool = False
    ) -> float:
        """Return what SME2 takes for a product whose numbers are at hand, `window` for a convolution's."""
        rate = rate or self.sme2[dtype].value
        if product.m == 1:
            # One row fills no tile: KleidiAI multiplies vectors then, as fast as they come from memory.
            return 0.0
        rows, columns = self._computed(product)
        computed = 2 * rows * columns * product.k / rate
        read_out = rows * columns * _end(self.readout_ns, -end)
        left_bytes, right_bytes = (size * product.k * dtype_of(dtype).element_bytes for size in (product.m, product.n))
        again = (right_bytes, rows // self.side) if window else (left_bytes, columns // self.side)
        packed = left_bytes * _end(self.pack_ns, -end) + _end(self.call_ns, -end) if self.pack_ns else 0.0
        return product.count * (computed + read_out + packed + self.again_ns(*again))

    def again_ns(self, size: int, times: int) -> float:
        """Return what reading so many bytes so often takes beyond what they would take from the nearest cache."""
        if self.near_gb_s is None or self.far_gb_s is None:
            return 0.0
        return size * times * max(0.0, 1 / self.bandwidth(size) - 1 / self.near_gb_s.value)

    def bandwidth(self, size: int) -> float:
        """Return the rate (GB/s) at which so many bytes are read, between the rates that are known."""
        assert self.near_gb_s is not None and self.far_gb_s is not None
        near = self.near_bytes.value if self.near_bytes is not None else 1.0
        known = {near: self.near_gb_s.value} | {float(n.split()[0]) * 2**20: f.value for n, f in self.load_gb_s.items()}
        known[2 * max(known) if self.load_gb_s else near + 1] = self.far_gb_s.value
        points = sorted((math.log(at), math.log(rate)) for at, rate in known.items())
        here = math.log(max(1, size))
        for (at, rate), (after, slower) in itertools.pairwise(points):
            if here <= after:
                return math.exp(rate + (slower - rate) * max(0.0, here - at) / (after - at))
        return self.far_gb_s.value

    def _memory_ns(self, work: Work) -> float:
        return work.bytes / self.bandwidth(work.bytes) if self.near_gb_s is not None and self.far_gb_s else 0.0

    def filled(self, product: Product) -> float:
        """Return which part of the tiles that are computed holds results."""
        return product.m * product.n / math.prod(self._computed(product))

    def _computed(self, product: Product) -> tuple[int, int]:
        """Return the rows and columns of whole tiles."""
        return math.ceil(product.m / self.side) * self.side, math.ceil(product.n / self.side) * self.side

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
            units = int(self.units.value)
            reasons.append(f"{threads} threads share {counted(units, 'unit')}")
            if self.threads is not None:
                part = f"{self.threads.sharing.least:.0%} to {self.threads.sharing.most:.0%}"
                reasons[-1] += f": together {part} of what {counted(units, 'thread')} would reach"
        return "; ".join(reasons)


def _end(figure: Figure | None, end: int) -> float:
    """Return a number at the low (-1), expected (0) or high (1) end of its range; what is not known does not count."""
    return (figure.least, figure.value, figure.most)[end + 1] if figure is not None else 0.0


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
        # Where it was measured, it is this machine that a run is of, as a rule.
        self.rest = (1.0, 1.0)
        self.level: Cpu = "sme2"
        self._roofs = roofs
        self._switches: dict[tuple[str | int, ...], Switch | None] = {}

    def refuse(self, dtypes: set[str]) -> None:
        every = [(m.dtype, m.threads) for m in self._roofs.measurements if m.dtype in dtypes]
        if dtypes and not any(self._switch(*known) for known in every):
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

    def _switch(self, *key: str | int) -> Switch | None:
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
