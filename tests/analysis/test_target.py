"""Targets: their numbers have sources, and gains follow from them as the published rates do."""

import functools
import math
import operator as operator_module
import re
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from model_profiling.analysis.roofs.roof_rates import Measurement, ProbeResult, Roofs
from model_profiling.analysis.sme2.gains import Gain
from model_profiling.analysis.sme2.target import MeasuredTarget, Target, kit_targets, rate_dtype, read_target, targets
from model_profiling.analysis.timing.breakdown import InstanceTime, Spread
from model_profiling.analysis.timing.work import Product, Work
from model_profiling.base.errors import InputError

BYTES = {"fp32": 4, "fp16": 2, "qint8": 1}
SIZES = st.integers(2, 4096)


def m4() -> Target:
    target = read_target("apple_m4")
    assert isinstance(target, Target)
    return target


def work_of(product: Product, element: str = "fp32") -> Work:
    size, count = BYTES[element], product.count
    weights, read, written = (
        size * count * a * b for a, b in ((product.k, product.n), (product.m, product.k), (product.m, product.n))
    )
    return Work(element, weights, read, written, product, product.multiply_accumulates)


def operator(work: Work | None, kind: str = "fully connected", ms: float = 1.0) -> InstanceTime:
    return InstanceTime("op #1", "op", "GEMM", kind, "delegated", "", "", 0, 0, ms, 0.5, Spread(ms, 0, ms), work=work)


def gained(product: Product, element: str = "fp32", threads: int = 1) -> Gain:
    gain = m4().gain(operator(work_of(product, element)), threads)
    assert gain is not None
    return gain


@pytest.mark.parametrize("name", targets())
def test_every_number_of_a_target_has_a_kind_and_a_source(name: str) -> None:
    target = read_target(name)
    assert isinstance(target, Target) and target.name == name and target.about
    figures = target.figures()
    assert len(figures) > 6 and all(figure.source and figure.unit for figure in figures.values())
    assert all(figure.least <= figure.value <= figure.most for figure in figures.values())
    assert {"units", "vector_bits", "sme2 fp32", "neon fp32", "threads sharing"} <= figures.keys()
    assert target.sme2.keys() == target.neon.keys() == set(target.dtypes)
    assert msgspec.json.encode(target).decode().count('"source"') == len(figures) + len(target.shapes)


def test_the_published_rates_by_shape_come_out() -> None:
    target = m4()
    assert len(target.shapes) >= 7
    prepacked = msgspec.structs.replace(target, pack_ns=None)
    for shape in target.shapes:
        product = Product(shape.m, shape.n, shape.k)
        ns = prepacked.sme2_ns(product, "fp32")
        assert 2 * product.multiply_accumulates / ns == pytest.approx(shape.gflops_prepacked, rel=0.08), shape


def test_what_does_not_fill_its_tiles_gains_less() -> None:
    full, tail = gained(Product(64, 64, 64)), gained(Product(65, 65, 65))
    assert tail.times == pytest.approx(full.times / 2, rel=0.15)
    assert "of its tiles used" in tail.why and "of its tiles used" not in full.why


def test_the_dtype_decides_the_gain_of_a_large_convolution() -> None:
    large = Product(16384, 128, 1152)
    gains = {}
    for element in BYTES:
        gain = m4().gain(msgspec.structs.replace(operator(work_of(large, element), "conv2d"), category="CONV"))
        assert gain is not None
        gains[element] = gain.times
    assert gains["fp32"] > gains["fp16"] > gains["qint8"] > 1
    # The published peaks of one core are 17.7, 8.9 and 4.4 apart; packing and reading out take their part.
    assert 10 < gains["fp32"] < 22 and 6 < gains["fp16"] < 11 and 3 < gains["qint8"] < 5.5


def test_a_short_product_is_held_back_by_its_results_on_both_sides() -> None:
    # Published: NEON's rate at 16 cubed is what it is elsewhere, within its range.
    product, target = Product(16, 16, 16), m4()
    neon, _ = target.times(work_of(product), product, "fp32")
    assert 0.95 * 84 <= 2 * product.multiply_accumulates / neon <= 100
    # With next to nothing to multiply, only the unused part of the tiles is lost.
    narrow = Product(744, 9, 7)
    assert gained(narrow, "qint8").times > 0.9 * target.filled(narrow)


def test_what_is_read_again_from_beyond_the_cache_takes_time() -> None:
    """A fully connected layer reads its packed rows for each tile of columns, which costs nothing in the cache."""
    target, products = m4(), [Product(m, 4096, 1024) for m in (512, 65536)]
    plain = msgspec.structs.replace(target, near_gb_s=None)
    near, far = (target.sme2_ns(product, "fp32") / plain.sme2_ns(product, "fp32") for product in products)
    assert near == pytest.approx(1) and far > 1.2
    rates = [target.bandwidth(size << 20) for size in (1, 4, 8, 12, 16, 64)]
    assert rates == sorted(rates, reverse=True) and rates[1] > 900 and rates[4] == pytest.approx(263, rel=0.01)


