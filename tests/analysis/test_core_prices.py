"""What a program takes on an Arm core is told from its .pte alone, and held against runs that were not fitted to."""

import statistics
from functools import cache

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from benchmarks.core_runs import CoreRun, breakdown_of, entry_of, read_runs
from benchmarks.operator_prices import Predicted, fit, predict
from model_profiling.analysis.sme2.core_prices import CorePrices, core_prices, on_core, unpriced
from model_profiling.analysis.sme2.target import Target, kit_targets, rate_dtype
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.work import Product, Work

MOST_ERROR, MOST_POINTS, NETWORKS = 0.15, 5.0, 20


@cache
def runs() -> tuple[CoreRun, ...]:
    return tuple(read_runs().runs)


@cache
def held() -> list[Predicted]:
    return [predict(core_prices(), run) for run in runs() if run.role == "held"]


def test_the_prices_of_the_kit_are_those_that_the_fitted_runs_tell() -> None:
    """Nothing of the networks that are held out is in them but the range that they were off by."""
    every = read_runs()
    known = core_prices()
    again = fit(every)
    assert [(p.where, p.operator, p.element) for p in again.prices] == [
        (p.where, p.operator, p.element) for p in known.prices
    ]
    for mine, theirs in zip(again.prices, known.prices, strict=True):
        assert mine.ns == pytest.approx(theirs.ns, rel=1e-2)
    names = {run.network for run in every.runs if run.role == "held"}
    assert not names & set(known.fitted_to)


def test_networks_that_are_held_out_take_what_is_predicted() -> None:
    found = held()
    assert len({each.run.network for each in found}) >= NETWORKS
    assert statistics.median(abs(each.error) for each in found) <= MOST_ERROR
    points = [statistics.fmean(each.share_errors) for each in found if each.share_errors]
    assert len(points) >= NETWORKS / 2 and statistics.median(points) <= MOST_POINTS


def gains(breakdown: Breakdown, target: Target, rest: float, end: str) -> float:
    """What SME2 gains on the whole if it takes every product that is no depthwise convolution, at an end of a range."""
    off = on = 0.0
    for entry in breakdown.instances:
        product = entry.category in ("CONV", "GEMM")
        ms = entry.ms if product else entry.ms * rest
        known = product and entry.kind != "depthwise" and rate_dtype(entry.work) in target.dtypes
        gain = target.gain(entry) if known else None
        off, on = off + ms, on + ms / (getattr(gain, end) if gain is not None else 1.0)
    return off / on


@pytest.mark.parametrize("target", kit_targets(), ids=lambda target: target.name)
def test_a_program_and_its_run_on_the_core_predict_ranges_that_overlap(target: Target) -> None:
    """What an x86 machine says of a program, and what a Neoverse-N1 says that measured it."""
    prices, compared = core_prices(), 0
    for run in runs():
        if run.role == "fitted" and any(operator.us is not None for operator in run.operators):
            measured = breakdown_of(run)
            if unpriced(measured):
                continue
            modelled = on_core(measured, msgspec.structs.replace(prices, features=[*prices.features, "i8mm"]))
            low, high = target.rest
            ends = [(low, prices.rest_low, "high"), (high, prices.rest_high, "low")]
            mine = [gains(modelled, target, rest * more, end) for rest, more, end in ends]
            theirs = [gains(measured, target, rest, end) for rest, _, end in ends]
            assert min(mine) <= max(theirs) and min(theirs) <= max(mine), run.network
            compared += 1
    assert compared >= 5


SIZES = st.integers(1, 512)


@settings(max_examples=20, deadline=None)
@given(SIZES, SIZES, SIZES, st.sampled_from(["fp32", "fp16", "qint8"]), st.sampled_from(["m", "n", "k"]))
def test_a_larger_product_takes_no_less(m: int, n: int, k: int, element: str, which: str) -> None:
    prices: CorePrices = core_prices()
    like = next(o for run in runs() for o in run.operators if o.kind == "fully connected" and o.work is not None)

    def ns(sizes: dict[str, int]) -> float:
        product = Product(**sizes)
        macs = product.multiply_accumulates
        work = Work(element, product.n * product.k, product.m * product.k, product.m * product.n, product, macs)
        return prices.ns(entry_of(msgspec.structs.replace(like, work=work)))

    sizes = {"m": m + 1, "n": n, "k": k}
    assert 0 < ns(sizes) <= ns({**sizes, which: 2 * sizes[which]})
