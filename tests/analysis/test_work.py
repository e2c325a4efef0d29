"""The work of an operator, held against what its shapes say."""

from math import prod

import hypothesis.strategies as st
import pytest
from hypothesis import given

from model_profiling.analysis.graph.graph import ModelGraph
from model_profiling.analysis.graph.operator_work import works
from model_profiling.analysis.timing.categories import OperatorClass
from model_profiling.analysis.timing.profile import Instance
from model_profiling.analysis.timing.work import Product, Work
from model_profiling.formats.graph_terms import CONSTANT
from model_profiling.formats.pte.dataflow import DataFlow, FlowStep, FlowTensor
from model_profiling.formats.pte.xnnpack_graph import XnnpackNode, XnnpackValue

SIZES = st.integers(1, 40)
BYTES = {"fp32": 4, "fp16": 2, "qint8": 1}


# An operator of a trace.
_NAME = "Convolution (NHWC, F32) IGEMM"


def instance(dtype: str = "") -> Instance:
    return Instance(_NAME, _NAME, "delegated", 0, 0, OperatorClass("CONV", "conv2d", dtype))


def worked(node: XnnpackNode, dtype: str = "", fixed: bool = True) -> dict[int, Work]:
    inputs = tuple(FlowTensor(CONSTANT if v.constant else -1, v.dtype, v.shape) for v in node.inputs)
    outputs = tuple(FlowTensor(0, v.dtype, v.shape) for v in node.outputs)
    flow = DataFlow((FlowStep(0, node, node.op, inputs, outputs, node.permutation),), (), fixed)
    return works([instance(dtype)], ModelGraph(flow, {0: 0}, {0: 0}))


def convolution(
    op: str, image: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], groups: int
) -> XnnpackNode:
    values = (
        XnnpackValue("fp32", image, False),
        XnnpackValue("fp32", weight, True),
        XnnpackValue("fp32", (out[-1],), True),
    )
    return XnnpackNode(0, op, 1, values, (XnnpackValue("fp32", out, False),), weight[1:3], groups)


@given(side=SIZES, window=st.integers(1, 5), cin=SIZES, cout=SIZES, groups=st.integers(1, 4))
def test_a_convolution_is_the_product_that_its_multiply_accumulates_say(
    side: int, window: int, cin: int, cout: int, groups: int
) -> None:
    node = convolution(
        "Conv2d",
        (1, side, side, cin * groups),
        (cout * groups, window, window, cin),
        (1, side, side, cout * groups),
        groups,
    )
    work = worked(node)[0]
    assert work.product == Product(side * side, cout, window * window * cin, groups)
    assert work.multiply_accumulates == node.multiply_accumulates == work.product.multiply_accumulates
    assert work.weight_bytes == 4 * (prod(node.inputs[1].shape) + cout * groups)
    assert work.read_bytes == 4 * prod(node.inputs[0].shape) and work.written_bytes == 4 * prod(node.outputs[0].shape)
    assert work.intensity == pytest.approx(2 * work.multiply_accumulates / work.bytes)


@given(side=SIZES, window=st.integers(1, 5), channels=SIZES)
def test_a_depthwise_convolution_is_one_small_product_per_channel(side: int, window: int, channels: int) -> None:
    shape = (1, side, side, channels)
    node = convolution("DepthwiseConv2d", shape, (1, window, window, channels), shape, 1)
    work = worked(node)[0]
    assert work.product == Product(side * side, 1, window * window, channels)
    assert work.multiply_accumulates == node.multiply_accumulates


@given(side=SIZES, window=st.integers(1, 5), filters=SIZES)
def test_many_filters_over_one_channel_are_one_product(side: int, window: int, filters: int) -> None:
    image, out = (1, side, side, 1), (1, side, side, filters)
    node = convolution("DepthwiseConv2d", image, (1, window, window, filters), out, 1)
    assert worked(node)[0].product == Product(side * side, filters, window * window)


@given(batch=SIZES, m=SIZES, n=SIZES, k=SIZES)
def test_batches_and_layers_are_products(batch: int, m: int, n: int, k: int) -> None:
    one, other, out = (
        XnnpackValue("fp16", (batch, m, k), False),
        XnnpackValue("fp16", (batch, k, n), False),
        (batch, m, n),
    )
    multiply = XnnpackNode(0, "BatchMatrixMultiply", 1, (one, other), (XnnpackValue("fp16", out, False),))
    assert worked(multiply)[0].product == Product(m, n, k, batch)
    layer = XnnpackNode(
        0, "FullyConnected", 1, (one, XnnpackValue("fp32", (n, k), True)), (XnnpackValue("fp16", out, False),)
    )
    work = worked(layer)[0]
    assert work.product == Product(batch * m, n, k)
    # XNNPACK packs weights into the type it computes in.
    assert work.weight_bytes == 2 * n * k