def test_one_row_gains_what_memory_allows() -> None:
    gain = gained(Product(1, 8192, 8192))
    assert gain.times == pytest.approx(1) and "memory bound" in gain.why


@given(SIZES, SIZES, SIZES, st.sampled_from(sorted(BYTES)))
def test_a_gain_lies_in_its_range_and_says_why(m: int, n: int, k: int, element: str) -> None:
    gain = gained(Product(m, n, k), element)
    assert 0 < gain.low <= gain.times <= gain.high < math.inf
    assert gain.why.startswith(("fp", "int8"))


@given(st.sampled_from(kit_targets()), SIZES, SIZES, SIZES, st.integers(2, 16), st.sampled_from(sorted(BYTES)))
def test_threads_share_the_units(target: Target, m: int, n: int, k: int, threads: int, element: str) -> None:
    entry = operator(work_of(Product(m, n, k), element))
    alone, several, more = (target.gain(entry, count) for count in (1, threads, threads + 1))
    if alone is None or several is None or more is None:
        assert rate_dtype(entry.work) not in target.dtypes
        return
    assert 0 < several.low <= several.times <= several.high < math.inf
    assert ("NEON is faster" in several.why) == (several.times < 1)
    assert (f"{threads} threads share" in several.why) == (threads > target.units.value)
    if threads > target.units.value:
        assert several.times < alone.times or "memory bound" in several.why
        # NEON has a unit for each thread, and there is no more of SME2.
        assert more.times <= several.times and more.low <= several.low and more.high <= several.high


@given(SIZES, SIZES, SIZES, st.integers(2, 16))
def test_a_machine_of_which_nothing_is_known_of_threads_has_linear_ones(m: int, n: int, k: int, threads: int) -> None:
    plain = msgspec.structs.replace(m4(), threads=None, near_gb_s=None)
    entry = operator(work_of(Product(m, n, k)))
    alone, several = plain.gain(entry), plain.gain(entry, threads)
    assert alone is not None and several is not None and several.times == pytest.approx(alone.times / threads)


def test_as_many_threads_as_units_lose_nothing_and_many_more_lose_to_neon() -> None:
    entry = operator(work_of(Product(2048, 2048, 2048)))
    pro, phone = read_target("apple_m4_pro"), read_target("arm_phone")
    alone, both = pro.gain(entry), pro.gain(entry, 2)
    assert alone is not None and both is not None and both.low < alone.times < both.high
    assert both.times == pytest.approx(alone.times, rel=0.05)
    many = phone.gain(entry, 8)
    assert many is not None and many.high < 1 and "8 threads share 1 unit: together 37% to 102%" in many.why


def test_one_row_on_several_threads_is_still_bound_by_memory() -> None:
    gain = gained(Product(1, 8192, 8192), threads=4)
    assert gain.times == gain.high == pytest.approx(1) and gain.low == pytest.approx(1 / 4)


@pytest.mark.parametrize("name", [*targets(), "a target of a user"])
def test_a_dtype_that_a_target_does_not_know_is_refused(name: str) -> None:
    target = m4() if name not in targets() else read_target(name)
    assert isinstance(target, Target)
    if name not in targets():
        target = msgspec.structs.replace(target, cpu=name, neon={"fp32": target.neon["fp32"]})
    for element, dtype in (("fp32", "fp32"), ("fp16", "fp16"), ("qint8", "int8")):
        gain = target.gain(operator(work_of(Product(64, 64, 64), element)))
        assert (gain is not None) == (dtype in target.dtypes)
        if dtype not in target.dtypes:
            with pytest.raises(InputError, match=f"in {dtype} on {re.escape(target.cpu)} is not known"):
                target.refuse({dtype})
        target.refuse({dtype, "fp32"})


FIGURES = ["vector_bits", "units", "near_gb_s", "far_gb_s", "near_bytes", "readout_ns", "pack_ns"]
PLACES: list[tuple[str, ...]] = [(name,) for name in FIGURES]
PLACES += [(side, "fp32") for side in ("sme2", "neon")] + [("threads", part) for part in ("scaling", "sharing", "neon")]
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -440.0, 1e308, 5e-324, 1.0, 1e6])


