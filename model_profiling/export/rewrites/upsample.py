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

from model_profiling.export.rewrites.graph import NodeRewrite, Site

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
# A matrix with more values makes the file larger than it is worth.
LARGEST_MATRIX = 1 << 20


def _pooling(site: Site) -> tuple[list[int], list[int], list[int], bool] | None:
    """Return an average pooling's windows, and whether its padding counts, if it has a form that XNNPACK takes."""
    given, before, after = site.given, site.source.meta["val"].shape, site.value.shape
    sizes = given["kernel_size"], given["stride"] or given["kernel_size"], given["padding"]
    kernel, stride, padding = ([*each] * (2 // len(each)) for each in sizes)
    counted = bool(given["count_include_pad"]) and any(padding)
    plain = [(before[2 + i] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in range(2)]
    if len(before) != 4 or given["divisor_override"] is not None or plain != [*after[2:]]:
        return None
    if counted and getattr(site.source.target, "namespace", "") == "quantized_decomposed":
        return None  # a border in the middle of what is quantized is of another dtype
    return (kernel, stride, padding, counted) if given["ceil_mode"] or counted else None


def _pooled(site: Site) -> Any:
    found = _pooling(site)
    assert found is not None
    source, (kernel, stride, padding, counted) = site.source, found
    if counted:
        borders = [padding[1], padding[1], padding[0], padding[0]]
        source, padding = site(aten.constant_pad_nd.default, source, borders), [0, 0]
    return site(aten.avg_pool2d.default, source, kernel, stride, padding, False, counted)


def _is_needless(site: Site) -> bool:
    """Return whether pooling changes nothing; an output and an input stay what they are."""
    same = site.source.meta["val"].shape == site.value.shape
    return bool(same) and site.source.op == "call_function" and all(user.op != "output" for user in site.node.users)


def _factors(site: Site) -> tuple[int, int]:
    before, after = site.source.meta["val"].shape, site.value.shape
    return after[2] // before[2], after[3] // before[3]


def _repeats(site: Site) -> bool:
    """Return whether it repeats pixels equally, by upsampling their numbers: a scale may be given that is not whole."""
    height, width = site.source.meta["val"].shape[2:]
    rows, columns = _factors(site)
    pixels = torch.arange(height * width, dtype=torch.float64).reshape(1, 1, height, width)
    wanted = pixels.repeat_interleave(rows, 2).repeat_interleave(columns, 3) if rows and columns else pixels
    return bool(torch.equal(site.node.target(pixels, *site.node.args[1:], **site.node.kwargs), wanted))


def _repeated(site: Site) -> Any:
    """Write a transposed convolution whose kernel is shared by so many channels, if a number that is worth it divides
    them."""
    value, factors = site.source.meta["val"], _factors(site)
    channels = value.shape[1]
    divisors = [size for size in range(SMALLEST_GROUP, LARGEST_GROUP + 1) if channels % size == 0]
    width = channels if channels <= LARGEST_GROUP else max(divisors, default=0)
    if not width:
        return _broadcast(site)
    kernel = torch.eye(width, dtype=value.dtype).repeat(channels // width, 1)[:, :, None, None]
    weight = site.constant(kernel.expand(channels, width, *factors).contiguous())
    groups = channels // width
    return site(aten.conv_transpose2d.input, site.source, weight, None, factors, [0, 0], [0, 0], groups)


def _broadcast(site: Site) -> Any:
    batch, channels, height, width = site.source.meta["val"].shape
    rows, columns = _factors(site)
    ones = site.constant(torch.ones(1, rows, 1, columns, 1, dtype=site.value.dtype))
    last = site(aten.permute.default, site.source, [0, 2, 3, 1])
    copies = site(aten.mul.Tensor, site.reshape(last, [batch * height, 1, width, 1, channels]), ones)
    image = site.reshape(copies, [batch, height * rows, width * columns, channels])
    return site(aten.permute.default, image, [0, 3, 1, 2])


def _as_products(site: Site) -> Any:
    """Write a resize as rows by a linear layer and columns by a product of matrices."""
    dtype, (batch, channels, height, width) = site.value.dtype, site.value.shape
    of_columns, of_rows = (_weights(site, dim).to(dtype) for dim in (2, 3))
    wide = site(aten.linear.default, site.source, site.constant(of_rows))
    images = batch * channels
    flat = site.reshape(wide, [images, of_columns.shape[1], width])
    if images * of_columns.numel() <= LARGEST_MATRIX:
        left = site.constant(of_columns.expand(images, *of_columns.shape).contiguous())
        result = site(aten.bmm.default, left, flat)
    else:
        turned = site(aten.permute.default, flat, [0, 2, 1])
        tall = site(aten.linear.default, turned, site.constant(of_columns))
        result = site(aten.permute.default, tall, [0, 2, 1])
    return site.reshape(result, [batch, channels, height, width])


def _is_product(site: Site) -> bool:
    """Return whether it resizes images by weights that are the same for every channel, row and column, tried on one."""
    before, after = site.source.meta["val"], site.value
    if before.dim() != 4 or before.dtype != after.dtype:
        return False
    pairs = list(zip(before.shape[2:], after.shape[2:], strict=True))
    # Windows of one size are pooling that XNNPACK takes.
    windows = site.node.target in _POOLING and all(old % new == 0 for old, new in pairs)
    if windows or any(old * new > LARGEST_MATRIX for old, new in pairs):
        return False
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 1, *before.shape[2:], dtype=torch.float64, generator=generator)
    try:
        wanted = site.node.target(image, *site.node.args[1:], **site.node.kwargs)
        found = _weights(site, 2) @ image[0, 0] @ _weights(site, 3).T
    except RuntimeError:
        return False
    return bool(torch.allclose(found, wanted[0, 0], rtol=1e-6, atol=1e-6))


def _weights(site: Site, dim: int) -> torch.Tensor:
    """Return the matrix of an axis: how much each old pixel gives to each new one."""
    old, new = site.source.meta["val"].shape[dim], site.value.shape[dim]
    pixels = torch.eye(old, dtype=torch.float64)[:, None, None, :]
    return _one_axis(site, dim)(pixels, new)[:, 0, 0, :].T.contiguous()


def _one_axis(site: Site, dim: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return the operator for images of one row, as it treats one axis of its own images.

    Not of one column: PyTorch 2.13's smoothed resizes of such are wrong.
    """
    if site.node.target in _POOLING:
        return lambda pixels, new: aten.adaptive_avg_pool2d.default(pixels, [1, new])
    given = site.given
    scale = given.get(("scales_h", "scales_w")[dim - 2])
    if given.get("scale_factors") is not None:
        scale = given["scale_factors"][dim - 2]
    corners = [given["align_corners"]] if "align_corners" in given else []
    operator = site.node.target.overloadpacket.default
    return lambda pixels, new: operator(pixels, [1, new], *corners, None, scale)


REWRITES = [
    NodeRewrite(NEAREST, _repeats, _repeated),
    NodeRewrite([*_BICUBIC, *_SMOOTHED, *NEAREST, *_POOLING], _is_product, _as_products),
    NodeRewrite([aten.avg_pool2d.default], lambda site: _pooling(site) is not None, _pooled),
    NodeRewrite(_POOLING, _is_needless, lambda site: site.source),
]
