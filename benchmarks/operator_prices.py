"""Fit the prices of an Arm core to runs on it, and hold them against other runs (targets/cores, docs/forecast.md).

    python -m benchmarks.operator_prices            # fit to the runs in benchmarks/neoverse_n1.json, write the prices
    python -m benchmarks.operator_prices --show     # and print what is predicted of every run

What operators took tells their prices; those that no such run has are fitted to the latencies of networks, starting
from `ASSUMED`. Runs that are held out have no part in it.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.core_runs import DATA, CoreOperator, CoreRun, CoreRuns, entry_of, inside_of, read_runs
from model_profiling.analysis.sme2.core_prices import (
    CORE,
    DEPTHWISE,
    DIRECTORY,
    ONE_ROW,
    OTHER,
    ROWS,
    TRANSPOSE,
    CorePrices,
    Price,
    amounts,
    core_prices,
    priced_as,
)
from model_profiling.analysis.timing.profile import Where
from model_profiling.base import files
from model_profiling.base.printing import tell

PRODUCTS = ("fully connected", "conv2d", "batch matmul", "deconvolution", "pointwise")
_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*PRODUCTS, DEPTHWISE), ("calls", "multiply-accumulates", "results")),
    **{ONE_ROW: ("calls", "multiply-accumulates"), "delegate call": ("calls", "inside")},
    **{TRANSPOSE: ("calls", "values", "runs", "values by doublings"), ROWS: ("calls", "values", "runs")},
}
# Of what only runs of short rows were measured, the price of a byte is not fitted: that of a plain copy.
_GIVEN = {"Copy": {"bytes": 0.03}}
_BY["Copy"] = ("runs",)
# What the clock of a trace cannot tell: an operator's time is read in whole microseconds.
_CLOCK_NS = 1500.0
# Of an operator that reads and writes fewer bytes, its start may be most of its time.
_LARGE, _SMALL = 16 << 10, 2 << 10
_BYTES = {"fp32": 4, "fp16": 2}
# Prices to start from where no run has an operator's time, by what is fitted to latencies: all of a group together.
_MOVING: tuple[str, ...] = (
    "slice_copy",
    "select_copy",
    "split_copy",
    "split_with_sizes_copy",
    "unbind_copy",
    "squeeze_copy",
    "cat",
    "full",
)
_MOVING += ("unsqueeze_copy", "view_copy", "full_like", "embedding", "expand_copy", "permute_copy", "clone", "repeat")
_BY_ROW = ("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training")
_FUNCTIONS = ("sigmoid", "tanh", "exp", "silu", "elu", "erf", "_softmax", "_log_softmax", "sin", "cos", "log", "pow")
_SLOW = ("Softmax", "TanH", "Exp", "ELU", "Log", "Sine", "Cosine", "Square Root", "Resize Bilinear")
_POOLING = ("Max Pooling", "Average Pooling")
_SOURCE = "fitted to latencies of networks, with all of its group: "
_CALLS = "assumed: a traced call takes longer, by the clock that is read around what is in it"
# How much a group's assumed prices count beside one network's latency.
_STRENGTH = 0.4


def _assumed() -> list[tuple[str, Price]]:
    def price(where: Where, name: str, by_byte: float, element: str = "fp32", call: float = 300.0) -> Price:
        return Price(where, name, element, {"calls": call, "bytes": by_byte})

    # Portable kernels convert each value of fp16.
    sizes = {"fp32": 1.0, "fp16": 3.0}
    found = [("moves values", price("portable", name, 0.1)) for name in _MOVING]
    for element, factor in sizes.items():
        found += [("computes by row", price("portable", name, 0.3 * factor, element)) for name in _BY_ROW]
        found += [("computes functions", price("portable", name, 1.5 * factor, element)) for name in _FUNCTIONS]
        found.append(("computes", price("portable", OTHER, 0.3 * factor, element)))
    found += [("slow functions", price("delegated", name, 0.2, call=0)) for name in _SLOW]
    found += [("pooling", price("delegated", name, 0.1, call=0)) for name in _POOLING]
    found.append(("other operators of XNNPACK", price("delegated", OTHER, 0.04, call=0)))
    calls = {"delegate call": {"calls": 500.0}, "operator call": {"calls": 100.0}}
    found += [("", Price("runtime", name, "", ns, source=_CALLS)) for name, ns in calls.items()]
    found.append(("", Price("runtime", "method", "", {"calls": 2000.0}, source=_CALLS)))
    return found


def prices_of(runs: Sequence[CoreRun]) -> list[Price]:
    """Return the prices of all operators that runs have times of."""
    found: dict[tuple[Where, str, str], list[tuple[dict[str, float], float]]] = defaultdict(list)
    for run in runs:
        for operator in run.operators:
            if operator.us is not None and operator.where != "runtime":
                name, element = _key(operator, run)
                counts = amounts(entry_of(operator), inside_of(operator))
                # Where activations are quantized as it runs, a product packs its left side.
                counts["quantizes"] = float(element.startswith("qdint8") and name in PRODUCTS)
                found[operator.where, name, element].append((counts, operator.us * 1e3 / operator.count))
    prices = []
    for (where, name, element), rows in sorted(found.items()):
        sizes = [counts.get("bytes", 0.0) for counts, _ in rows]
        # What is small takes as long as its start: nothing is known of larger ones.
        if name in _BY or max(sizes) >= (_LARGE if max(sizes) < 4 * min(sizes) else _SMALL) or not max(sizes):
            prices.append(Price(where, name, element, _fitted(name, rows), len(rows)))
    # Portable kernels take each value by itself: as long in one type as in another.
    alone = [price for price in prices if price.where == "portable" and price.element in _BYTES]
    for price in alone:
        for element, size in _BYTES.items():
            if not any((other.operator, other.element) == (price.operator, element) for other in alone):
                ns = {
                    name: each * (_BYTES[price.element] / size if name == "bytes" else 1)
                    for name, each in price.ns.items()
                }
                prices.append(Price("portable", price.operator, element, ns, 0, f"as in {price.element}, by value"))
    return prices


def _key(operator: CoreOperator, run: CoreRun) -> tuple[str, str]:
    name, element = priced_as(entry_of(operator))
    return name, element + ("" if "dot" in run.features or not element.startswith("q") else " without dot")


def _fitted(name: str, rows: Sequence[tuple[dict[str, float], float]]) -> dict[str, float]:
    by = _BY.get(name, ("calls", "bytes"))
    given = _GIVEN.get(name, {})
    sizes = [counts.get("bytes", 0.0) for counts, _ in rows]
    if name not in _BY and max(sizes) < 4 * min(sizes):
        by = ("bytes",)
    if rows[0][0].get("quantizes"):
        by = ("multiply-accumulates", "results", "left")
    table = np.array([[counts.get(each, 0.0) for each in by] for counts, _ in rows])
    times = np.array([ns - sum(each * counts.get(of, 0.0) for of, each in given.items()) for counts, ns in rows])
    weights = 1 / np.maximum(times, _CLOCK_NS)
    found = _nonnegative(table * weights[:, None], times * weights)
    return {**given, **{each: float(f"{value:.3g}") for each, value in zip(by, found, strict=True) if value}}


def _nonnegative(table: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return what each column counts, none less than nothing, so that they add up to the times as nearly as can be."""
    scale = np.maximum(np.linalg.norm(table, axis=0), 1e-12)
    table, found = table / scale, np.zeros(table.shape[1])
    left = times.copy()
    for _ in range(5000):
        for column in range(len(found)):
            step = max(-found[column], float(table[:, column] @ left))
            found[column] += step
            left -= step * table[:, column]
    result: npt.NDArray[np.float64] = found / scale
    return result


