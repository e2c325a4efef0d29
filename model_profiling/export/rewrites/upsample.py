"""Nearest upsampling by whole factors, which XNNPACK does not take, becomes a transposed convolution, which it takes.

Its kernel is as large as its stride and holds ones, so every pixel is written into its own square; the image keeps the
layout of the convolutions around it. A group of channels shares a kernel that is the identity: one group per channel
would be exact as well, but XNNPACK computes groups one after another, and 32 channels at a time are 3 times as fast in
fp32 and 10 times in fp16. Values are the same bit by bit as long as they are finite. Where no group size fits, the
image is multiplied by ones that broadcast over the new pixels, between two permutes. All other resizes that XNNPACK
does not take are products with matrices (resize.py).
"""

from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import calls, constant, step
from model_profiling.export.rewrites.resize import NEAREST, as_products, resizes

aten = torch.ops.aten
# Measured with 24, 96 and 256 channels. In fp16 groups of 4 are slower than the portable kernel and groups of 8 slower
# than multiplying by ones; more than 32 was not tried.
LARGEST_GROUP, SMALLEST_GROUP = 32, 16


def find(program: ExportedProgram) -> list[Any]:
    """Return nearest upsamplings that repeat every row and column equally often, and other resizes."""
    whole = [node for node in calls(program, *NEAREST) if _repeats(node)]
    return whole + [node for node in resizes(program) if node not in whole]


def write(program: ExportedProgram, node: Any) -> Any:
    """Replace each by operators that XNNPACK takes."""
    if node.target not in NEAREST or not _repeats(node):
        return as_products(program, node)
    width = _group(node.args[0].meta["val"].shape[1])
    return _deconvolution(program, node, width) if width else _broadcast(program, node)


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
