"""Roofs and breakdowns of known numbers: a CPU that multiplies and moves as fast as it is told to."""

import random
from collections.abc import Iterable, Sequence

from model_profiling.analysis.roofs.roof_rates import Measurement, ProbeResult, Roofs
from model_profiling.analysis.roofs.roofline import roofline
from model_profiling.analysis.timing.breakdown import Breakdown, CategoryTime, InstanceTime, OperatorTime, Spread
from model_profiling.analysis.timing.profile import Part
from model_profiling.analysis.timing.work import Product, Work
from model_profiling.report.charts.roofline import RooflineSide

CPU = "Forged Core"
_CATEGORIES: dict[str, Part] = {
    "conv2d": "CONV",
    "depthwise": "CONV",
    "fully connected": "GEMM",
    "transpose": "Data Movement",
    "copy": "Data Movement",
    "binary": "Elementwise",
}


def product_work(m: int, n: int, k: int, count: int = 1, element: str = "fp16") -> Work:
    """The work of a matrix product of fp16 numbers."""
    sizes = (2 * n * k * count, 2 * m * k * count, 2 * m * n * count)
    return Work(element, *sizes, Product(m, n, k, count), m * n * k * count)


def moving_work(size: int, element: str = "fp16") -> Work:
    return Work(element, 0, size // 2, size - size // 2)


def probed(kind: str, work: Work, ms: float, operator: str = "") -> ProbeResult:
    return ProbeResult(operator or kind, _CATEGORIES[kind], kind, work, ms, ms * 1.01, ms * 0.001)


def forged_roofs(
    cpu: str = CPU,
    dtype: str = "fp16",
    active: Sequence[str] = (),
    threads: int = 1,
    gops: float = 100.0,
    gbps: float = 10.0,
    disabled: Sequence[str] = (),
    element: str = "fp16",
) -> Roofs:
    """Roofs in which the best product and convolution run at `gops`, a depthwise one at half, and copies at `gbps`."""
    large, deep, size = product_work(1024, 256, 256, 1, element), product_work(3136, 1, 9, 64, element=element), 1 << 22
    probes = [
        probed("fully connected", large, 2 * large.multiply_accumulates / gops / 1e6),
        probed("fully connected", product_work(16, 16, 16, 1, element), 0.004),
        probed("conv2d", large, 2 * large.multiply_accumulates / gops / 1e6),
        probed("depthwise", deep, 4 * deep.multiply_accumulates / gops / 1e6),
        probed("copy", moving_work(size), size / gbps / 1e6),
        probed("transpose", moving_work(size), 2 * size / gbps / 1e6, "Transpose (ND, X16)"),
    ]
    entry = Measurement(dtype, threads, list(active), list(disabled), 30, 0.1, probes)
    return Roofs(cpu, "aarch64", "linux", "2026-01-02T03:04:05+00:00", "0", "1.5.1", {"cpu": cpu}, [entry])


def forged_breakdown(operators: Iterable[tuple[str, Work | None, float]]) -> Breakdown:
    """Delegated operators, each with its kind, its work and its milliseconds."""
    every = list(operators)
    whole = sum(ms for *_, ms in every)
    instances = [
        InstanceTime(
            *(f"{kind} #{number}", kind, _CATEGORIES[kind], kind, "delegated", "F16", "", 0, 0),
            *(ms, ms / whole if whole else 0.0, Spread(ms, 0.0, ms)),
            work=work,
        )
        for number, (kind, work, ms) in enumerate(every, 1)
    ]
    categories = []
    for name in dict.fromkeys(_CATEGORIES.values()):
        ms = [entry.ms for entry in instances if entry.category == name]
        categories.append(CategoryTime(name, sum(ms), sum(ms) / whole if whole else 0.0, len(ms)))
    added = []
    for kind in dict.fromkeys(kind for kind, *_ in every):
        ms = [time for name, _, time in every if name == kind]
        part = sum(ms) / whole if whole else 0.0
        spread = Spread(sum(ms), 0.0, sum(ms))
        where = (kind, _CATEGORIES[kind], kind, "delegated", "F16", "")
        added.append(OperatorTime(*where, len(ms), sum(ms), part, spread))  # type: ignore[arg-type]
    return Breakdown(10, whole, categories, {"delegated": 1.0}, added, instances)


def forged_side(label: str, operators: int, gops: float = 100.0, seed: int = 1, above: bool = True) -> RooflineSide:
    """An experiment of products and depthwise convolutions under forged roofs; with `above` some are faster."""
    chance = random.Random(seed)
    found = []
    for _ in range(operators):
        kind = chance.choice(["conv2d", "fully connected", "depthwise"])
        sizes = chance.choice([49, 196, 784, 3136]), chance.choice([16, 64, 256]), chance.choice([64, 576])
        work = product_work(3136, 1, 9, 64) if kind == "depthwise" else product_work(*sizes)
        best = 2 * work.multiply_accumulates / gops / 1e6 * (2 if kind == "depthwise" else 1)
        found.append((kind, work, max(best * chance.uniform(0.5 if above else 1.3, 6), 0.02)))
    breakdown, rates = forged_breakdown(found), forged_roofs(gops=gops).rates((), 1, "fp16")
    assert rates is not None
    return RooflineSide(label, breakdown, roofline(breakdown, rates, CPU, "2026-01-02"))
