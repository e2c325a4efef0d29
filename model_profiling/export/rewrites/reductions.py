"""Means, sums, norms and cumulative sums that XNNPACK does not take, in forms that it takes.

`keepdim`: XNNPACK takes the mean of a 4-D tensor over height and width which keeps its dimensions (global average
pooling). A mean that drops them keeps them and is followed by a view; a sum is the mean times the number of pixels.

`mean`: other means and sums are products with a constant. Over the last axes it is a linear layer with one output, over
the channels of an image a 1x1 convolution, which keeps the image's layout, and over an axis in the middle a product
with a row of equal numbers. A sum in the order of the axis loses a digit per power of ten of its length. Where the
length has a divisor near its root, the average is taken in two steps, each over few values: as accurate as PyTorch's.
A Euclidean norm is the root of such a sum of squares.

`cumsum`: a cumulative sum is a product with a triangle of ones. The triangle makes as many multiplications as the axis
is long for every value, so long axes stay as they are.
"""

import math
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import NodeRewrite, arguments, calls, constant, reshaped, step

aten = torch.ops.aten
_MEANS = (aten.mean.dim, aten.sum.dim_IntList)
_NORM = aten.linalg_vector_norm.default
# Shorter rows are summed at once.
LONG = 64
# Measured with 128 values only, delegate calls included: 0.86 times the portable speed in fp32, 1.09 times in fp16.
LONGEST_CUMSUM = 256


def row_average(program: ExportedProgram, like: Any, rows: Any, scale: float = 1.0) -> Any:
    """Return `scale` times the average over the last axis, which stays with length 1."""
    *outer, length = rows.meta["val"].shape
    part = _part(length)
    if part > 1:
        pieces = step(program, like, aten.reshape.default, rows, [*outer, length // part, part])
        averages = _linear(program, like, pieces, 1.0)
        rows = step(program, like, aten.reshape.default, averages, [*outer, length // part])
    return _linear(program, like, rows, scale)


def pooled_average(program: ExportedProgram, like: Any, rows: Any) -> Any:
    """Return the same by average pooling: slower, but in fp16 it is added up in fp32.

    A product of fp16 is added up in fp16, where XNNPACK flushes what is below 6e-5 to zero, parts of a sum too.
    """
    *outer, length = rows.meta["val"].shape
    images = step(program, like, aten.reshape.default, rows, [math.prod(outer), 1, length, 1])
    average = step(program, like, aten.mean.dim, images, [2, 3], True)
    return step(program, like, aten.reshape.default, average, [*outer, 1])


def _linear(program: ExportedProgram, like: Any, rows: Any, scale: float) -> Any:
    value = rows.meta["val"]
    weight = torch.full((1, value.shape[-1]), scale / value.shape[-1], dtype=value.dtype)
    return step(program, like, aten.linear.default, rows, constant(program, weight))


def _part(length: int) -> int:
    if length <= LONG:
        return 1
    part = max(size for size in range(1, int(length**0.5) + 1) if length % size == 0)
    return length // part if part > 3 else 1


def _over_pixels(program: ExportedProgram) -> list[Any]:
    """Return the means and sums over height and width of an image that XNNPACK does not take as they are."""
    found = [node for node in calls(program, *_MEANS) if _is_over_pixels(node) and _in_own_dtype(node)]
    return [node for node in found if node.target is not aten.mean.dim or not arguments(node)["keepdim"]]


def _is_over_pixels(node: Any) -> bool:
    return node.args[0].meta["val"].dim() == 4 and _axes(node) == [2, 3]


def _in_own_dtype(node: Any) -> bool:
    return bool(node.meta["val"].dtype == node.args[0].meta["val"].dtype)


def _keeping_dimensions(program: ExportedProgram, node: Any) -> Any:
    height, width = node.args[0].meta["val"].shape[2:]
    result = step(program, node, aten.mean.dim, node.args[0], [2, 3], True)
    if node.target is aten.sum.dim_IntList:
        result = step(program, node, aten.mul.Tensor, result, float(height * width))
    return (
        result
        if arguments(node)["keepdim"]
        else step(program, node, aten.view.default, result, list(node.meta["val"].shape))
    )


def _axes(node: Any) -> list[int]:
    rank, given = node.args[0].meta["val"].dim(), arguments(node)["dim"]
    return sorted(axis % rank for axis in given) if given else list(range(rank))


def _is_product(node: Any) -> bool:
    """Return whether it is over neighbouring axes of a tensor; but not a mean or a sum over the pixels of an image."""
    rank, axes = node.args[0].meta["val"].dim(), _axes(node)
    neighbours = bool(axes) and axes == list(range(axes[0], axes[-1] + 1))
    if node.target is _NORM:  # fp16 has no squares from 256 on, nor below 0.008
        taken = arguments(node)["ord"] == 2 and node.meta["val"].dtype == torch.float32
    else:
        taken = not _is_over_pixels(node)
    return neighbours and rank >= 2 and taken and _in_own_dtype(node)


def _product(program: ExportedProgram, node: Any) -> Any:
    source, axes = node.args[0], _axes(node)
    shape = list(source.meta["val"].shape)
    length = math.prod(shape[axis] for axis in axes)
    scale = 1.0 if node.target is aten.mean.dim else float(length)
    if node.target is _NORM:
        source = step(program, node, aten.mul.Tensor, source, source)
    if _is_over_pixels(node):
        average = step(program, node, aten.mean.dim, source, axes, True)
        result = step(program, node, aten.mul.Tensor, average, scale)
    elif axes == [1] and len(shape) == 4:
        weight = constant(program, torch.full((1, length, 1, 1), scale / length, dtype=node.meta["val"].dtype))
        result = step(program, node, aten.conv2d.default, source, weight)
    elif axes[-1] == len(shape) - 1:
        result = row_average(program, node, reshaped(program, node, source, [*shape[: axes[0]], length]), scale)
    else:
        batch, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
        weight = torch.full((batch, 1, length), scale / length, dtype=node.meta["val"].dtype)
        flat = step(program, node, aten.reshape.default, source, [batch, length, inner])
        result = step(program, node, aten.bmm.default, constant(program, weight), flat)
    if node.target is _NORM:
        result = step(program, node, aten.sqrt.default, result)
    return step(program, node, aten.reshape.default, result, list(node.meta["val"].shape))


def _is_short(node: Any) -> bool:
    value = node.args[0].meta["val"]
    return value.dim() > 1 and _in_own_dtype(node) and bool(1 < value.shape[node.args[1]] <= LONGEST_CUMSUM)


def _triangle(program: ExportedProgram, node: Any) -> Any:
    """Write a cumulative sum as a linear layer over its axis."""
    value, axis = node.args[0].meta["val"], node.args[1] % node.meta["val"].dim()
    weight = constant(program, torch.ones(value.shape[axis], value.shape[axis], dtype=value.dtype).tril())
    if axis == value.dim() - 1:
        return step(program, node, aten.linear.default, node.args[0], weight)
    order = [*(i for i in range(value.dim()) if i != axis), axis]
    rows = step(program, node, aten.permute.default, node.args[0], order)
    sums = step(program, node, aten.linear.default, rows, weight)
    return step(program, node, aten.permute.default, sums, [order.index(i) for i in range(value.dim())])


KEEPDIM = NodeRewrite(_over_pixels, _keeping_dimensions)
MEAN = NodeRewrite(lambda program: list(filter(_is_product, calls(program, *_MEANS, _NORM))), _product)
CUMSUM = NodeRewrite(lambda program: list(filter(_is_short, calls(program, aten.cumsum.default))), _triangle)
