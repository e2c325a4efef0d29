"""Operators on images, which XNNPACK computes with channels last in memory."""

import math
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.graph import arguments
from model_profiling.export.rewrites.layout.order import (
    IMAGE_DIMS,
    Layout,
    TensorMemory,
    Value,
    fixed,
    image_of,
    value_of,
)
from model_profiling.export.rewrites.layout.rebuild import LayerOutputs, Rebuild
from model_profiling.formats.graph_terms import TO_NCHW

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
    given = arguments(node)
    weight, bias, groups = given["weight"], given["bias"], given["groups"]
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


OF_IMAGES = {
    aten.conv2d.default, aten.conv2d.padding, aten.conv_transpose2d.input, aten.max_pool2d.default,
    aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default, aten.upsample_bilinear2d.vec,
    aten.upsample_bilinear2d.default, aten.batch_norm.default, aten.prelu.default, aten.convolution.default,
    aten._native_batch_norm_legit_no_training.default, aten.max_pool2d_with_indices.default,
}  # fmt: skip
# Operators after which the same layer's outputs lie innermost.
FOLLOWING = CHANNELWISE | {aten.batch_norm.default}


def of_images(rb: Rebuild, node: Any, value: Value) -> Any:
    if len(value.shape) != 4:
        return None
    mixed = mixed_image(rb, node, value)
    if mixed is not None:
        return mixed
    others = list(torch.fx.map_arg(node.args[1:], rb.plain))
    outputs = dict(rb.plan.outputs).get(node.name)
    if outputs is not None:
        others[:2] = [entry and rb.constant(entry, 0, outputs) for entry in node.args[1:3]]
    made = rb.copy_node(node, (rb.image(value), *others))
    if not fixed(made.meta["val"]):
        return made
    result = in_order(made, outputs, None) if outputs is not None else image_of(made)
    if node.target is aten.conv2d.default and arguments(node)["groups"] == 1:
        result.memory.maker = rb.maker(node, node.meta["val"].shape[1])
    elif node.target in FOLLOWING:
        result.memory.maker = value.memory.maker
    return result


def padding(rb: Rebuild, node: Any, value: Value) -> Any:
    if not any(node.args[1]):
        return value
    return of_images(rb, node, value) if value.like_image else None


def get_item(rb: Rebuild, node: Any) -> Any:
    """Return one of an operator's several results."""
    held = rb.values[node.args[0]]
    if isinstance(held, list):
        return held[node.args[1]]
    made = rb.copy_node(node, (held, node.args[1]))
    images = held.target in OF_IMAGES and fixed(made.meta["val"]) and made.meta["val"].dim() == 4
    return image_of(made) if images else rb.own(made)


def lift(value: Value, rank: int) -> Value:
    """Return a value with leading dimensions of size 1, so that it has this many."""
    layout = value.layout.reshaped((1,) * (rank - len(value.shape)) + value.shape)
    assert layout is not None
    return replace(value, layout=layout)


def as_image(rb: Rebuild, value: Value) -> Any:
    """Return a value broadcast to four dimensions, as an image."""
    return rb.image(lift(value, 4))


def group_norm(rb: Rebuild, node: Any, value: Value) -> Value | None:
    """Normalise one group, which is all values of an image in any order, then scale and shift each channel."""
    if not value.like_image or node.args[1] != 1 or value.layout.in_memory([0]) != value.layout.of(0):
        return None
    given, (batch, channels) = arguments(node), value.shape[:2]
    rb.saved.append(node)
    rows = rb.view(value, (batch, 1, math.prod(value.shape) // batch))
    result = rb.image(value_of(value.layout, rb.step(node.target, rows, 1, None, None, given["eps"])))
    for target, factor in ((aten.mul.Tensor, given["weight"]), (aten.add.Tensor, given["bias"])):
        if factor is not None:
            own = rb.layout_of(factor)
            if own is None:
                return None
            result = rb.step(target, result, as_image(rb, replace(own, layout=Layout.contiguous((1, channels, 1, 1)))))
    return image_of(result)


def mean(rb: Rebuild, node: Any, value: Value) -> Any:
    """Compute a mean over what lies between outermost and innermost dimensions in memory, such as an image's pixels."""
    result, given = node.meta["val"], arguments(node)
    if not given["dim"] or not fixed(result) or given["dtype"] is not None:
        return None
    over, keeps = {dim % len(value.shape) for dim in given["dim"]}, given["keepdim"]
    if len(value.shape) == 4 and over == {2, 3} and keeps:
        return of_images(rb, node, value)
    order = value.layout.order
    inside = [number for number, axis in enumerate(order) if axis[0] in over]
    if (
        value.layout.is_contiguous
        or not inside
        or inside[-1] - inside[0] + 1 != len(inside)
        or inside[-1] + 1 == len(order)
    ):
        return None
    parts = order[: inside[0]], order[inside[0] : inside[-1] + 1], order[inside[-1] + 1 :]
    outer, inner, channels = (math.prod(value.layout.sizes(part)) for part in parts)
    image = rb.step(aten.permute_copy.default, rb.view(value, (outer, inner, 1, channels)), list(TO_NCHW))
    made = rb.step(aten.mean.dim, image, [2, 3], True)
    kept = Layout(
        tuple(() if dim in over else sizes for dim, sizes in enumerate(value.layout.dims)), parts[0] + parts[2]
    )
    layout = kept if keeps else kept.reshaped(tuple(result.shape))
    return Value(layout, TensorMemory(image=made)) if layout is not None else None


def nearest(rb: Rebuild, node: Any, value: Value) -> Value | None:
    """Repeat rows and columns of pixels in the order they lie in."""
    if not value.like_image:
        return None
    rb.saved.append(node)
    n, c, h, w = value.shape
    height, width = node.meta["val"].shape[2:]
    if height % h or width % w:
        return None
    wide = _repeated(rb, rb.view(value, (n, h, w, c)), (n * h * w, 1, c), width // w)
    made = _repeated(rb, wide, (n * h, 1, width * c), height // h)
    layout = Layout.contiguous((n, c, height, width))
    return value_of(Layout(layout.dims, layout.among(IMAGE_DIMS)), made)


def _repeated(rb: Rebuild, node: Any, shape: tuple[int, int, int], times: int) -> Any:
    """Repeat the middle dimension; as views of their own, for XNNPACK takes no tensor twice."""
    views = [rb.new_view(node, shape) for _ in range(times)]
    return rb.step(aten.cat.default, views, 1) if times > 1 else views[0]
