"""Nearest upsampling by whole factors, which XNNPACK does not take, becomes a transposed convolution, which it takes.

Its kernel is as large as its stride and holds ones, so every pixel is written into its own square; the image keeps the
layout of the convolutions around it. A group of channels shares a kernel that is the identity: one group per channel
would be exact as well, but XNNPACK computes groups one after another, and 32 channels at a time are 3 times as fast in
fp32 and 10 times in fp16. Values are the same bit by bit as long as they are finite. Where no group size fits, the
image is multiplied by ones that broadcast over the new pixels, between two permutes. All other resizes that XNNPACK
does not take are products with matrices.

Average pooling whose padding counts is padded with zeros first, what rounds its size up where nothing is to be rounded
does not, and adaptive pooling to the size that is there already goes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import arguments, calls, constant, step

aten = torch.ops.aten
# Measured with 24, 96 and 256 channels. In fp16 groups of 4 are slower than the portable kernel and groups of 8 slower
# than multiplying by ones; more than 32 was not tried.
LARGEST_GROUP, SMALLEST_GROUP = 32, 16
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
_WINDOWS = aten.avg_pool2d.default
# A matrix with more values makes the file larger than it is worth.
LARGEST_MATRIX = 1 << 20


def find(program: ExportedProgram) -> list[Any]:
    """Return nearest upsamplings that repeat every row and column equally often, other resizes, and poolings."""
    whole = [node for node in calls(program, *NEAREST) if _repeats(node)]
    pools = [node for node in calls(program, _WINDOWS) if _pooling(node) is not None]
    same = [node for node in calls(program, *_POOLING) if _is_needless(node)]
    return [*whole, *(node for node in resizes(program) if node not in whole), *pools, *same]


def write(program: ExportedProgram, node: Any) -> Any:
    """Replace each by operators that XNNPACK takes."""
    if found := _pooling(node) if node.target is _WINDOWS else None:
        kernel, stride, padding, counted = found
        borders = [padding[1], padding[1], padding[0], padding[0]]
        source = step(program, node, aten.constant_pad_nd.default, node.args[0], borders) if counted else node.args[0]
        return step(program, node, _WINDOWS, source, kernel, stride, [0, 0] if counted else padding, False, counted)
    if node.target in _POOLING and _is_needless(node):
        return node.args[0]
    if node.target not in NEAREST or not _repeats(node):
        return as_products(program, node)
    width = _group(node.args[0].meta["val"].shape[1])
    return _deconvolution(program, node, width) if width else _broadcast(program, node)


def _pooling(node: Any) -> tuple[list[int], list[int], list[int], bool] | None:
    """Return an average pooling's windows, and whether its padding counts, if it has a form that XNNPACK takes."""
    given, before, after = arguments(node), node.args[0].meta["val"].shape, node.meta["val"].shape
    sizes = given["kernel_size"], given["stride"] or given["kernel_size"], given["padding"]
    kernel, stride, padding = ([*each] * (2 // len(each)) for each in sizes)
    counted = bool(given["count_include_pad"]) and any(padding)
    plain = [(before[2 + i] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in range(2)]
    if len(before) != 4 or given["divisor_override"] is not None or plain != [*after[2:]]:
        return None
    if counted and getattr(node.args[0].target, "namespace", "") == "quantized_decomposed":
        return None  # a border in the middle of what is quantized is of another dtype
    return (kernel, stride, padding, counted) if given["ceil_mode"] or counted else None


def _is_needless(node: Any) -> bool:
    """Return whether pooling changes nothing; an output and an input stay what they are."""
    same = node.args[0].meta["val"].shape == node.meta["val"].shape
    return bool(same) and node.args[0].op == "call_function" and all(user.op != "output" for user in node.users)


def _factors(node: Any) -> tuple[int, int]:
    before, after = node.args[0].meta["val"].shape, node.meta["val"].shape
    return after[2] // before[2], after[3] // before[3]


def _repeats(node: Any) -> bool:
    """Return whether it repeats pixels equally, by upsampling their numbers: a scale may be given that is not whole."""
    height, width = node.args[0].meta["val"].shape[2:]
    rows, columns = _factors(node)
    pixels = torch.arange(height * width, dtype=torch.float64).reshape(1, 1, height, width)
    wanted = pixels.repeat_interleave(rows, 2).repeat_interleave(columns, 3) if rows and columns else pixels
    return bool(torch.equal(node.target(pixels, *node.args[1:], **node.kwargs), wanted))


def _group(channels: int) -> int:
    """Return how many channels share a kernel; 0 if no number that is worth it divides them."""
    if channels <= LARGEST_GROUP:
        return channels
    divisors = [size for size in range(SMALLEST_GROUP, LARGEST_GROUP + 1) if channels % size == 0]
    return max(divisors, default=0)


def _deconvolution(program: ExportedProgram, node: Any, width: int) -> Any:
    value, factors = node.args[0].meta["val"], _factors(node)
    channels = value.shape[1]
    kernel = torch.eye(width, dtype=value.dtype).repeat(channels // width, 1)[:, :, None, None]
    weight = constant(program, kernel.expand(channels, width, *factors).contiguous())
    groups = channels // width
    return step(program, node, aten.conv_transpose2d.input, node.args[0], weight, None, factors, [0, 0], [0, 0], groups)


def _broadcast(program: ExportedProgram, node: Any) -> Any:
    batch, channels, height, width = node.args[0].meta["val"].shape
    rows, columns = _factors(node)
    ones = constant(program, torch.ones(1, rows, 1, columns, 1, dtype=node.meta["val"].dtype))
    last = step(program, node, aten.permute.default, node.args[0], [0, 2, 3, 1])
    pixels = step(program, node, aten.reshape.default, last, [batch * height, 1, width, 1, channels])
    copies = step(program, node, aten.mul.Tensor, pixels, ones)
    image = step(program, node, aten.reshape.default, copies, [batch, height * rows, width * columns, channels])
    return step(program, node, aten.permute.default, image, [0, 3, 1, 2])


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
