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

from model_profiling.export.rewrites.graph import NodeRewrite, Site

aten = torch.ops.aten
_MEANS = (aten.mean.dim, aten.sum.dim_IntList)
_NORM = aten.linalg_vector_norm.default
# Shorter rows are summed at once.
LONG = 64
# Measured with 128 values only, delegate calls included: 0.86 times the portable speed in fp32, 1.09 times in fp16.
LONGEST_CUMSUM = 256


def row_average(site: Site, rows: Any, scale: float = 1.0) -> Any:
    """Return `scale` times the average over the last axis, which stays with length 1."""
    *outer, length = rows.meta["val"].shape
    part = _part(length)
    if part > 1:
        pieces = site.reshape(rows, [*outer, length // part, part])
        rows = site.reshape(_linear(site, pieces, 1.0), [*outer, length // part])
    return _linear(site, rows, scale)


def pooled_average(site: Site, rows: Any) -> Any:
    """Return the same by average pooling: slower, but in fp16 it is added up in fp32.

    A product of fp16 is added up in fp16, where XNNPACK flushes what is below 6e-5 to zero, parts of a sum too.
    """
    *outer, length = rows.meta["val"].shape
    images = site.reshape(rows, [math.prod(outer), 1, length, 1])
    return site.reshape(site(aten.mean.dim, images, [2, 3], True), [*outer, 1])


def _linear(site: Site, rows: Any, scale: float) -> Any:
    value = rows.meta["val"]
    weight = torch.full((1, value.shape[-1]), scale / value.shape[-1], dtype=value.dtype)
    return site(aten.linear.default, rows, site.constant(weight))


def _part(length: int) -> int:
    if length <= LONG:
        return 1
    part = max(size for size in range(1, int(length**0.5) + 1) if length % size == 0)
    return length // part if part > 3 else 1


def _drops_dimensions(site: Site) -> bool:
    """Return whether it is a mean or a sum over height and width of an image that XNNPACK does not take as it is."""
    taken = site.node.target is aten.mean.dim and site.given["keepdim"]
    return _is_over_pixels(site) and _in_own_dtype(site) and not taken


def _is_over_pixels(site: Site) -> bool:
    return site.source.meta["val"].dim() == 4 and _axes(site) == [2, 3]


def _in_own_dtype(site: Site) -> bool:
    return bool(site.value.dtype == site.source.meta["val"].dtype)


def _keeping_dimensions(site: Site) -> Any:
    height, width = site.source.meta["val"].shape[2:]
    result = site(aten.mean.dim, site.source, [2, 3], True)
    if site.node.target is aten.sum.dim_IntList:
        result = site(aten.mul.Tensor, result, float(height * width))
    return result if site.given["keepdim"] else site(aten.view.default, result, list(site.value.shape))


def _axes(site: Site) -> list[int]:
    rank, given = site.source.meta["val"].dim(), site.given["dim"]
    return sorted(axis % rank for axis in given) if given else list(range(rank))


def _is_product(site: Site) -> bool:
    """Return whether it is over neighbouring axes of a tensor; but not a mean or a sum over the pixels of an image."""
    rank, axes = site.source.meta["val"].dim(), _axes(site)
    neighbours = bool(axes) and axes == list(range(axes[0], axes[-1] + 1))
    if site.node.target is _NORM:  # fp16 has no squares from 256 on, nor below 0.008
        taken = site.given["ord"] == 2 and site.value.dtype == torch.float32
    else:
        taken = not _is_over_pixels(site)
    return neighbours and rank >= 2 and taken and _in_own_dtype(site)


def _product(site: Site) -> Any:
    source, axes, dtype = site.source, _axes(site), site.value.dtype
    shape = list(source.meta["val"].shape)
    length = math.prod(shape[axis] for axis in axes)
    scale = 1.0 if site.node.target is aten.mean.dim else float(length)
    if site.node.target is _NORM:
        source = site(aten.mul.Tensor, source, source)
    if _is_over_pixels(site):
        result = site(aten.mul.Tensor, site(aten.mean.dim, source, axes, True), scale)
    elif axes == [1] and len(shape) == 4:
        weight = site.constant(torch.full((1, length, 1, 1), scale / length, dtype=dtype))
        result = site(aten.conv2d.default, source, weight)
    elif axes[-1] == len(shape) - 1:
        result = row_average(site, site.reshaped(source, [*shape[: axes[0]], length]), scale)
    else:
        batch, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
        flat = site.reshape(source, [batch, length, inner])
        weight = site.constant(torch.full((batch, 1, length), scale / length, dtype=dtype))
        result = site(aten.bmm.default, weight, flat)
    if site.node.target is _NORM:
        result = site(aten.sqrt.default, result)
    return site.reshape(result, site.value.shape)


def _is_short(site: Site) -> bool:
    value = site.source.meta["val"]
    return value.dim() > 1 and _in_own_dtype(site) and bool(1 < value.shape[site.node.args[1]] <= LONGEST_CUMSUM)


def _triangle(site: Site) -> Any:
    """Write a cumulative sum as a linear layer over its axis."""
    value, axis = site.source.meta["val"], site.node.args[1] % site.value.dim()
    weight = site.constant(torch.ones(value.shape[axis], value.shape[axis], dtype=value.dtype).tril())
    if axis == value.dim() - 1:
        return site(aten.linear.default, site.source, weight)
    order = [*(i for i in range(value.dim()) if i != axis), axis]
    sums = site(aten.linear.default, site(aten.permute.default, site.source, order), weight)
    return site(aten.permute.default, sums, [order.index(i) for i in range(value.dim())])


KEEPDIM = [NodeRewrite(_MEANS, _drops_dimensions, _keeping_dimensions)]
MEAN = [NodeRewrite([*_MEANS, _NORM], _is_product, _product)]
CUMSUM = [NodeRewrite([aten.cumsum.default], _is_short, _triangle)]