def _ns(price: Price | None, operator: CoreOperator) -> float:
    counts = amounts(entry_of(operator), inside_of(operator))
    return sum(each * counts.get(name, 0.0) for name, each in price.ns.items()) if price is not None else 0.0


def fit(runs: CoreRuns) -> CorePrices:
    """Return the prices that the fitted runs tell."""
    fitted = [run for run in runs.runs if run.role == "fitted"]
    known = prices_of(fitted)
    groups: list[tuple[str, Price]] = _assumed()
    for price in known:
        # int8 runs the same kernels as int8-dynamic, with another ending: as fast but for a factor.
        if price.element.startswith("qdint8"):
            ns = {name: each for name, each in price.ns.items() if name != "left"}
            element = price.element.replace("qdint8", "qint8")
            static = msgspec.structs.replace(price, element=element, operators=0, ns=ns)
            names: tuple[str, ...] = PRODUCTS if price.operator in PRODUCTS else (price.operator,)
            groups += [(static.element, msgspec.structs.replace(static, operator=name)) for name in names]
    for price in known:
        if price.operator in ("fully connected", "conv2d") and not price.element.startswith("q"):
            alike = ("batch matmul", "pointwise") if price.operator == "fully connected" else ("deconvolution",)
            more = [
                msgspec.structs.replace(price, operator=name, operators=0, source="as " + price.operator)
                for name in alike
            ]
            groups += [("", price) for price in more]
    taken = {(price.where, price.operator, price.element) for price in known}
    groups = [(group, price) for group, price in groups if (price.where, price.operator, price.element) not in taken]
    start = CorePrices(runs.cpu, runs.executorch, [], "", [], 1.0, 1.0, [*known, *(price for _, price in groups)])
    group_of = {(price.where, price.operator, price.element): group for group, price in groups}
    fitted_groups = sorted({group for group, _ in groups if group})
    table, times = [], []
    for run in fitted:
        row = dict.fromkeys(["", *fitted_groups], 0.0)
        for operator in run.operators:
            own = start.price(operator.where, *_key(operator, run))
            if own is not None:
                group = group_of.get((own.where, own.operator, own.element), "")
                row[group] += _ns(own, operator) * operator.count / 1e6 / run.ms
        # Traced runs have a clock's time in their calls, which a latency has not.
        if all(operator.us is None for operator in run.operators):
            table.append([row[name] for name in fitted_groups])
            times.append(1 - row[""])
    ridge = _STRENGTH * np.eye(len(fitted_groups))
    factors = _nonnegative(np.vstack([table, ridge]), np.concatenate([times, _STRENGTH * np.ones(len(fitted_groups))]))
    factor = {"": 1.0} | dict(zip(fitted_groups, factors.tolist(), strict=True))
    fitted_prices = [
        msgspec.structs.replace(
            price,
            ns={name: float(f"{each * factor[group]:.3g}") for name, each in price.ns.items()},
            source=price.source or _SOURCE + group,
        )
        for group, price in groups
    ]
    found = msgspec.structs.replace(
        start,
        features=["dot", "fp16arith"],
        source="benchmarks/operator_prices.py, from benchmarks/neoverse_n1.json",
        fitted_to=sorted({run.network for run in fitted}),
        prices=[*known, *fitted_prices],
    )
    low, high = _rest_range(found, [run for run in runs.runs if run.role == "held"])
    return msgspec.structs.replace(found, rest_low=low, rest_high=high)


