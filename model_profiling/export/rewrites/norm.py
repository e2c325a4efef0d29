"""Layer, group, instance and RMS norms, which XNNPACK does not take, from their parts, which it takes.

Rows (layer and RMS norm) are averaged by products with constants (see reductions.py). Images (group and instance norm)
are averaged by global average pooling, in the layout of the convolutions around them.

ExecuTorch 1.5.1's own kernels are less exact: its fp32 layer norm takes E[x^2] - E[x]^2 for some lengths (an average of
1000 with a deviation of 1 gives NaN), and its fp16 layer norm is wrong from rows of 256 values on. Here the average is
subtracted before anything is squared. In fp16 a square overflows from 256 on and vanishes below 0.008 (XNNPACK flushes
what is below 6e-5 to zero), so values are divided by their own average size a before: with w = d / (k (a + s)) and
s = sqrt(eps), d / sqrt(E[d^2] + eps) is w / sqrt(E[w^2] + (s / (k (a + s)))^2), whatever a is. Results are off by a few
of fp16's last digits.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import arguments, calls, constant, number, reshaped, step
from model_profiling.export.rewrites.reductions import pooled_average, row_average

aten = torch.ops.aten
ROWS = (aten.layer_norm.default, aten.rms_norm.default)
IMAGES = (aten.group_norm.default, aten.instance_norm.default)
# Measured with ExecuTorch 1.5.1: sums of so many values in fp16 are off.
WRONG_FROM = 256
HALF_LARGEST, HALF_SMALLEST = 65504.0, 2.0**-14

Average = Callable[[Any], Any]


def find(program: ExportedProgram) -> list[Any]:
    """Return the norms whose parts XNNPACK takes."""
    return [node for node in calls(program, *ROWS, *IMAGES) if _fits(node)]


def wrong_in_half(program: ExportedProgram) -> list[Any]:
    """Return the layer norms of fp16 that ExecuTorch's own kernel gets wrong: those over long rows."""
    rows = [node for node in find(program) if node.target is aten.layer_norm.default]
    half = [node for node in rows if node.meta["val"].dtype == torch.float16]
    return [node for node in half if math.prod(node.args[1]) >= WRONG_FROM]


def write(program: ExportedProgram, node: Any) -> Any:
    """Write a norm as its parts."""
    return _rows(program, node) if node.target in ROWS else _image(program, node)


def _epsilon(node: Any) -> float:
    given = arguments(node)["eps"]
    # An RMS norm without one takes the smallest step from 1, of the type it computes in.
    return float(torch.finfo(torch.float32).eps if given is None else given)


def _fits(node: Any) -> bool:
    value, given = node.meta["val"], arguments(node)
    weights = [given[name] for name in ("weight", "bias") if given.get(name) is not None]
    if value.dtype != node.args[0].meta["val"].dtype or any(w.meta["val"].dtype != value.dtype for w in weights):
        return False
    if value.dtype == torch.float16 and math.sqrt(_epsilon(node)) < HALF_SMALLEST:
        return False
    if node.target is aten.instance_norm.default:
        return bool(given["use_input_stats"]) and given["running_mean"] is None and value.dim() >= 3
    return _epsilon(node) > 0 and (node.target in ROWS or value.dim() >= 3)


def _rows(program: ExportedProgram, node: Any) -> Any:
    source, given = node.args[0], arguments(node)
    shape, axes = list(source.meta["val"].shape), len(given["normalized_shape"])
    length = math.prod(shape[len(shape) - axes :])
    flat = reshaped(program, node, source, [*shape[:-axes], length])
    half = flat.meta["val"].dtype == torch.float16

    def average(tensor: Any) -> Any:
        return (pooled_average if half else row_average)(program, node, tensor)

    if node.target is aten.layer_norm.default:
        flat = step(program, node, aten.sub.Tensor, flat, row_average(program, node, flat))
        if half:
            # What was lost of the average is the average of the rest.
            flat = step(program, node, aten.sub.Tensor, flat, average(flat))
    result = _divided(program, node, flat, average, length)
    return _affine(program, node, reshaped(program, node, result, shape), given["weight"], given.get("bias"))


def _image(program: ExportedProgram, node: Any) -> Any:
    source, given = node.args[0], arguments(node)
    shape = list(source.meta["val"].shape)
    batch, channels, pixels = shape[0], shape[1], math.prod(shape[2:])
    groups = given.get("num_groups", channels)
    image = source if len(shape) == 4 else step(program, node, aten.reshape.default, source, [*shape[:2], pixels, 1])

    def average(tensor: Any) -> Any:
        """Average over the pixels, then over the channels of a group, and give it to each of its channels."""
        mean = step(program, node, aten.mean.dim, tensor, [2, 3], True)
        if groups != channels:
            size = channels // groups
            members = step(program, node, aten.reshape.default, mean, [batch * groups, size])
            ones = constant(program, torch.ones(1, size, dtype=mean.meta["val"].dtype))
            spread = step(program, node, aten.mul.Tensor, pooled_average(program, node, members), ones)
            mean = step(program, node, aten.reshape.default, spread, [batch, channels, 1, 1])
        return mean

    centred = step(program, node, aten.sub.Tensor, image, average(image))
    result = _divided(program, node, centred, average, channels // groups * pixels)
    factors = (given["weight"], given["bias"])
    weights = [w and step(program, node, aten.reshape.default, w, [1, channels, 1, 1]) for w in factors]
    result = _affine(program, node, result, *weights)
    return reshaped(program, node, result, shape)


def _divided(program: ExportedProgram, node: Any, centred: Any, average: Average, length: int) -> Any:
    """Return `centred`, divided by the root of the average of its squares and epsilon."""

    def do(target: Any, *args: Any) -> Any:
        return step(program, node, target, *args)

    epsilon = _epsilon(node)
    if centred.meta["val"].dtype == torch.float32:
        square = average(do(aten.mul.Tensor, centred, centred))
        shifted = do(aten.add.Tensor, square, number(program, square, epsilon))
        return do(aten.mul.Tensor, centred, do(aten.rsqrt.default, shifted))
    # One value can be `length` / 2 times the average size; 255 is the largest whose square is a number in fp16. Beyond
    # 16 the squares of too many others would vanish: values of more than 4080 times the average size count as that.
    smaller = min(max(length / 2 / 255, 1.0), 16.0)
    root = number(program, centred, math.sqrt(epsilon))
    size = do(aten.add.Tensor, average(do(aten.abs.default, centred)), root)
    scaled, shift = do(aten.div.Tensor, centred, size), do(aten.div.Tensor, root, size)
    if smaller > 1:
        scaled = do(aten.mul.Tensor, scaled, number(program, centred, 1 / smaller))
        shift = do(aten.mul.Tensor, shift, number(program, centred, 1 / smaller))
    # The limit also keeps XNNPACK from fusing square and average into an operator that it has in fp32 only, which would
    # drag all that follows to fp32.
    square = do(aten.hardtanh.default, do(aten.mul.Tensor, scaled, scaled), 0.0, HALF_LARGEST)
    shifted = do(aten.add.Tensor, average(square), do(aten.mul.Tensor, shift, shift))
    return do(aten.mul.Tensor, scaled, do(aten.rsqrt.default, shifted))


def _affine(program: ExportedProgram, node: Any, result: Any, weight: Any, bias: Any) -> Any:
    if weight is not None and weight:
        result = step(program, node, aten.mul.Tensor, result, weight)
    return result if bias is None else step(program, node, aten.add.Tensor, result, bias)