@given(shape=st.lists(SIZES, min_size=1, max_size=4), dtype=st.sampled_from(sorted(BYTES)))
def test_what_multiplies_nothing_has_bytes_and_no_intensity(shape: list[int], dtype: str) -> None:
    value = XnnpackValue(dtype, tuple(shape), False)
    work = worked(XnnpackNode(0, "Add", 1, (value, value), (value,)))[0]
    assert (work.read_bytes, work.written_bytes) == (2 * prod(shape) * BYTES[dtype], prod(shape) * BYTES[dtype])
    assert work.product is None and work.intensity is None and work.elements == 3 * prod(shape)


@pytest.mark.parametrize(
    ("op", "shapes", "out", "inner"),
    [
        ("Gelu", [(1, 8, 8, 16)], (1, 8, 8, 16), ()),
        ("Softmax", [(4, 100)], (4, 100), (100,)),
        ("Add", [(6, 8, 16), (6, 8, 16)], (6, 8, 16), ()),
        ("Add", [(6, 8, 16), (16,)], (6, 8, 16), (16,)),
        ("Multiply", [(6, 8, 16), (6, 8, 1)], (6, 8, 16), (16,)),
        ("Multiply", [(6, 8, 16), (6, 1, 1)], (6, 8, 16), (128,)),
        ("Multiply", [(6, 8, 16), (1,)], (6, 8, 16), (768,)),
        ("StaticSlice", [(6, 8, 16)], (6, 3, 16), (48,)),
        ("Concatenate2", [(6, 8, 16), (6, 8, 4)], (6, 8, 20), (4,)),
        ("StaticReshape", [(6, 8, 16)], (48, 16), ()),
    ],
)
def test_inner_loops_are_those_that_a_rate_depends_on(
    op: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], inner: tuple[int, ...]
) -> None:
    values = tuple(XnnpackValue("fp32", shape, False) for shape in shapes)
    work = worked(XnnpackNode(0, op, 1, values, (XnnpackValue("fp32", out, False),)))[0]
    assert work.inner == inner
    if op == "StaticSlice":
        assert work.read_bytes == work.written_bytes, "what is not cut out is not read"


@pytest.mark.parametrize(
    ("shape", "permutation", "inner"),
    [
        ((1, 3, 8, 10), (0, 2, 3, 1), (80, 3)),  # to channels-last: reads 80 in a row, writes 3
        ((1, 8, 10, 3), (0, 3, 1, 2), (3, 80)),
        ((1, 7, 4, 32), (0, 2, 1, 3), (32,)),  # heads and tokens: rows stay whole
        ((1, 1, 8, 16), (0, 2, 3, 1), ()),  # nothing moves
        ((5, 6, 7), (2, 1, 0), (7, 5)),
    ],
)
def test_a_transpose_has_the_rows_it_keeps_or_the_sizes_it_reads_and_writes_along(
    shape: tuple[int, ...], permutation: tuple[int, ...], inner: tuple[int, ...]
) -> None:
    out = XnnpackValue("fp32", tuple(shape[axis] for axis in permutation), False)
    node = XnnpackNode(0, "StaticTranspose", 1, (XnnpackValue("fp32", shape, False),), (out,), permutation=permutation)
    assert worked(node)[0].inner == inner


def test_fp16_that_is_computed_in_fp32_counts_as_fp32() -> None:
    value = XnnpackValue("fp16", (1, 8), False)
    layer = XnnpackNode(0, "FullyConnected", 1, (value, XnnpackValue("fp16", (8, 8), True)), (value,))
    assert worked(layer, "F16")[0].element == "fp16"
    wide = worked(layer, "F32")[0]
    assert (wide.element, wide.read_bytes, wide.weight_bytes) == ("fp32", 32, 256)
    # What the program has in fp32 is told from what it has in fp16.
    own = XnnpackValue("fp32", (1, 8), False)
    kept = XnnpackNode(0, "FullyConnected", 1, (own, XnnpackValue("fp32", (8, 8), True)), (own,))
    assert wide.program_element == "fp16" and worked(kept, "F32")[0].program_element == ""


def test_a_conversion_reads_one_type_and_writes_the_other() -> None:
    for one, other in (("fp32", "fp16"), ("fp16", "fp32"), ("fp32", "qint8")):
        work = worked(
            XnnpackNode(0, "Convert", 1, (XnnpackValue(one, (6,), False),), (XnnpackValue(other, (6,), False),))
        )[0]
        assert (work.read_bytes, work.written_bytes) == (6 * BYTES[one], 6 * BYTES[other])


def test_what_is_not_known_is_not_guessed() -> None:
    value = XnnpackValue("datatype 99", (4,), False)
    assert worked(XnnpackNode(0, "Add", 1, (value, value), (value,))) == {}
    known = XnnpackValue("fp32", (4,), False)
    # Sizes that are only known when it runs are upper bounds here.
    assert worked(XnnpackNode(0, "Add", 1, (known, known), (known,)), fixed=False) == {}
    assert works([instance()], None) == {}