class Predicted(msgspec.Struct, frozen=True):
    """A run as prices predict it: milliseconds and shares in percent."""

    run: CoreRun
    ms: float
    shares: dict[str, float]

    @property
    def error(self) -> float:
        return self.ms / self.run.ms - 1

    @property
    def products(self) -> float:
        return self.shares.get("CONV", 0.0) + self.shares.get("GEMM", 0.0)

    @property
    def share_errors(self) -> list[float]:
        """How many points each known share is off; that of CONV and GEMM together where no other is known."""
        if self.run.shares:
            return [abs(self.shares.get(name, 0.0) - share) for name, share in self.run.shares.items()]
        return [] if self.run.products is None else [abs(self.products - self.run.products)]


def predict(prices: CorePrices, run: CoreRun) -> Predicted:
    """Return what a program takes by prices, from what is in its .pte."""
    by_category: dict[str, float] = defaultdict(float)
    for operator in run.operators:
        for each in widened(operator, run):
            price = prices.price(each.where, *_key(each, run))
            by_category[each.category] += _ns(price, each) * each.count / 1e6
    whole = sum(by_category.values())
    return Predicted(run, whole, {name: 100 * ms / whole for name, ms in by_category.items()})


def widened(operator: CoreOperator, run: CoreRun) -> list[CoreOperator]:
    """Return an operator as a CPU without fp16 arithmetic runs it: in fp32, twice the bytes."""
    work = operator.work
    if "fp16arith" in run.features or work is None or work.element != "fp16" or operator.where != "delegated":
        return [operator]
    sizes = {name: 2 * getattr(work, name) for name in ("weight_bytes", "read_bytes", "written_bytes")}
    return [msgspec.structs.replace(operator, work=msgspec.structs.replace(work, element="fp32", **sizes))]


