"""Published results of machines with SME2: which of them targets are derived from, and which are left as tests.

What a target is derived from is never a test of it. The tables here are part of docs/forecast.md, and a test holds
the page to them.
"""

import dataclasses
import statistics
from collections.abc import Callable

import msgspec

from benchmarks.operator_prices import modelled_table
from model_profiling.analysis.sme2.target import Target, kit_targets, read_target
from model_profiling.analysis.timing.work import Product
from model_profiling.base.errors import InputError


@dataclasses.dataclass(frozen=True)
class Result:
    """A published result. `tests` says what it is a test of, where no target is derived from it."""

    what: str
    machine: str
    source: str
    tests: str = ""


RESULTS = {
    "m4_microbenchmarks": Result(
        "outer products, loads and stores by instruction", "Apple M4", "tzakharko/m4-sme-exploration, reports 01 and 02"
    ),
    "kleidiai_by_shape": Result("KleidiAI 1.30 by shape, fp32", "Apple M4", "UlasSertan/MaxMulSK"),
    "eigen_one_thread": Result("Eigen's fp32 products on one thread", "Apple M4 Pro", "Eigen !3160"),
    "llama_fp32_threads": Result("Llama-3.2-1B prefill, fp32, 1 to 8 threads", "Apple M4 Pro", "llama.cpp#24414"),
    "llama_q4_0_threads": Result("Llama-3.2-1B prefill, Q4_0, 1 to 8 threads", "Apple M4 Pro", "llama.cpp#20070"),
    "eigen_threads": Result("Eigen's fp32 products on 12 threads", "Apple M4 Pro", "Eigen !3164"),
    "litert_fully_connected": Result(
        "fully connected 100 x 640 to 1280, fp32, LiteRT",
        "an Android phone, not named",
        "Arm's learning path litert-sme, page 4",
    ),
    "onnxruntime_resnet50v2": Result(
        "ResNet50v2, fp32, onnxruntime",
        "C1-Pro at 2.0 GHz (vivo X300)",
        "Arm's learning path performance_onnxruntime_kleidiai_sme2",
    ),
    "mtgemm_loads": Result("loads by size, one thread", "Apple M4 Pro", "tesch1/MTGEMM-A, results/ext"),
    "mtgemm_kleidiai": Result(
        "KleidiAI fp32 with both sides packed, 16 to 4096 cubed, one thread",
        "Apple M4 Pro",
        "tesch1/MTGEMM-A, results/ext/kleidiai_*.txt",
        "the rate by shape in fp32 (below)",
    ),
    "onnxruntime_m4": Result(
        "MobileNetV1 and DeepLabV3 in fp32 and fp16, BERT-tiny fp16, onnxruntime",
        "Apple M4",
        "microsoft/onnxruntime#24346",
        "whole networks (below)",
    ),
    "llama_c1_pro": Result(
        "Llama-3.2-3B, Q4_0, one thread: prefill 7.9 to 12.3, decode 5.9 to 9.1 tokens/s",
        "Arm C1-Pro",
        "published of llama.cpp with KleidiAI",
        "nothing: int8 and int4 rates of a C1-Pro are not published, and so not predicted",
    ),
    "squeeze_sam": Result(
        "SqueezeSAM by category, fp16 and int8, one core", "a phone, not named", "Arm", "gains and shares (below)"
    ),
    "squeeze_sam_threads": Result(
        "SqueezeSAM, fp16 and int8, four cores", "a phone, not named", "Arm", "what threads share (below)"
    ),
}


@dataclasses.dataclass(frozen=True)
class Series:
    """Rates with SME2 by number of threads; `together` is what as many threads as units reach, if no point says it."""

    result: str
    name: str
    unit: str
    units: int
    rates: dict[int, float]
    together: float = 0.0
    neon: dict[int, float] = dataclasses.field(default_factory=dict)

    def gain(self, threads: int) -> float | None:
        """Return the gain over NEON on so many threads, as part of the gain on one; None if NEON is not published."""
        if not self.neon:
            return None
        return self.rates[threads] / self.neon[threads] / (self.rates[1] / self.neon[1])


