"""Layers whose channels lie in memory in another order than they are named: their weights are written to match."""

from typing import Any

import torch

from model_profiling.export.rewrites.layout.order import Layout
from model_profiling.export.rewrites.layout.rebuild import LayerOutputs, Rebuild
from model_profiling.export.rewrites.layout.values import IMAGE_DIMS, TensorMemory, Value, image_of

aten = torch.ops.aten
# Operators that treat every channel alike, whatever its number.
CHANNELWISE = {
    aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default, aten.upsample_bilinear2d.vec,
    aten.upsample_bilinear2d.default,
}  # fmt: skip


def channel_order(layout: Layout, dim: int, before: tuple[int, ...]) -> LayerOutputs | None:
    """Return the order in which a dimension's axes lie innermost in memory, after `before`; None if they do not."""
    axes = layout.in_memory([dim])
    if layout.order != layout.among(before) + axes or len(axes) < 2:
        return None
    return LayerOutputs(layout.dims[dim], tuple(number for _, number in axes))


def mixed_image(rb: Rebuild, node: Any, value: Value) -> Value | None:
    """Do an operator on an image whose channels lie in another order; None if it cannot be done so."""
    mixed = channel_order(value.layout, 1, IMAGE_DIMS[:3]) if len(value.shape) == 4 else None
    if mixed is None or value.in_image_order:
        return None
    if node.target in CHANNELWISE:
        return _in_that_order(rb, node, value, mixed, node.args[1:])
    if node.target is aten.batch_norm.default:
        parameters = [entry and rb.constant(entry, 0, mixed) for entry in node.args[1:5]]
        known = all((new is None) == (old is None) for new, old in zip(parameters, node.args[1:5], strict=True))
        return _in_that_order(rb, node, value, mixed, (*parameters, *node.args[5:])) if known else None
    if node.target is not aten.conv2d.default:
        return None
    return _convolution(rb, node, value, mixed)


def _convolution(rb: Rebuild, node: Any, value: Value, mixed: LayerOutputs) -> Value | None:
    weight, bias = node.args[1], node.args[2] if len(node.args) > 2 else None
    groups = node.args[6] if len(node.args) > 6 else 1
    if groups == 1:
        inputs = rb.constant(weight, 1, mixed)
        if inputs is None:
            return None
        plain = [torch.fx.map_arg(entry, rb.plain) for entry in node.args[2:]]
        return image_of(rb.copy_node(node, (rb.mixed(value), inputs, *plain)))
    if groups != value.shape[1] or weight.meta["val"].shape[0] != groups:
        return None
    weights, biases = rb.constant(weight, 0, mixed), bias and rb.constant(bias, 0, mixed)
    if weights is None or (bias is not None and biases is None):
        return None
    return _in_that_order(rb, node, value, mixed, (weights, biases, *node.args[3:]))


def _in_that_order(rb: Rebuild, node: Any, value: Value, mixed: LayerOutputs, others: Any) -> Value:
    made = rb.copy_node(node, (rb.mixed(value), *others))
    return in_order(made, mixed, value.memory.maker, value.moves)


def in_order(made: Any, outputs: LayerOutputs, maker: Any, moves: Any = None) -> Value:
    """Return an image whose channels were computed in another order."""
    plain = Layout.contiguous(made.meta["val"].shape)
    dims = (plain.dims[0], outputs.sizes, *plain.dims[2:])
    order = plain.among(IMAGE_DIMS[:3]) + tuple((1, number) for number in outputs.order)
    return Value(Layout(dims, order), TensorMemory(image=made, maker=maker), moves)