# Runs that the page names: predicted this far off, or more.
_FAR_OFF = 0.25


def modelled_table() -> str:
    """Return how far off the predictions of held out runs are, by dtype, as Markdown; `--show` prints every run."""
    runs, prices = read_runs(), core_prices()
    held = [predict(prices, run) for run in runs.runs if run.role == "held"]
    rows = ["| dtype | runs held out | median error | worst |", "|---|---:|---:|---:|"]
    for dtype in sorted({found.run.dtype for found in held}):
        each = [abs(found.error) for found in held if found.run.dtype == dtype]
        rows.append(f"| {dtype} | {len(each)} | {statistics.median(each):.1%} | {max(each):.0%} |")
    errors = sorted(abs(found.error) for found in held)
    points = [statistics.fmean(found.share_errors) for found in held if found.share_errors]
    networks = len({found.run.network for found in held})
    far = sorted((found for found in held if abs(found.error) >= _FAR_OFF), key=lambda found: -abs(found.error))
    named = ", ".join(f"{_named(found.run)} {found.error:+.0%} of {found.run.ms:.3f} ms" for found in far)
    nine = f"nine in ten below {errors[int(0.9 * len(errors))]:.0%}, worst {errors[-1]:.0%}"
    summary = (
        f"All {len(held)} runs of {networks} networks: median error **{statistics.median(errors):.1%}**, {nine}. "
        f"A quarter or more off: {named}. Shares of the time, {len(points)} runs: median "
        f"**{statistics.median(points):.1f} points** off, worst {max(points):.0f}."
    )
    return "\n".join([*rows, "", summary])


def _named(run: CoreRun) -> str:
    without = [feature for feature in ("dot", "fp16arith") if feature not in run.features]
    return f"{run.network} {run.dtype}" + (f" without {', '.join(without)}" if without else "")


def _rest_range(prices: CorePrices, runs: Iterable[CoreRun]) -> tuple[float, float]:
    """Return how far what multiplies no matrices was off in nine of ten of these runs: parts of what was predicted."""
    ratios = []
    for run in runs:
        found = predict(prices, run)
        products = run.products if run.products is not None else sum(run.shares.get(n, 0.0) for n in ("CONV", "GEMM"))
        if products and run.role == "held":
            measured, predicted = (100 - products) / products, (100 - found.products) / found.products
            ratios.append(measured / predicted)
    low, *_, high = statistics.quantiles(ratios, n=20, method="inclusive")
    return round(min(low, 1.0), 2), round(max(high, 1.0), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--show", action="store_true", help="print what is predicted of every run")
    args = parser.parse_args()
    runs = read_runs(args.data)
    prices = fit(runs)
    files.write_json(DIRECTORY / f"{CORE}.json", prices)
    for run in runs.runs if args.show else ():
        found = predict(prices, run)
        off = "" if not found.share_errors else f"shares off {statistics.fmean(found.share_errors):.1f} points"
        named = f"{run.role:<7} {run.network:<40} {run.dtype:<13} {' '.join(run.features):<14}"
        tell(f"{named} {found.ms:9.3f} {run.ms:9.3f} {found.error:+7.1%} {off}\n")


if __name__ == "__main__":
    main()