# llama.cpp's series are without its later option to run NEON beside SME, which XNNPACK does not have.
SERIES = (
    Series(
        "llama_fp32_threads",
        "Llama-3.2-1B, fp32",
        "tokens/s",
        2,
        {1: 457.57, 2: 892.35, 4: 561.52, 6: 452.55, 8: 609.17},
        neon={1: 19.70, 2: 37.78, 4: 77.28, 6: 104.57, 8: 122.40},
    ),
    Series(
        "llama_q4_0_threads",
        "Llama-3.2-1B, Q4_0",
        "tokens/s",
        2,
        {1: 295.64, 2: 547.14, 4: 483.73, 6: 424.92, 8: 556.80},
    ),
    Series("eigen_threads", "Eigen, fp32, 1024 cubed", "GFLOP/s", 2, {12: 1030}, 2729),
    Series("eigen_threads", "Eigen, fp32, 2048 cubed", "GFLOP/s", 2, {12: 1362}, 2847),
)
# Milliseconds of SqueezeSAM on one and on four cores, SME2 off and on, and of CONV and GEMM on one core with SME2.
SQUEEZE_SAM_CORES = {"fp16": ((1163, 298), (374, 193), 106), "int8": ((556, 304), (195, 180), 78)}


def squeeze_sam_series() -> list[Series]:
    """Return CONV and GEMM of SqueezeSAM on SME2, if all else takes as much less on four cores as the whole without."""
    found = []
    for dtype, (one, four, matrix) in SQUEEZE_SAM_CORES.items():
        left = four[1] - (one[1] - matrix) * four[0] / one[0]
        rates = {1: 1000 / matrix, 4: 1000 / left}
        found.append(Series("squeeze_sam_threads", f"SqueezeSAM, {dtype}, CONV and GEMM", "times a second", 1, rates))
    return found


def points(series: Series, target: Target) -> list[tuple[int, float, float, tuple[float, float]]]:
    """Return threads, rate, part of what they would reach without sharing, and the range that the target gives."""
    figures = target.threads
    assert figures is not None, f"{target.name} does not say what threads share"
    found = []
    for threads, rate in series.rates.items():
        if threads == 1:
            continue
        if threads <= series.units:
            part, figure = rate / (threads * series.rates[1]), figures.scaling
        else:
            part, figure = rate / (series.together or series.rates[series.units]), figures.sharing
        found.append((threads, rate, part, (figure.least, figure.most)))
    return found


def gain_range(target: Target, threads: int) -> tuple[float, float]:
    """Return the range of the gain on several threads, as part of the gain on one, where nothing else holds it back."""
    (most_neon, least), (least_neon, most) = target.thread_gains(threads, -1, 1), target.thread_gains(threads, 1, -1)
    return least / most_neon, most / least_neon


def thread_table() -> str:
    """Return the published points of each series, and whether the range of the target was taken from them."""
    target = read_target("apple_m4_pro")
    assert isinstance(target, Target) and target.threads is not None
    rows = ["| | threads : units | part | gain, of that on one thread | |", "|---|---|---|---|---|"]
    for series in (*SERIES, *squeeze_sam_series()):
        role = "source" if series.result in target.derived_from else "test"
        found = points(series, target)
        threads = ", ".join(str(many) for many, *_ in found)
        parts = ", ".join(f"{part:.2f}" for _, _, part, _ in found)
        gained = [gain for gain in (series.gain(many) for many, *_ in found) if gain is not None]
        gains = ", ".join(f"{gain:.2f}" for gain in gained) or "not published"
        rows.append(f"| {series.name} | {threads} : {series.units} | {parts} | {gains} | {role} |")
    scaling, sharing = target.threads.scaling, target.threads.sharing
    shared = [p for s in SERIES if not s.together for t, _, p, _ in points(s, target) if t > s.units]
    ranges = (
        f"Range of the part: {scaling.least:g} to {scaling.most:g} while each thread has a unit, else "
        f"{sharing.least:g} to {sharing.most:g}. Median of llama.cpp's points with more threads than units: "
        f"{_median(shared)}."
    )
    return "\n".join([*rows, "", ranges])


