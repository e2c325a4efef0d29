"""What operators take where nothing was measured: prices of an ordinary core, to hold two programs of a model against
each other.

Each is a median over the traces of many networks (benchmarks/operator_prices.py). They give no latency: what both
programs have cancels, and what is left says which way a change goes.
"""

from math import prod

from model_profiling.analysis.movement.candidates import (
    ALIKE,
    CALLS,
    FREE,
    PRODUCTS,
    TILE,
    bytes_of,
    mnk,
    moved_at_once,
    parsed,
    step_counts,
)
from model_profiling.formats.graph_terms import base_name
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.store.artifacts import StepChange

# Nanoseconds for each byte that is read or written, by nodes of XNNPACK and by ExecuTorch's own operators: those that
# only move values, and those that compute, which take longer by this factor where they convert each value of fp16.
_NODES = {
    **{"Add": 0.03, "Copy": 0.03, "Hardswish": 0.03, "AvgPooling2d": 0.03, "LeakyReLU": 0.04},
    **{"Sigmoid": 0.06, "Tanh": 0.06, "Gelu": 0.06, "Exp": 0.06, "Softmax": 0.15, "StaticResizeBilinear2D": 0.15},
}
_MOVING = {
    **dict.fromkeys(("expand_copy", "repeat", "cat", "permute_copy", "clone", "index", "index_select"), 0.15),
    **dict.fromkeys(("split_copy", "split_with_sizes_copy", "unbind_copy", "select_copy", "slice_copy"), 0.04),
    **dict.fromkeys(("squeeze_copy", "unsqueeze_copy", "view_copy", "full", "full_like", "embedding"), 0.04),
    **dict.fromkeys(("_to_dim_order_copy", "_to_copy"), 0.9),
}
_COMPUTING = {
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "_native_batch_norm_legit"), 0.32),
    **dict.fromkeys(("add", "sub", "mul", "div"), 0.1),
    **dict.fromkeys(("mean", "sum", "amax"), 0.6),
    **{"_softmax": 3.0, "elu": 2.6, "avg_pool2d": 18.0, "_adaptive_avg_pool2d": 2.0, "upsample_nearest2d": 1.0},
}
_HALF = 3.0
_OTHER = {True: 0.05, False: 0.8}
# Of each operator, whatever its size; of ExecuTorch's calls; and of a multiply-accumulate. A product with fewer columns
# than a tile has takes as long as with a tile full.
_EACH_NS = {True: 1200.0, False: 500.0}
_CALL_NS = {CALLS[False]: 600.0, CALLS[True]: 3000.0}
_VIEW_NS = 300.0
# Of a transpose: of each value in blocks of a tile and more, in smaller ones, and in rows that stay together; of each
# block, and of each row.
_IN_TILES_NS, _IN_PARTS_NS, _IN_ROWS_NS, _BLOCK_NS, _ROW_NS = 0.27, 1.2, 0.15, 20.0, 5.0
_PRODUCT_NS, _DEPTHWISE_NS, _PORTABLE_PRODUCT_NS = 0.04, 0.1, 0.6
_PORTABLE_PRODUCTS = ("bmm", "mm", "addmm", "convolution", "linear")


def typical_ns(flow: DataFlow) -> float:
    """Return what a program would take, roughly, on an ordinary core."""
    return sum(count * _price(kind) for kind, count in step_counts(flow).items())


def _price(kind: StepChange) -> float:
    if kind.op in _CALL_NS:
        return _CALL_NS[kind.op]
    if kind.op in FREE:
        return _VIEW_NS
    shape = parsed(kind.inputs[0])[1] if kind.inputs else ()
    if kind.permutation and len(shape) == len(kind.permutation):
        return _EACH_NS[kind.delegated] + _transpose_ns(shape, kind.permutation)
    if kind.op == "DepthwiseConv2d":
        return _EACH_NS[True] + _DEPTHWISE_NS * prod(parsed(kind.outputs[0])[1]) * prod(parsed(kind.inputs[1])[1][:-1])
    if kind.op in PRODUCTS:
        m, n, k = mnk(kind)
        return _EACH_NS[True] + _PRODUCT_NS * m * max(n, TILE) * k
    name = base_name(kind.op)
    if not kind.delegated and name in _PORTABLE_PRODUCTS:
        return _EACH_NS[False] + _PORTABLE_PRODUCT_NS * prod(mnk(kind))
    return _EACH_NS[kind.delegated] + _rate(kind, name) * bytes_of(kind)


def _transpose_ns(shape: tuple[int, ...], permutation: tuple[int, ...]) -> float:
    """Return what a transpose takes: its last dimensions decide how many values are moved at once."""
    count, (rows, columns) = prod(shape), moved_at_once(shape, permutation)
    if rows == 1:
        return _IN_ROWS_NS * count + _ROW_NS * count / max(columns, 1)
    each = _IN_TILES_NS if min(rows, columns) >= TILE else _IN_PARTS_NS
    return each * count + _BLOCK_NS * count / max(rows * columns, 1)


def _rate(kind: StepChange, name: str) -> float:
    """Return what a byte takes."""
    if kind.delegated:
        return _NODES.get(ALIKE.get(kind.op, kind.op), _OTHER[True])
    if name in _MOVING:
        return _MOVING[name]
    half = any(tensor.startswith("fp16 ") for tensor in (*kind.inputs, *kind.outputs))
    return _COMPUTING.get(name, _OTHER[False]) * (_HALF if half else 1.0)
