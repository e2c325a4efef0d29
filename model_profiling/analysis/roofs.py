"""What a CPU reaches at its best with this backend: rates of probe operators by shape, measured by `sme2-kit roofs`.

A rate between the probes is read off the nearest of them: shapes are compared by the logarithms of their sizes, because
twice as wide means as much for a small product as for a large one.
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from model_profiling import files
from model_profiling.analysis.profile import Part
from model_profiling.analysis.work import Work
from model_profiling.errors import InputError
from model_profiling.places import roofs_directory

SCHEMA = 1
# What the probe program is exported in.
DTYPES = ("fp32", "fp16", "int8")
# So many of the nearest probes tell a rate.
_NEAREST = 4
# Columns that kernels compute at once, at the least.
_COLUMNS = 8
# Where an operator has no probe of its own kind, one that does the same with other words stands for it.
_STANDS_FOR = {
    **{"pointwise": "fully connected", "batch matmul": "fully connected", "deconvolution": "conv2d"},
    **{"slice": "copy", "concat": "copy", "pad": "copy", "split": "copy", "expand": "copy", "shuffle": "transpose"},
    **{"unary": "activation", "clamp": "binary", "normalization": "activation", "resize": "pooling"},
}


class Probed(msgspec.Struct, frozen=True):
    """One probe operator: what it did and how long that took, at best (the fastest tenth) and usually."""

    operator: str
    category: Part
    kind: str
    work: Work
    best_ms: float
    median_ms: float
    mad_ms: float

    @property
    def rate(self) -> float:
        """Operations (two to a multiply-accumulate) or bytes per nanosecond: G(FL)OP/s or GB/s."""
        return amount(self.work) / self.best_ms / 1e6


class Measurement(msgspec.Struct, frozen=True):
    """All probes in one dtype, with one set of features and so many threads."""

    dtype: str
    threads: int
    active: list[str]
    disabled: list[str]
    executions: int
    load: float | None
    probes: list[Probed]

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        return self.dtype, self.threads, tuple(sorted(self.disabled))


class Roofs(msgspec.Struct, frozen=True, tag="roofs", tag_field="kind"):
    """roofs.json: one CPU and one ExecuTorch. `created` is when the last of its measurements was made."""

    cpu: str
    arch: str
    platform: str
    created: str
    kit_version: str
    executorch: str
    environment: dict[str, object]
    measurements: list[Measurement]
    schema: int = SCHEMA

    def measurement(self, dtype: str, active: Iterable[str], threads: int) -> Measurement | None:
        """The probes in this dtype with these features and threads; None if they were not measured."""
        wanted = set(active)
        return next(
            (m for m in self.measurements if m.dtype == dtype and m.threads == threads and set(m.active) == wanted),
            None,
        )

    def merged(self, newer: "Roofs") -> "Roofs":
        """The newer roofs, and of the older what the newer do not tell; of another ExecuTorch nothing is kept."""
        told = {entry.key for entry in newer.measurements}
        alike = (self.cpu, self.executorch) == (newer.cpu, newer.executorch)
        kept = [entry for entry in self.measurements if alike and entry.key not in told]
        return msgspec.structs.replace(newer, measurements=[*kept, *newer.measurements])


class Rates:
    """The rates of one measurement, by kind of operator and shape."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement
        self._by_kind: dict[tuple[str, str], list[Probed]] = {}
        for probed in measurement.probes:
            if probed.best_ms > 0 and amount(probed.work):
                self._by_kind.setdefault((probed.kind, probed.work.element), []).append(probed)

    def elements(self, kind: str) -> list[str]:
        """The types that probes of a kind computed in."""
        return [element for known, element in self._by_kind if known in (kind, _STANDS_FOR.get(kind))]

    def probes(self, kind: str, element: str) -> list[Probed]:
        """The probes of a kind in a type; where there are none, those of the kind that stands for it."""
        found = self._by_kind.get((kind, element), [])
        return found or self._by_kind.get((_STANDS_FOR.get(kind, ""), element), [])

    @cached_property
    def peaks(self) -> dict[str, Probed]:
        """The probe that reached most, of all that multiply matrices, by the type computed in."""
        return _best(p for p in self.measurement.probes if p.category in ("CONV", "GEMM") and p.kind != "depthwise")

    @cached_property
    def depthwise_peaks(self) -> dict[str, Probed]:
        return _best(probed for probed in self.measurement.probes if probed.kind == "depthwise")


def _best(probes: Iterable[Probed]) -> dict[str, Probed]:
    found: dict[str, Probed] = {}
    for probed in probes:
        if probed.best_ms > 0 and (probed.work.element not in found or probed.rate > found[probed.work.element].rate):
            found[probed.work.element] = probed
    return found


def amount(work: Work) -> int:
    """How much there is to do: operations where matrices are multiplied, else bytes."""
    return 2 * work.multiply_accumulates or work.bytes


def place(work: Work) -> tuple[float, ...]:
    """Where a shape lies among shapes, whatever the type."""
    product = work.product
    if product is None:
        return (math.log2(max(1, work.elements)),)
    sizes = (product.m, product.n, product.k, product.count)
    # Kernels compute whole vectors of columns: what fills its last one is not like what does not.
    return *(math.log2(max(1, size)) for size in sizes), float(product.n % _COLUMNS != 0)


def nearest(probes: Sequence[Probed], work: Work) -> list[tuple[float, Probed]]:
    """The probes whose shapes are nearest, each with what it counts: the nearer the more, 1 in all."""
    here = place(work)
    alike = [probed for probed in probes if (probed.work.product is None) == (work.product is None)]
    near = sorted(((math.dist(here, place(probed.work)), probed) for probed in alike), key=lambda found: found[0])
    counts = [(1 / (0.01 + distance * distance), probed) for distance, probed in near[:_NEAREST]]
    whole = sum(count for count, _ in counts)
    return [(count / whole, probed) for count, probed in counts]


def roofs_path(cpu: str) -> Path:
    """Where the roofs of a CPU are kept on this machine."""
    return roofs_directory() / f"{slug(cpu)}.json"


def slug(cpu: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", cpu.lower()).strip("_") or "unknown"


# More than this no program has of anything.
_MOST = 1 << 60


def read_roofs(path: Path) -> Roofs:
    roofs = files.read_json(path, Roofs, "roofs")
    for probed in (probed for entry in roofs.measurements for probed in entry.probes):
        if not _sound(probed):
            raise InputError(
                f"roofs {path}: {probed.operator} cannot have been measured", "Run `sme2-kit roofs` again."
            )
    return roofs


def _sound(probed: Probed) -> bool:
    """Whether numbers can be reckoned with: files come from elsewhere, too."""
    work = probed.work
    sizes = [work.weight_bytes, work.read_bytes, work.written_bytes, work.multiply_accumulates]
    sizes += [] if work.product is None else [work.product.m, work.product.n, work.product.k, work.product.count]
    times = (probed.best_ms, probed.median_ms, probed.mad_ms)
    return all(0 <= size <= _MOST for size in sizes) and all(0 <= ms <= _MOST for ms in times)


def known_roofs(cpu: str) -> Roofs | None:
    """The roofs of a CPU, if they were ever measured."""
    path = roofs_path(cpu)
    return read_roofs(path) if path.is_file() else None
