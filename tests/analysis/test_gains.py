"""Gains between two measurements of the same probes: what is like a probe gains what the probe did."""

import math

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from model_profiling.analysis.roofs.roof_rates import Measurement, ProbeResult, nearest
from model_profiling.analysis.sme2.gains import Switch
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.profile import Part, Where
from model_profiling.analysis.timing.work import Product, Work
from tests.analysis.test_target import operator
from tests.analysis.test_target import work_of as own_work

SHAPES = [Product(m, n, k) for m in (16, 256, 4096) for n in (32, 65, 256) for k in (32, 512)]
GAINS = st.lists(st.floats(0.5, 20), min_size=len(SHAPES), max_size=len(SHAPES))


def work_of(product: Product, element: str = "fp32") -> Work:
    """The work of an fp16 program's operator, widened where it is computed in fp32."""
    return msgspec.structs.replace(own_work(product, element), program_element="fp16" if element == "fp32" else "")


def measured(element: str, gains: list[float], active: list[str]) -> Measurement:
    probes = [
        ProbeResult(
            f"Fully Connected ({element})", "GEMM", "fully connected", work_of(shape, element), 1 / gain, 1.0, 0.0
        )
        for shape, gain in zip(SHAPES, gains, strict=True)
    ]
    moved = [
        ProbeResult(f"Transpose ({element})", "Data Movement", "transpose", moves(2**size, element), 1.0, 1.0, 0.0)
        for size in range(10, 20, 2)
    ]
    return Measurement("fp16", 1, active, [], 10, 0.0, [*probes, *moved])


def moves(elements: int, element: str) -> Work:
    size = {"fp16": 2, "fp32": 4}[element]
    return Work(element, 0, elements * size, elements * size, program_element="fp16" if element == "fp32" else "")


def switch(gains: list[float]) -> Switch:
    return Switch(measured("fp32", [1.0] * len(SHAPES), []), measured("fp16", gains, ["fp16arith"]))


def row(work: Work | None, kind: str, where: Where = "delegated", category: Part = "GEMM") -> Breakdown:
    entry = msgspec.structs.replace(operator(work, kind), where=where, category=category)
    return Breakdown(1, 1.0, [], {}, [], [entry])


@given(GAINS)
def test_an_operator_like_a_probe_gains_what_the_probe_did(gains: list[float]) -> None:
    both = switch(gains)
    for shape, gain in zip(SHAPES, gains, strict=True):
        found = both.gains(row(work_of(shape), "fully connected"))[0]
        assert found.times == pytest.approx(gain, rel=0.2 * max(map(abs, map(math.log, gains))) + 0.01)
        assert found.low <= found.times <= found.high


@given(GAINS, st.integers(1, 10**5), st.integers(1, 5000), st.integers(1, 5000))
def test_a_gain_lies_between_those_of_the_probes(gains: list[float], m: int, n: int, k: int) -> None:
    found = switch(gains).gains(row(work_of(Product(m, n, k)), "fully connected"))[0]
    assert min(gains) * 0.999 <= found.times <= max(gains) * 1.001


@given(st.integers(1, 10**5), st.integers(1, 5000), st.integers(1, 5000))
def test_the_nearest_probes_count_for_all(m: int, n: int, k: int) -> None:
    probes = measured("fp32", [1.0] * len(SHAPES), []).probes
    near = nearest(probes, work_of(Product(m, n, k)))
    assert sum(share for share, _ in near) == pytest.approx(1)
    assert all(probed.work.product for _, probed in near)


def test_what_is_not_switched_stays_and_says_so() -> None:
    both = switch([2.0] * len(SHAPES))
    places: tuple[tuple[Where, str], ...] = (("portable", "portable kernel"), ("runtime", "own time"))
    for where, words in places:
        found = both.gains(row(None, "reduction", where))[0]
        assert found.times == 1 and words in found.why
    unknown = both.gains(row(moves(1024, "fp32"), "sort"))[0]
    assert unknown.times == 1 and "not known" in unknown.why
    assert both.gains(row(moves(1024, "fp32"), "transpose", category="Data Movement"))[0].times == pytest.approx(1)


def test_conversions_go_where_nothing_is_widened_any_more() -> None:
    both = switch([2.0] * len(SHAPES))
    layer = row(work_of(SHAPES[0]), "fully connected").instances
    convert = row(None, "convert", category="Data Movement").instances
    breakdown = Breakdown(1, 2.0, [], {}, [], [*layer, *convert])
    gains = both.gains(breakdown)
    assert gains[1].times == math.inf and "goes" in gains[1].why
    assert gains[0].times == pytest.approx(2)
    # A conversion that no widened operator stands beside is the model's own.
    assert both.gains(Breakdown(1, 1.0, [], {}, [], convert))[0].times == 1


@given(GAINS, st.sampled_from(SHAPES))
def test_what_the_program_has_in_fp32_gains_nothing_by_fp16(gains: list[float], shape: Product) -> None:
    assert switch(gains).gains(row(own_work(shape, "fp32"), "fully connected"))[0].times == 1
