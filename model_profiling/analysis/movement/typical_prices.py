"""What operators take where nothing was measured: prices of an ordinary core, to hold two programs of a model against
each other.

Each is a median over the traces of benchmarks/advice_networks.py. They give no latency: what both programs have
cancels, and what is left says which way a change goes.
"""

from math import prod

from model_profiling.analysis.movement.candidates import (
    ALIKE,
    CALLS,
    FREE,
    PRODUCTS,
    bytes_of,
    mnk,
    parsed,
    step_counts,
)
from model_profiling.formats.graph_terms import base_name
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.store.artifacts import StepChange

# Nanoseconds for each byte that is read or written: of nodes of XNNPACK, and of ExecuTorch's own operators.
_NODES = {
    **{"Add": 0.03, "Copy": 0.03, "StaticTranspose": 0.05, "StaticMean": 0.05, "Div": 0.05, "Hardswish": 0.03},
    **{"Sigmoid": 0.06, "Tanh": 0.06, "Gelu": 0.06, "Exp": 0.06, "Softmax": 0.13, "SquareRoot": 0.05, "Rsqrt": 0.05},
}
_PORTABLE = {
    **dict.fromkeys(("expand_copy", "repeat", "select_copy", "slice_copy", "cat", "permute_copy", "clone"), 0.15),
    **dict.fromkeys(("split_copy", "split_with_sizes_copy", "unbind_copy", "squeeze_copy", "unsqueeze_copy"), 0.05),
    **dict.fromkeys(("view_copy", "_clone_dim_order"), 0.05),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "_native_batch_norm_legit"), 0.33),
    **dict.fromkeys(("add", "sub", "mul", "div", "_to_dim_order_copy", "_to_copy"), 0.3),
}
_OTHER = {True: 0.05, False: 0.8}
# Of each operator, whatever its size; of ExecuTorch's calls; and of a multiply-accumulate. A product with fewer columns
# than a tile has takes as long as with a tile full.
_EACH_NS = {True: 300.0, False: 500.0}
_CALL_NS = {CALLS[False]: 600.0, CALLS[True]: 6000.0}
_PRODUCT_NS, _DEPTHWISE_NS, _PORTABLE_PRODUCT_NS, _TILE = 0.04, 0.1, 0.6, 8
_PORTABLE_PRODUCTS = ("bmm", "mm", "addmm", "convolution", "linear")


def typical_ns(flow: DataFlow) -> float:
    """Return what a program would take, roughly, on an ordinary core."""
    return sum(count * _price(kind) for kind, count in step_counts(flow).items())


def _price(kind: StepChange) -> float:
    if kind.op in _CALL_NS:
        return _CALL_NS[kind.op]
    if kind.op in FREE:
        return 0.0
    if kind.op == "DepthwiseConv2d":
        return _EACH_NS[True] + _DEPTHWISE_NS * prod(parsed(kind.outputs[0])[1]) * prod(parsed(kind.inputs[1])[1][:-1])
    if kind.op in PRODUCTS:
        m, n, k = mnk(kind)
        return _EACH_NS[True] + _PRODUCT_NS * m * max(n, _TILE) * k
    name = base_name(kind.op)
    if not kind.delegated and name in _PORTABLE_PRODUCTS:
        return _EACH_NS[False] + _PORTABLE_PRODUCT_NS * prod(mnk(kind))
    rates = _NODES if kind.delegated else _PORTABLE
    rate = rates.get(ALIKE.get(kind.op, kind.op) if kind.delegated else name, _OTHER[kind.delegated])
    return _EACH_NS[kind.delegated] + rate * bytes_of(kind)
