"""The roofs of a CPU in a few numbers: the best of each kind of work, and how sure that is."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from model_profiling.analysis.roofs import SHORTEST_MS, Measurement, Probed, Roofs
from model_profiling.runner.features import spoken

# What is read and written at most: fits the first cache of most CPUs, the second, and none that one core has alone.
SMALL, MIDDLE = 32 << 10, 512 << 10
# XNNPACK reads its clock in whole microseconds.
_HALF_A_TICK_MS = 0.0005


class Best(msgspec.Struct, frozen=True):
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
    matrix: Best | None
    convolution: Best | None
    depthwise: Best | None
    copy: list[Best | None]
    transpose: list[Best | None]


def roof_rows(roofs: Roofs) -> list[RoofRow]:
    return [_row(entry) for entry in roofs.measurements]


def series_name(entry: Measurement, others: Sequence[Measurement]) -> str:
    """`fp16`, `fp16, fp16 arithmetic off`, `fp16, 2 threads`: as much as tells a measurement from the others."""
    off = " and ".join(map(spoken, entry.disabled))
    threads = f"{entry.threads} threads" if len({other.threads for other in others} | {1}) > 1 else ""
    return ", ".join(filter(None, (entry.dtype, f"{off} off" if off else "", threads)))


def _row(entry: Measurement) -> RoofRow:
    timed = [p for p in entry.probes if p.best_ms >= SHORTEST_MS and p.where == "delegated"]

    def computing(*kinds: str) -> Best | None:
        return _best((p for p in timed if p.kind in kinds and p.work.multiply_accumulates), lambda p: p.rate)

    def moving(kind: str) -> list[Best | None]:
        bounds = ((0, SMALL), (SMALL, MIDDLE), (MIDDLE, None))
        return [
            _best((p for p in timed if p.kind == kind and _within(p.work.bytes, *bound)), lambda p: p.bandwidth)
            for bound in bounds
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


def _within(size: int, above: int, most: int | None) -> bool:
    return above < size and (most is None or size <= most)


def _best(probes: Iterable[Probed], rate: Callable[[Probed], float]) -> Best | None:
    found = max(probes, key=rate, default=None)
    if found is None:
        return None
    spread = found.mad_ms / found.median_ms if found.median_ms else 0.0
    return Best(rate(found), 100 * max(spread, _HALF_A_TICK_MS / found.best_ms), _named(found))


def _named(probed: Probed) -> str:
    product = probed.work.product
    if product is None:
        return f"{probed.operator}, {probed.work.bytes / 1024:.0f} KiB"
    return f"{probed.operator}, {product.m} x {product.k} by {product.k} x {product.n}"
