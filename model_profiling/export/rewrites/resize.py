"""Resizing an image along each axis, which XNNPACK does not take, becomes a product with a matrix for each axis.

Bicubic interpolation, smoothed (antialiased) interpolation, nearest upsampling by factors that are not whole, and
adaptive average pooling with windows of unequal size: each pixel of the result is a weighted sum of a row of pixels,
then of a column. ExecuTorch computes a bicubic one with 16 lookups for each pixel; measured on efficient_sam's last
layer (256 to 1024 pixels), they took a third of the model's time. The weights are what the operator itself answers for
single pixels, so nothing is known here of how it finds them. Sums are made in another order.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import arguments, calls, constant, step

aten = torch.ops.aten
_BICUBIC = (aten.upsample_bicubic2d.vec, aten.upsample_bicubic2d.default)
_SMOOTHED = (
    *(aten._upsample_bicubic2d_aa.vec, aten._upsample_bicubic2d_aa.default),
    *(aten._upsample_bilinear2d_aa.vec, aten._upsample_bilinear2d_aa.default),
)
NEAREST = (
    *(aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default),
    *(aten._upsample_nearest_exact2d.vec, aten._upsample_nearest_exact2d.default),
)
_POOLING = (aten.adaptive_avg_pool2d.default,)
# A matrix with more values makes the file larger than it is worth.
LARGEST_MATRIX = 1 << 20


def resizes(program: ExportedProgram) -> list[Any]:
    """Return the resizes of images by weights that are the same for every channel, row and column."""
    return [node for node in calls(program, *_BICUBIC, *_SMOOTHED, *NEAREST, *_POOLING) if _fits(node)]


def as_products(program: ExportedProgram, node: Any) -> Any:
    """Return the resize of `node`: rows by a linear layer, columns by a product of matrices."""
    dtype, (batch, channels, height, width) = node.meta["val"].dtype, node.meta["val"].shape
    of_columns, of_rows = (_weights(node, dim).to(dtype) for dim in (2, 3))
    wide = step(program, node, aten.linear.default, node.args[0], constant(program, of_rows))
    images = batch * channels
    flat = step(program, node, aten.reshape.default, wide, [images, of_columns.shape[1], width])
    if images * of_columns.numel() <= LARGEST_MATRIX:
        left = constant(program, of_columns.expand(images, *of_columns.shape).contiguous())
        result = step(program, node, aten.bmm.default, left, flat)
    else:
        turned = step(program, node, aten.permute.default, flat, [0, 2, 1])
        tall = step(program, node, aten.linear.default, turned, constant(program, of_columns))
        result = step(program, node, aten.permute.default, tall, [0, 2, 1])
    return step(program, node, aten.reshape.default, result, [batch, channels, height, width])


def _fits(node: Any) -> bool:
    before, after = node.args[0].meta["val"], node.meta["val"]
    if before.dim() != 4 or before.dtype != after.dtype:
        return False
    pairs = list(zip(before.shape[2:], after.shape[2:], strict=True))
    if any(old * new > LARGEST_MATRIX for old, new in pairs):
        return False
    # Windows of one size are pooling that XNNPACK takes.
    if node.target in _POOLING and all(old % new == 0 for old, new in pairs):
        return False
    return _is_product(node)


def _is_product(node: Any) -> bool:
    """Return whether the operator does what its weights say, tried on one image."""
    image = torch.rand(
        1, 1, *node.args[0].meta["val"].shape[2:], dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    try:
        wanted = node.target(image, *node.args[1:], **node.kwargs)
        found = _weights(node, 2) @ image[0, 0] @ _weights(node, 3).T
    except RuntimeError:
        return False
    return bool(torch.allclose(found, wanted[0, 0], rtol=1e-6, atol=1e-6))


def _weights(node: Any, dim: int) -> torch.Tensor:
    """Return the matrix of an axis: how much each old pixel gives to each new one."""
    old, new = node.args[0].meta["val"].shape[dim], node.meta["val"].shape[dim]
    pixels = torch.eye(old, dtype=torch.float64)[:, None, None, :]
    return _one_axis(node, dim)(pixels, new)[:, 0, 0, :].T.contiguous()


def _one_axis(node: Any, dim: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return the operator for images of one row, as it treats one axis of its own images.

    Not of one column: PyTorch 2.13's smoothed resizes of such are wrong.
    """
    if node.target in _POOLING:
        return lambda pixels, new: aten.adaptive_avg_pool2d.default(pixels, [1, new])
    given = arguments(node)
    scale = given.get(("scales_h", "scales_w")[dim - 2])
    if given.get("scale_factors") is not None:
        scale = given["scale_factors"][dim - 2]
    corners = [given["align_corners"]] if "align_corners" in given else []
    operator = node.target.overloadpacket.default
    return lambda pixels, new: operator(pixels, [1, new], *corners, None, scale)