def _median(parts: list[float]) -> str:
    return f"{statistics.median(parts):.2f}"


# GFLOP/s by m, k, n: KleidiAI's own loop, and packing of both sides in the time.
MTGEMM = {
    **{(size,) * 3: rate for size, rate in ((16, 58), (32, 377), (64, 760), (128, 1137), (512, 1660), (1024, 1741))},
    **{(2048,) * 3: 1415, (4096,) * 3: 1061, (64, 2112, 7168): 637},
}


def both_packed_rate(target: Target, m: int, k: int, n: int) -> float:
    """Return the rate of KleidiAI by itself: it packs both sides and reads the right one for each tile of rows."""
    assert target.pack_ns is not None
    product = Product(m, n, k)
    left, right = 4 * m * k, 4 * k * n
    alone = msgspec.structs.replace(target, near_gb_s=None).sme2_ns(product, "fp32")
    # Packed is what was read and written once, from and to where it fits.
    packed = right * target.pack_ns.value + sum(target.again_ns(size, 2) for size in (left, right))
    return 2 * product.multiply_accumulates / (alone + packed + target.again_ns(right, -(-m // target.side)))


def refuse_test(target: Target, result: str) -> None:
    """Refuse to compare a target with a published result that it was derived from."""
    if result in target.derived_from:
        raise InputError(
            f"{target.name} was derived from {result}: agreement with it says nothing",
            "Compare it with a result that derived_from of the target does not name.",
        )


def mtgemm_table() -> str:
    """Return the fp32 test: published rates of KleidiAI beside those that a target's numbers give."""
    target = read_target("apple_m4_pro")
    assert isinstance(target, Target)
    refuse_test(target, "mtgemm_kleidiai")
    rows = ["| m x k x n | published, GFLOP/s | predicted | error |", "|---|---:|---:|---:|"]
    errors = []
    for (m, k, n), rate in MTGEMM.items():
        found = both_packed_rate(target, m, k, n)
        errors.append(abs(found / rate - 1))
        rows.append(f"| {m} x {k} x {n} | {rate} | {found:.0f} | {found / rate - 1:+.0%} |")
    return "\n".join([*rows, "", f"Median absolute error {statistics.median(errors):.0%}, worst {max(errors):.0%}."])


def target_table() -> str:
    """Return the targets of the kit: what is known of each."""
    rows = [
        "| target | machine | dtypes | fp32, SME2 : NEON (GFLOP/s) | gain in fp32 | SME units |",
        "|---|---|---|---:|---:|---:|",
    ]
    for target in kit_targets():
        sme2, neon = target.sme2["fp32"], target.neon["fp32"]
        rows.append(
            f"| `{target.name}` | {target.cpu} | {', '.join(target.dtypes)} | {sme2.value:g} : {neon.value:g} | "
            f"{sme2.value / neon.value:.1f}x ({sme2.least / neon.most:.1f} to {sme2.most / neon.least:.1f}) | "
            f"{target.units.value:g}, {target.units.kind} |"
        )
    return "\n".join(rows)


def result_table() -> str:
    """Return every published result, and what it is here: a source of targets or a test."""
    rows = ["| published | of | by | here |", "|---|---|---|---|"]
    targets = kit_targets()
    for name, result in RESULTS.items():
        derived = [f"`{target.name}`" for target in targets if name in target.derived_from]
        named = "all targets" if len(derived) == len(targets) > 1 else ", ".join(derived)
        here = f"source of {named}" if derived else f"test of {result.tests}"
        rows.append(f"| {result.what} | {result.machine} | {result.source} | {here} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "targets": target_table,
    "results": result_table,
    "threads": thread_table,
    "mtgemm": mtgemm_table,
    "modelled": modelled_table,
}
