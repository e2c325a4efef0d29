"""Operators that compute: pointwise ones in any order that all their inputs have, others on rows and columns (linear
layers, products of matrices, softmax and norms)."""

import math
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.layout.images import as_image, lift
from model_profiling.export.rewrites.layout.order import (
    Layout,
    Value,
    common_cuts,
    fixed,
    image_of,
    own_cuts,
    runs,
    value_of,
    without,
)
from model_profiling.export.rewrites.layout.rebuild import LayerOutputs, Rebuild
from model_profiling.upstream.xnnpack_lowering import supported_operators

aten = torch.ops.aten

# Decomposed into operators that are delegated, without numbers.
IN_PARTS = {aten.silu.default, aten.square.default}
ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


def pointwise(rb: Rebuild, node: Any) -> Value | None:
    """Do a pointwise operator in any order that all its inputs have."""
    operands = list(dict.fromkeys(node.all_input_nodes))
    values = {entry: rb.layout_of(entry) for entry in operands}
    if not fixed(node.meta["val"]) or any(value is None for value in values.values()) or node.kwargs.get("out"):
        return None
    held: dict[Any, Value] = {entry: value for entry, value in values.items() if value is not None}
    shape = tuple(node.meta["val"].shape)
    full = [value for value in held.values() if value.shape == shape]
    if not full:
        return None
    if all(value.layout.is_contiguous and not value.is_image for value in full):
        result: Value = rb.contiguous_copy(node)
        result.memory.maker = full[0].memory.maker if len(held) == 1 else None
        return result
    if any(value.like_image for value in full):
        if _turns_images(node):
            rb.saved.append(node)
        result = image_of(_applied(rb, node, {entry: as_image(rb, value) for entry, value in held.items()}))
        result.memory.maker = full[0].memory.maker if len(held) == 1 else None
        result.memory.origin = next((value.memory.origin for value in full if value.is_image), None)
        return result
    return _in_one_order(rb, node, held, full)


def _turns_images(node: Any) -> bool:
    """Return whether lowering transposes an image for this operator: no delegate takes it, or it meets a number."""
    if node.target in ARITHMETIC:
        return not all(isinstance(entry, torch.fx.Node) and entry.meta["val"].dim() == 4 for entry in node.args[:2])
    name = f"{node.target.overloadpacket.__name__}.{node.target._overloadname}"
    supported = supported_operators()
    return supported is not None and name not in supported and node.target not in IN_PARTS


