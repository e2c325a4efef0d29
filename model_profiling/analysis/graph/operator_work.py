"""The work of an operator: the matrix product it is, and the bytes it reads and writes; never guessed.

A convolution is counted as the product that its kernel computes: as many rows as there are output positions, and a row
as long as one position's window. All numbers are of one execution, as the .pte has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from model_profiling.analysis.timing.categories import RUN_IN_FP32
from model_profiling.analysis.timing.work import BITS, Product, Work
from model_profiling.base.dtypes import FLOATS
from model_profiling.formats.graph_terms import CONSTANT, base_name

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph
    from model_profiling.analysis.timing.profile import Instance
    from model_profiling.formats.pte.dataflow import FlowStep, FlowTensor
    from model_profiling.formats.pte.xnnpack_graph import XnnpackNode

# Which part of what they are given these read is known only when they run.
_LOOKUPS = ("embedding", "embedding_byte", "embedding_4bit", "embedding_2bit", "index", "index_select", "gather")
# Read no more than they write.
_CUTS = ("StaticSlice", "slice_copy", "select_copy", "narrow_copy")
_REDUCTIONS = ("mean", "sum", "prod", "amax", "amin", "var")
# Works row by row, along the last axis.
_BY_ROW = (
    *("Softmax", "_softmax", "_log_softmax", "StaticResizeBilinear2D"),
    *("native_layer_norm", "layer_norm", "rms_norm", "native_group_norm", "group_norm"),
)


def works(operators: Sequence[Instance], graph: ModelGraph | None) -> dict[int, Work]:
    """Return the work of each operator, by its row."""
    if graph is None or not graph.flow.fixed:
        return {}
    # Each with its step, and what XNNPACK ran it in ('': not known).
    known = [(row, operators[row], step, operators[row].kind_of.dtype) for row, step in graph.placed]
    # The delegate calls whose fp16 graph ran in fp32: XNNPACK rewrites all of a graph or nothing of it.
    in_fp32 = [(operator, step) for _, operator, step, dtype in known if step.node and dtype in RUN_IN_FP32]
    widened = {operator.instruction for operator, step in in_fp32 if _element(step) == "fp16"}
    found = {}
    for row, operator, step, dtype in known:
        # What XNNPACK says of the operator itself counts first: inputs are moved before they are widened.
        inside = step.node is not None and operator.instruction in widened
        if (work := _work(step, dtype in RUN_IN_FP32 or (inside and not dtype))) is not None:
            found[row] = work
    return found


def _work(step: FlowStep, wide: bool) -> Work | None:
    """Return the work of a step, `wide` where fp16 is computed in fp32."""
    element = "fp32" if wide and _element(step) == "fp16" else _element(step)
    product = matrix_product(step.node) if step.node is not None else None
    if step.node is None and base_name(step.op) in _LOOKUPS:
        return None
    if not step.outputs or (product is None and step.node is not None and step.node.multiply_accumulates):
        return None
    seen_as = element if wide else ""
    weights = _bytes([tensor for tensor in step.inputs if tensor.source == CONSTANT], element, packed=True)
    read = _bytes([tensor for tensor in step.inputs if tensor.source != CONSTANT], seen_as)
    written = _bytes(step.outputs, seen_as)
    if weights is None or read is None or written is None:
        return None
    if base_name(step.op) in _CUTS:
        read = min(read, written)
    macs = product.multiply_accumulates if product else 0
    narrow = _element(step) if _element(step) != element else ""
    return Work(element, weights, read, written, product, macs, narrow, () if product else _inner(step))


def _inner(step: FlowStep) -> tuple[int, ...]:
    """Return the sizes of inner loops that an operator's rate depends on; () if it treats all numbers alike."""
    shapes = [tensor.shape for tensor in step.inputs if tensor.shape]
    out = step.outputs[0].shape
    if not shapes or not out:
        return ()
    if step.permutation:
        return _moved(shapes[0], step.permutation)
    if step.node is not None and step.node.kernel:
        return prod(step.node.kernel), out[-1]
    if base_name(step.op) in _BY_ROW:
        return (out[-1],)
    if base_name(step.op) in _REDUCTIONS:
        return prod(shapes[0]) // max(1, prod(out)), out[-1]
    if all(prod(shape) == prod(out) for shape in shapes):
        return ()
    return (min(_run(shape, out) for shape in shapes),)


def _moved(shape: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rows of a transpose that stay whole; else the sizes along which it reads and along which it writes."""
    axes = [axis for axis in permutation if axis < len(shape) and shape[axis] != 1]
    kept = sorted(axes)
    runs: list[list[int]] = []
    for axis in axes:
        # Axes that follow each other before and after are one.
        if runs and kept.index(axis) == kept.index(runs[-1][-1]) + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) < 2:
        return ()
    last = next(run for run in runs if run[-1] == kept[-1])
    sizes = [prod(shape[axis] for axis in run) for run in (last, runs[-1])]
    return (sizes[0],) if last is runs[-1] else tuple(sizes)


def _run(shape: tuple[int, ...], out: tuple[int, ...]) -> int:
    """Return how many numbers in a row an operator treats alike: those of the last axes, to the first that is cut,
    joined or repeated (a size of 1 that the result has more often)."""
    size, repeated = 1, None
    for here, there in zip(reversed((1,) * (len(out) - len(shape)) + shape), reversed(out), strict=False):
        if here == there == 1:
            continue
        if here not in (1, there):
            return size * min(here, there)
        if repeated is not None and repeated != (here != there):
            return size
        repeated = here != there
        size *= there
    return size


def _element(step: FlowStep) -> str:
    """Return the type of what it works on: its first input that is no weight, else its result."""
    return next((tensor.dtype for tensor in (*step.inputs, *step.outputs) if tensor.source != CONSTANT), "")


def _bytes(tensors: Sequence[FlowTensor], element: str, packed: bool = False) -> int | None:
    """Return the size of tensors as an operator sees them that computes in `element` where the graph has fp16.

    XNNPACK packs weights into the type that it computes in. '' is an operator that takes tensors as they are.
    """
    total = 0
    for tensor in tensors:
        floating = tensor.dtype in FLOATS and element in FLOATS
        bits = BITS.get(element if floating and (packed or tensor.dtype == "fp16") else tensor.dtype)
        if bits is None:
            return None
        total += (prod(tensor.shape) * bits + 7) // 8
    return total


def matrix_product(node: XnnpackNode) -> Product | None:
    """Return the matrix product of a node; None for all that is none."""
    if len(node.inputs) < 2 or not node.outputs:
        return None
    source, other, out = node.inputs[0].shape, node.inputs[1].shape, node.outputs[0].shape
    if not source or not other or not out or not node.groups:
        return None
    window = prod(node.kernel)
    # Weights tell the channels: what is quantized when it runs is given as NCHW.
    if node.op == "Conv2d":
        return Product(prod(out[:-1]), out[-1] // node.groups, prod(other[1:]), node.groups)
    if node.op == "ConvTranspose2d":
        return Product(node.positions, window * out[-1] // node.groups, other[-1], node.groups)
    if node.op == "DepthwiseConv2d":
        # Each channel has filters of its own. One channel alone is an ordinary convolution, and runs as one.
        return Product(prod(out[:-1]), out[-1] // source[-1], window, source[-1])
    if node.op == "FullyConnected":
        return Product(prod(source[:-1]), out[-1], source[-1])
    if node.op == "BatchMatrixMultiply" and len(out) >= 2:
        return Product(out[-2], out[-1], source[-1], prod(out[:-2]))
    return None