@given(st.sampled_from(PLACES), st.sampled_from(["value", "low", "high"]), NUMBERS, SIZES, st.integers(1, 64))
def test_any_number_of_a_target_gives_a_gain_or_is_refused_by_its_name(
    place: tuple[str, ...], field: str, number: float, size: int, threads: int
) -> None:
    content = msgspec.json.decode(msgspec.json.encode(m4()))
    functools.reduce(operator_module.getitem, place, content)[field] = number
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "target.json"
        path.write_bytes(msgspec.json.encode(content))
        try:
            target = read_target(path)
        except InputError as error:
            assert f"{' '.join(place)} must be" in error.message
            return
    for product in (Product(size, size, size), Product(1, size, size)):
        gain = target.gain(operator(work_of(product)), threads)
        assert gain is not None and 0 < gain.low <= gain.times <= gain.high < math.inf


@pytest.mark.parametrize(
    "size", ["", "MiB", "x MiB", "0 MiB", "-1 MiB", "nan MiB", "1e400 MiB", "1073741824 MiB", 2**49]
)
def test_a_size_of_memory_that_cannot_be_reckoned_with_is_refused(size: str | float, tmp_path: Path) -> None:
    content = msgspec.json.decode(msgspec.json.encode(m4()))
    if isinstance(size, str):
        content["load_gb_s"][size] = content["far_gb_s"]
    else:
        content["near_bytes"]["value"] = size
        content["near_bytes"].pop("high", None)
    (tmp_path / "target.json").write_bytes(msgspec.json.encode(content))
    with pytest.raises(InputError, match=r"load_gb_s|near_bytes must be 1 to"):
        read_target(tmp_path / "target.json")


@pytest.mark.parametrize("field", ["best_ms", "median_ms", "mad_ms"])
@given(number=NUMBERS, size=st.integers(-(2**63), 2**64 - 1))
def test_any_number_of_a_roof_gives_a_gain_or_is_refused_by_its_name(field: str, number: float, size: int) -> None:
    roofs = msgspec.json.decode(msgspec.json.encode(measured_roofs(4.0)))
    roofs["measurements"][0]["probes"][0] |= {field: number}
    roofs["measurements"][0]["probes"][0]["work"] |= {"read_bytes": size}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roofs.json"
        path.write_bytes(msgspec.json.encode(roofs))
        try:
            gain = read_target(path).gain(operator(work_of(Product(64, 64, 64))))
        except InputError as error:
            assert any(f".probes[0].{name}`" in error.message for name in (field, "work.read_bytes"))
            return
    assert gain is None or 0 < gain.low <= gain.times <= gain.high < math.inf


def test_what_a_target_does_not_know_is_not_guessed(tmp_path: Path) -> None:
    assert m4().gain(operator(None)) is None
    assert read_target("arm_phone").gain(operator(work_of(Product(1, 64, 64)))) is None
    with pytest.raises(InputError, match="no target nowhere"):
        read_target("nowhere")
    with pytest.raises(InputError, match=r"arm_c1 any more: it mixed two cores; use arm_phone .* or arm_c1_pro"):
        read_target("arm_c1")
    (tmp_path / "broken.json").write_text('{"kind": "target", "name": 5}')
    with pytest.raises(InputError, match="not what the kit writes"):
        read_target(tmp_path / "broken.json")


def measured_roofs(gain: float) -> Roofs:
    shapes = [Product(2**size, 64, 64) for size in range(3, 9)]

    def measurement(active: list[str], faster: float) -> Measurement:
        probes = [
            ProbeResult("FC (NC, F32)", "GEMM", "fully connected", work_of(shape), shape.m / 100 / faster, 1.0, 0.0)
            for shape in shapes
        ]
        return Measurement("fp32", 1, active, [] if "sme2" in active else ["sme2"], 10, 0.0, probes)

    both = [measurement(["dot", "sme2"], gain), measurement(["dot"], 1.0)]
    return Roofs("Some CPU", "aarch64", "linux", "2026-01-01", "1", "1.5.1", {}, both)


@given(st.floats(1.5, 20))
def test_the_roofs_of_a_machine_with_sme2_are_a_target(gain: float) -> None:
    target = MeasuredTarget(measured_roofs(gain))
    target.refuse({"fp32"})
    found = target.gain(operator(work_of(Product(100, 64, 64))))
    assert found is not None and found.times == pytest.approx(gain)
    with pytest.raises(InputError, match="not measured in fp16"):
        target.refuse({"fp16"})


def test_a_roofs_file_is_read_as_a_target(tmp_path: Path) -> None:
    path = tmp_path / "roofs.json"
    path.write_bytes(msgspec.json.encode(measured_roofs(4.0)))
    target = read_target(path)
    assert isinstance(target, MeasuredTarget) and target.cpu == "Some CPU"


def test_roofs_of_two_versions_of_executorch_are_not_mixed() -> None:
    older, newer = measured_roofs(4.0), measured_roofs(8.0)
    newer = msgspec.structs.replace(newer, measurements=newer.measurements[:1])
    assert len(older.merged(newer).measurements) == 2
    upgraded = msgspec.structs.replace(newer, executorch="9.9")
    assert older.merged(upgraded) == upgraded