def _applied(rb: Rebuild, node: Any, inputs: dict[Any, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda entry: inputs[entry])
    return rb.copy_node(node, _floats(node, args), kwargs)


def _floats(node: Any, args: Any) -> Any:
    """Return integers beside float tensors as floats: otherwise ExecuTorch converts each while the model runs."""
    if node.target not in ARITHMETIC or not node.meta["val"].is_floating_point():
        return args
    return tuple(float(arg) if type(arg) is int and abs(arg) < 2**11 else arg for arg in args)


def _in_one_order(rb: Rebuild, node: Any, held: dict[Any, Value], full: list[Value]) -> Value | None:
    rank = len(full[0].shape)
    lifted = {entry: lift(value, rank) for entry, value in held.items()}
    cuts = common_cuts(list(lifted.values()))
    if cuts is None:
        return None
    cut = {entry: replace(value, layout=value.layout.cut(own_cuts(value, cuts))) for entry, value in lifted.items()}
    leading = _leading([value for value in cut.values() if value.shape == full[0].shape])
    order = leading.layout.order
    present = {entry: frozenset(value.layout.order) for entry, value in cut.items()}
    groups = runs(order, list(present.values()))
    inputs = {}
    for entry, value in cut.items():
        wanted = tuple(axis for axis in order if axis in present[entry])
        sizes = [math.prod(value.layout.sizes(g)) if g[0] in present[entry] else 1 for g in groups]
        inputs[entry] = rb.view(rb.moved(value, wanted), sizes or [1])
    return value_of(leading.layout, _applied(rb, node, inputs), leading)


def _leading(full: list[Value]) -> Value:
    """Return the one whose order most others have already; of equals, one in its usual order."""
    orders = [value.layout.order for value in full]
    return max(full, key=lambda value: (orders.count(value.layout.order), value.layout.is_contiguous))


SOFTMAX = {aten.softmax.int, aten._softmax.default}


def linear(rb: Rebuild, node: Any, value: Value) -> Value | None:
    if len(value.shape) < 2 or not fixed(node.meta["val"]):
        return None
    last = len(value.shape) - 1
    others = list(torch.fx.map_arg(node.args[1:], rb.plain))
    outputs = dict(rb.plan.outputs).get(node.name)
    if outputs is not None:
        others = [entry and rb.constant(entry, 0, outputs) for entry in node.args[1:3]]
    mixed = _columns(value.layout, last)
    weight = rb.constant(others[0], 1, mixed) if mixed is not None else None
    if weight is not None:
        others[0], width = weight, value.shape[last]
        matrix = rb.view(value, (math.prod(value.shape) // width, width))
    else:
        matrix, value = rb.rows(value, last)
    made = rb.copy_node(node, (matrix, *others))
    result = value_of(_with_last(value.layout, node.meta["val"].shape[-1], outputs), made, value)
    result.memory.maker = rb.maker(node, node.meta["val"].shape[-1])
    return result


def _columns(layout: Layout, last: int) -> LayerOutputs | None:
    """Return the order of the last dimension's axes, if they lie innermost in memory and not as they are named."""
    axes = layout.in_memory([last])
    if len(axes) < 2 or axes == layout.of(last) or layout.order[-len(axes) :] != axes:
        return None
    return LayerOutputs(layout.dims[last], tuple(number for _, number in axes))


def _with_last(layout: Layout, width: int, outputs: LayerOutputs | None) -> Layout:
    """Return the same with another innermost last dimension."""
    last = len(layout.dims) - 1
    rest = tuple(axis for axis in layout.order if axis[0] != last)
    own = outputs or LayerOutputs((width,) if width != 1 else (), (0,) if width != 1 else ())
    return Layout((*layout.dims[:-1], own.sizes), rest + tuple((last, number) for number in own.order))


def softmax(rb: Rebuild, node: Any, value: Value) -> Value | None:
    if not value.shape:
        return None
    dim = node.args[1] % len(value.shape)
    axes = value.layout.in_memory([dim])
    if not axes or value.layout.is_contiguous or value.layout.order[-len(axes) :] != axes:
        return None
    width = value.shape[dim]
    matrix = rb.view(value, (math.prod(value.shape) // width, width))
    return value_of(value.layout, rb.copy_node(node, (matrix, -1, *node.args[2:])), value)


def layer_norm(rb: Rebuild, node: Any, value: Value) -> Value | None:
    if value.layout.is_contiguous:
        return None
    rank, count = len(value.shape), len(node.args[1])
    tail = value.layout.among(range(rank - count, rank))
    if not tail or value.layout.order[-len(tail) :] != tail:
        return None
    wide = tuple(node.args[1])
    matrix = rb.view(value, (math.prod(value.shape) // math.prod(wide), *wide))
    others = torch.fx.map_arg(node.args[2:], rb.plain)
    return value_of(value.layout, rb.copy_node(node, (matrix, list(wide), *others)), value)


def matmul(rb: Rebuild, node: Any) -> Value | None:
    """Multiply matrices; the right one may lie in memory by columns, and the result with it."""
    left, right = (rb.layout_of(entry) for entry in node.args[:2])
    if left is None or right is None or not fixed(node.meta["val"]):
        return None
    rank = len(left.shape)
    if rank < 3 or len(right.shape) != rank or left.shape[:-2] != right.shape[:-2]:
        return None
    batch = range(rank - 2)
    cuts = common_cuts([replace(v, layout=without(without(v.layout, rank - 2), rank - 1)) for v in (left, right)])
    if cuts is None:
        return None
    left, right = (replace(value, layout=value.layout.cut(own_cuts(value, cuts))) for value in (left, right))
    rows, columns = rank - 2, rank - 1
    outer = left.layout.in_memory(batch)
    if outer != right.layout.in_memory(batch):
        outer = left.layout.among(batch)
    by_columns = _innermost(right) == rows
    # A transpose of the right matrix is part of the multiplication, in the model as here.
    rb.fused.add(right.moves)
    if by_columns and _innermost(left) == rows:
        # Both lie the other way round: so does their product, computed with the two exchanged.
        made = _product(rb, (right, (columns, rows)), (left, (rows, columns)), outer, False)
        return value_of(_of_product(node, left, outer, (columns, rows)), made, left)
    made = _product(
        rb, (left, (rows, columns)), (right, (columns, rows) if by_columns else (rows, columns)), outer, by_columns
    )
    return value_of(_of_product(node, left, outer, (rows, columns)), made, left)


def _innermost(value: Value) -> int | None:
    return value.layout.order[-1][0] if value.layout.order else None


def _product(rb: Rebuild, left: tuple[Value, Any], right: tuple[Value, Any], outer: Any, by_columns: bool) -> Any:
    matrices = []
    for value, dims in (left, right):
        inner = value.layout.among(dims)
        count = math.prod(value.layout.sizes(outer))
        moved = rb.moved(value, outer + inner)
        matrices.append(rb.view(moved, (count, value.shape[dims[0]], value.shape[dims[1]])))
    if by_columns:
        matrices[1] = rb.step(aten.permute_copy.default, matrices[1], [0, 2, 1])
    return rb.step(aten.bmm.default, *matrices)


def _of_product(node: Any, left: Value, outer: Any, inner: tuple[int, int]) -> Layout:
    shape = node.meta["val"].shape
    rank = len(shape)
    own = tuple((size,) if size != 1 else () for size in shape[-2:])
    dims = (*left.layout.dims[: rank - 2], *own)
    return Layout(dims, outer + tuple((dim, 0) for dim in inner if dims[dim]))
