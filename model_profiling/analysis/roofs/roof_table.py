"""The roofs of a CPU in a few numbers: the best of each kind of work, and how sure that is."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.roofs import roof_rates
from model_profiling.runner.features import feature_label

# What is read and written at most: fits the first cache of most CPUs, the second, and none that one core has alone.
SMALL, MIDDLE = 32 << 10, 512 << 10
# XNNPACK reads its clock in whole microseconds.
_HALF_A_TICK_MS = 0.0005


class BestRate(msgspec.Struct, frozen=True):
    """The best rate of some probes (G(FL)OP/s or GB/s), how sure it is, and what the probe did.

    `spread_percent` is the MAD of its executions, or what the clock leaves open if that is more.
    """

    rate: float
    spread_percent: float
    probe: str


class RoofRow(msgspec.Struct, frozen=True):
    """One measurement. Bandwidths are for sizes up to 32 KiB, up to 512 KiB, and above; None was not measured."""

    dtype: str
    threads: int
    disabled: list[str]
    executions: int
    matrix: BestRate | None
    convolution: BestRate | None
    depthwise: BestRate | None
    copy: list[BestRate | None]
    transpose: list[BestRate | None]


class KindRow(msgspec.Struct, frozen=True):
    """The best rate of one kind of operator with all features, by the type that it computes in."""

    kind: str
    unit: Literal["GOP/s", "GB/s"]
    best: dict[str, BestRate]


def kind_rows(roofs: roof_rates.Roofs) -> list[KindRow]:
    """Return the kinds that operators are compared with, sorted, without products of whole matrices."""
    fewest = min((entry.threads for entry in roofs.measurements), default=1)
    found: dict[str, dict[str, list[roof_rates.ProbeResult]]] = {}
    for entry in roofs.measurements:
        if entry.threads == fewest and not entry.disabled:
            for (kind, element), probes in roof_rates.Rates(entry).timed.items():
                found.setdefault(kind, {}).setdefault(element, []).extend(probes)
    rows = []
    for kind in sorted(found.keys() - {roof_rates.PRODUCT}, key=_in_order):
        best = {element: rate for element, probes in found[kind].items() if (rate := _best(probes)) is not None}
        computes = any(p.work.multiply_accumulates for probes in found[kind].values() for p in probes)
        rows.append(KindRow(kind, "GOP/s" if computes else "GB/s", best))
    return rows


def _in_order(kind: str) -> tuple[str, int]:
    """Return the sort key of a kind: alphabetical, and windows by their size."""
    words, _, size = kind.casefold().rpartition(" ")
    return (words, int(size)) if size.isdecimal() else (kind.casefold(), 0)


def roof_rows(roofs: roof_rates.Roofs) -> list[RoofRow]:
    return [_row(entry) for entry in roofs.measurements]


def series_name(entry: roof_rates.Measurement, others: Sequence[roof_rates.Measurement]) -> str:
    """Return `fp16`, `fp16, fp16 arithmetic off`, `fp16, 2 threads`: as much as tells a measurement from the others."""
    off = " and ".join(map(feature_label, entry.disabled))
    threads = f"{entry.threads} threads" if len({other.threads for other in others} | {1}) > 1 else ""
    return ", ".join(filter(None, (entry.dtype, f"{off} off" if off else "", threads)))


def _row(entry: roof_rates.Measurement) -> RoofRow:
    timed = [p for p in entry.probes if p.best_ms >= roof_rates.SHORTEST_MS and p.where == "delegated"]

    def computing(*kinds: str) -> BestRate | None:
        every = [p for p in timed if p.kind in kinds and p.work.multiply_accumulates]
        return _best(p for p in every if roof_rates.roof_kind(p.operator, p.kind, p.work) != roof_rates.GROUPED)

    def moving(kind: str) -> list[BestRate | None]:
        moved = [p for p in timed if p.kind == kind]
        bounds = ((0, SMALL), (SMALL, MIDDLE), (MIDDLE, math.inf))
        return [
            _best((p for p in moved if above < p.work.bytes <= most), lambda p: p.bandwidth) for above, most in bounds
        ]

    return RoofRow(
        dtype=entry.dtype,
        threads=entry.threads,
        disabled=entry.disabled,
        executions=entry.executions,
        matrix=computing("fully connected", "batch matmul"),
        convolution=computing("conv2d"),
        depthwise=computing("depthwise"),
        copy=moving("copy"),
        transpose=moving("transpose"),
    )


def _best(
    probes: Iterable[roof_rates.ProbeResult],
    rate: Callable[[roof_rates.ProbeResult], float] = lambda probed: probed.rate,
) -> BestRate | None:
    found = max(probes, key=rate, default=None)
    if found is None:
        return None
    spread = found.mad_ms / found.median_ms if found.median_ms else 0.0
    percent = 100 * max(spread, _HALF_A_TICK_MS / found.best_ms)
    return BestRate(rate(found), percent, f"{found.operator}, {found.work.size}")
