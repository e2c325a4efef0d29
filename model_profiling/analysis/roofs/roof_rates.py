"""What a CPU reaches at its best with this backend: rates of probe operators by shape, measured by `sme2-kit roofs`.

An operator is compared only with probes of its own kind and type (`roof_kind`): a GELU with GELUs, a portable layer
norm with portable layer norms. A rate between the probes is read off the nearest of them: shapes are compared by the
logarithms of their sizes, because twice as wide means as much for a small product as for a large one.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from model_profiling.analysis.timing.profile import Part, Where
from model_profiling.analysis.timing.work import Work
from model_profiling.base import files
from model_profiling.base.directories import roofs_directory
from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key
from model_profiling.formats.graph_terms import base_name
from model_profiling.store.made_by import Machine, machine_of

T = TypeVar("T")
SCHEMA = 1
# XNNPACK reads its clock in whole microseconds: the rate of anything shorter is not known.
SHORTEST_MS = 0.002
# What the probe program is exported in.
DTYPES = ARITHMETICS
# So many of the nearest probes tell a rate.
_NEAREST = 4
# Columns that kernels compute at once, at the least.
_COLUMNS = 8
# What switching features gains is read off another kind where an operator's own was not probed; roofs never are.
_STANDS_FOR = {
    **{"pointwise": "fully connected", "batch matmul": "fully connected", "deconvolution": "conv2d"},
    **{"slice": "copy", "concat": "copy", "pad": "copy", "split": "copy", "expand": "copy", "shuffle": "transpose"},
    **{"unary": "activation", "clamp": "binary", "normalization": "activation", "resize": "pooling"},
}

# What runs as a product of whole matrices, whatever it is called.
PRODUCT = "matrix product"
GROUPED = "grouped convolution"
_PRODUCTS = ("fully connected", "pointwise", "batch matmul", "conv2d")
_ONLY_MOVE = ("copy", "slice", "binary", "clamp")
# So many channels fill the vectors of a depthwise convolution.
_MANY_CHANNELS = 64
# Rows are long enough from here on: a longer one is no faster.
_LONG = 512
_LONGER_THAN_ITS_START_MS = 0.01
# Shapes that differ more than so, in doublings of any size but the whole, say nothing of each other.
_ALIKE = 1.0

# Nothing is measured for longer; what took less than a nanosecond was not timed.
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_NANOSECOND_MS = 1e-6


class ProbeResult(msgspec.Struct, frozen=True):
    """One probe operator: what it did and how long that took, at best (the fastest tenth) and usually."""

    operator: str
    category: Part
    kind: str
    work: Work
    best_ms: Milliseconds
    median_ms: Milliseconds
    mad_ms: Milliseconds
    where: Where = "delegated"

    @property
    def rate(self) -> float:
        """Operations (two to a multiply-accumulate) or bytes per nanosecond: G(FL)OP/s or GB/s."""
        return amount(self.work) / self.best_ms / 1e6

    @property
    def bandwidth(self) -> float:
        """Bytes per nanosecond: GB/s."""
        return self.work.bytes / self.best_ms / 1e6


class Measurement(msgspec.Struct, frozen=True):
    """All probes in one dtype, with one set of features and so many threads."""

    dtype: str
    threads: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
    active: list[str]
    disabled: list[str]
    executions: int
    load: float | None
    probes: list[ProbeResult]

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        return self.dtype, self.threads, tuple(sorted(self.disabled))


class Roofs(msgspec.Struct, frozen=True, tag="roofs", tag_field="kind"):
    """roofs.json: one machine and one ExecuTorch. `created` is when the last of its measurements was made."""

    cpu: str
    arch: str
    platform: str
    created: str
    kit_version: str
    executorch: str
    environment: dict[str, object]
    measurements: list[Measurement]
    schema: int = SCHEMA
    # Of all the rest; '' where it was not recorded.
    sha256: str = ""
    # A hash of ExecuTorch's libraries; '' where it was not recorded.
    libraries: str = ""

    @property
    def machine(self) -> Machine:
        """CPU, cores and memory; its features are those of each measurement."""
        return machine_of("", (), self.environment | {"cpu": self.cpu})

    def measurement(self, dtype: str, active: Iterable[str], threads: int) -> Measurement | None:
        """Return the probes in this dtype with these features and threads; None if they were not measured."""
        return next((m for m in self.fitting(active, threads) if m.dtype == dtype), None)

    def fitting(self, active: Iterable[str], threads: int) -> list[Measurement]:
        """Return the probes in all dtypes that were measured with these features and threads."""
        wanted = set(active)
        return [m for m in self.measurements if m.threads == threads and set(m.active) == wanted]

    def rates(self, active: Iterable[str], threads: int = 1, dtype: str = "") -> "Rates | None":
        """Return what is known of all dtypes with these features and threads, first of the program in `dtype`."""
        found = sorted(self.fitting(active, threads), key=lambda entry: entry.dtype != dtype)
        return Rates(*found) if found else None

    def merged(self, newer: "Roofs") -> "Roofs":
        """Return the newer roofs, and of the older (of the same machine and libraries) what those do not tell."""
        told = {entry.key for entry in newer.measurements}
        alike = (self.machine, self.executorch, self.libraries) == (newer.machine, newer.executorch, newer.libraries)
        kept = [entry for entry in self.measurements if alike and entry.key not in told]
        return msgspec.structs.replace(newer, measurements=[*kept, *newer.measurements])


class Rates:
    """The rates of one measurement, by kind of operator and shape.

    `others` are of other dtypes with the same features: layers kept in fp32 in an fp16 program have their roofs there.
    """

    def __init__(self, measurement: Measurement, *others: Measurement) -> None:
        self.measurement, self.others = measurement, others
        self._by_kind = by_key(
            ((probed.kind, probed.work.element), probed)
            for probed in measurement.probes
            if probed.best_ms >= _NANOSECOND_MS and amount(probed.work) and probed.where == "delegated"
        )

    def elements(self, kind: str) -> list[str]:
        """Return the types that probes of a kind computed in."""
        return [element for known, element in self._by_kind if known in (kind, _STANDS_FOR.get(kind))]

    def probes(self, kind: str, element: str, operator: str = "") -> list[ProbeResult]:
        """Return the probes of a kind in a type, of this operator if there are some; else of its stand-in."""
        found = self._by_kind.get((kind, element), [])
        own = [probed for probed in found if probed.operator.partition(" (")[0] == operator.partition(" (")[0]]
        return own or found or self._by_kind.get((_STANDS_FOR.get(kind, ""), element), [])

    @cached_property
    def peaks(self) -> dict[str, ProbeResult]:
        """The probe that reached most, of all that multiply whole matrices, by the type computed in."""
        products = {element: probes for (kind, element), probes in self.timed.items() if kind == PRODUCT}
        return {element: max(probes, key=lambda probed: probed.rate) for element, probes in products.items()}

    @cached_property
    def timed(self) -> dict[tuple[str, str], list[ProbeResult]]:
        """The probes that took long enough to be timed, by the kind they are roofs of and the type computed in."""
        found: dict[tuple[str, str], list[ProbeResult]] = {}
        for measurement in (self.measurement, *self.others):
            told = [each for each in measurement.probes if each.best_ms >= SHORTEST_MS and amount(each.work)]
            kinds = [(roof_kind(each.operator, each.kind, each.work, each.where), each.work.element) for each in told]
            found = by_key(zip(kinds, told, strict=True)) | found
        return found

    def best_ms(self, operator: str, kind: str, work: Work, where: Where = "delegated") -> float | None:
        """Return what an operator takes at best, from the nearest probes of its own kind and type, if there are any.

        `operator` is its name in a trace (what follows in parentheses does not count) and `kind` that of the category
        table; `work.element` is the type.
        """
        known = roof_kind(operator, kind, work, where)
        probes = self.timed.get((known, work.element), [])
        if known == PRODUCT:
            # Products are alike in all shapes, but for what memory allows.
            near = [(share, probed.rate) for share, probed in nearest(probes, work)]
            return max(amount(work) / _mean(near) / 1e6, self.memory_ms(work) or 0.0) if near else None
        rate, smallest = _rate_at(probes, work, kind)
        ms = amount(work) / rate / 1e6 if rate else 0.0
        # What is much smaller than any probe takes as long as its start does, unless it takes long by itself.
        return ms if amount(work) >= smallest / 2 or ms >= _LONGER_THAN_ITS_START_MS else None

    @cached_property
    def memory(self) -> list[ProbeResult]:
        """The probes that show what memory gives: those that do next to nothing with what they read."""
        every = [probed for probes in self.timed.values() for probed in probes if probed.where == "delegated"]
        return [probed for probed in every if probed.kind in _ONLY_MOVE and probed.work.bytes]

    def memory_ms(self, work: Work) -> float | None:
        """Return what moving the bytes of an operator takes at best, from the memory that so many are in."""
        far = [probed for probed in self.memory if probed.work.bytes >= work.bytes / 2]
        # What is larger than any probe comes from as far as the largest.
        known = far or sorted(self.memory, key=lambda probed: probed.work.bytes)[-1:]
        return work.bytes / max(probed.bandwidth for probed in known) / 1e6 if known else None


def roof_kind(operator: str, kind: str, work: Work, where: Where = "delegated") -> str:
    """Return what an operator is compared with: those that run the same kernel, as far as its name and its work tell.

    A depthwise convolution of a window that XNNPACK has no kernel for runs as an indirect product of many groups.
    """
    product = work.product
    name = operator.partition(" (")[0] if where == "delegated" else f"{where} {base_name(operator)}"
    if kind == "convert":
        return f"{name}, {work.read_bytes / max(1, work.written_bytes):.2g} to 1"
    if product is None or where != "delegated":
        return name
    if kind == "depthwise":
        return f"depthwise, window of {product.k}"
    if kind in ("conv2d", "pointwise") and product.count > 1:
        return GROUPED
    return PRODUCT if kind in _PRODUCTS else kind


def _rate_at(probes: Sequence[ProbeResult], work: Work, kind: str) -> tuple[float, float]:
    """Return the rate of probes of one kind at a shape, and how much the smallest of them did; 0 if none is like it."""
    here = _coordinates(work, kind)
    rates: dict[tuple[float, ...], float] = {}
    smallest = math.inf
    for probed in probes:
        there = _coordinates(probed.work, kind)
        if len(there) == len(here) and all(abs(a - b) <= _ALIKE for a, b in zip(here[1:], there[1:], strict=True)):
            # Of probes of one shape the best counts: the others read from farther away.
            rates[there] = max(rates.get(there, 0.0), probed.rate)
            smallest = min(smallest, amount(probed.work))
    if not rates:
        return 0.0, smallest
    # What is larger than any probe comes from as far as the largest.
    sizes = [there[0] for there in rates]
    size = min(max(here[0], min(sizes)), max(sizes))
    return _mean(_shares([(math.dist((size, *here[1:]), there), rate) for there, rate in rates.items()])), smallest


def _mean(rates: Iterable[tuple[float, float]]) -> float:
    """Return the mean of rates by what each counts, in logarithms."""
    return math.exp(sum(share * math.log(rate) for share, rate in rates))


def _coordinates(work: Work, kind: str) -> tuple[float, ...]:
    """Return where a shape lies among those of its kind: its amount, then all else the rate depends on."""
    product = work.product
    if product is None:
        return _log(work.elements), *(_log(min(size, _LONG)) for size in work.inner)
    size = _log(product.multiply_accumulates)
    if kind == "depthwise":
        # A stride shows in how much more is read than written.
        return (
            size,
            _log(min(product.count * product.n, _MANY_CHANNELS)),
            _log(work.read_bytes / max(1, work.written_bytes)),
        )
    return size, _log(min(product.n, _LONG)), _log(min(product.k, _LONG))


def _log(size: float) -> float:
    return round(math.log2(max(1, size)), 3)


def amount(work: Work) -> int:
    """Return how much there is to do: operations where matrices are multiplied, else bytes."""
    return 2 * work.multiply_accumulates or work.bytes


def place(work: Work) -> tuple[float, ...]:
    """Return where a shape lies among shapes, whatever the type."""
    product = work.product
    if product is None:
        return (math.log2(max(1, work.elements)),)
    sizes = (product.m, product.n, product.k, product.count)
    # Kernels compute whole vectors of columns: what fills its last one is not like what does not.
    return *(math.log2(max(1, size)) for size in sizes), float(product.n % _COLUMNS != 0)


def nearest(probes: Sequence[ProbeResult], work: Work) -> list[tuple[float, ProbeResult]]:
    """Return the probes whose shapes are nearest, each with what it counts: the nearer the more, 1 in all."""
    here = place(work)
    alike = [probed for probed in probes if (probed.work.product is None) == (work.product is None)]
    near = sorted(((math.dist(here, place(probed.work)), probed) for probed in alike), key=lambda found: found[0])
    return _shares(near[:_NEAREST])


def _shares(near: Sequence[tuple[float, T]]) -> list[tuple[float, T]]:
    """Return what each counts by its distance: the nearer the more, 1 in all."""
    counts = [(1 / (0.01 + distance * distance), what) for distance, what in near]
    whole = sum(count for count, _ in counts)
    return [(count / whole, what) for count, what in counts]


def roofs_path(cpu: str) -> Path:
    """Return where the roofs of a CPU are kept on this machine."""
    return roofs_directory() / f"{slug(cpu)}.json"


def slug(cpu: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", cpu.lower()).strip("_") or "unknown"


def sealed(roofs: Roofs) -> Roofs:
    """Return roofs with a hash of what they say: a damaged number would be a number, too."""
    return msgspec.structs.replace(roofs, sha256=_said(msgspec.json.encode(roofs)))


def roofs_bytes(roofs: Roofs) -> bytes:
    """Return roofs as JSON, with their hash."""
    return files.json_bytes(sealed(roofs))


def _said(data: bytes) -> str:
    """Return a hash of what a file of roofs says beside its hash, however it is laid out."""
    fields = {name: value for name, value in msgspec.json.decode(data).items() if name != "sha256"}
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()


def read_roofs(path: Path) -> Roofs:
    roofs = files.read_json(path, Roofs, "roofs")
    check_roofs(roofs, files.read_bytes(path, "roofs"), path)
    return roofs


def check_roofs(roofs: Roofs, data: bytes, path: Path) -> None:
    """Refuse roofs that are not what was measured; `data` is the JSON that they were read from."""
    if roofs.sha256 and roofs.sha256 != _said(data):
        raise InputError(f"roofs {path} have changed since they were measured", "Run `sme2-kit roofs` again.")


def known_roofs(cpu: str) -> Roofs | None:
    """Return the roofs of a CPU, if they were ever measured."""
    path = roofs_path(cpu)
    if not os.path.lexists(path):
        return None
    if not files.is_file(path):
        raise InputError(f"roofs {path} are not a file", "Remove it, and run `sme2-kit roofs` again.")
    return read_roofs(path)
