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

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from model_profiling.export.rewrites.graph import NodeRewrite, Site
from model_profiling.export.rewrites.reductions import pooled_average, row_average

aten = torch.ops.aten
ROWS = (aten.layer_norm.default, aten.rms_norm.default)
IMAGES = (aten.group_norm.default, aten.instance_norm.default)
# Measured with ExecuTorch 1.5.1: sums of so many values in fp16 are off.
WRONG_FROM = 256
HALF_LARGEST, HALF_SMALLEST = 65504.0, 2.0**-14

Average = Callable[[Any], Any]


def _epsilon(site: Site) -> float:
    given = site.given["eps"]
    # An RMS norm without one takes the smallest step from 1, of the type it computes in.
    return float(torch.finfo(torch.float32).eps if given is None else given)


def _fits(site: Site) -> bool:
    value, given = site.value, site.given
    weights = [given[name] for name in ("weight", "bias") if given.get(name) is not None]
    if value.dtype != site.source.meta["val"].dtype or any(w.meta["val"].dtype != value.dtype for w in weights):
        return False
    if value.dtype == torch.float16 and math.sqrt(_epsilon(site)) < HALF_SMALLEST:
        return False
    if site.node.target is aten.instance_norm.default:
        return bool(given["use_input_stats"]) and given["running_mean"] is None and value.dim() >= 3
    return _epsilon(site) > 0 and (site.node.target in ROWS or value.dim() >= 3)


def _is_wrong(site: Site) -> bool:
    """Return whether ExecuTorch's own kernel gets a layer norm wrong: in fp16, over long rows."""
    return site.value.dtype == torch.float16 and math.prod(site.node.args[1]) >= WRONG_FROM and _fits(site)


def _rows(site: Site) -> Any:
    given, shape = site.given, list(site.source.meta["val"].shape)
    axes = len(given["normalized_shape"])
    length = math.prod(shape[len(shape) - axes :])
    flat = site.reshaped(site.source, [*shape[:-axes], length])
    half = flat.meta["val"].dtype == torch.float16
    average = functools.partial(pooled_average if half else row_average, site)
    if site.node.target is aten.layer_norm.default:
        flat = site(aten.sub.Tensor, flat, row_average(site, flat))
        if half:
            # What was lost of the average is the average of the rest.
            flat = site(aten.sub.Tensor, flat, average(flat))
    result = _divided(site, flat, average, length)
    return _affine(site, site.reshaped(result, shape), given["weight"], given.get("bias"))


def _image(site: Site) -> Any:
    given, shape = site.given, list(site.source.meta["val"].shape)
    batch, channels, pixels = shape[0], shape[1], math.prod(shape[2:])
    groups = given.get("num_groups", channels)
    image = site.source if len(shape) == 4 else site.reshape(site.source, [*shape[:2], pixels, 1])

    def average(tensor: Any) -> Any:
        """Average over the pixels, then over the channels of a group, and give it to each of its channels."""
        mean = site(aten.mean.dim, tensor, [2, 3], True)
        if groups != channels:
            size = channels // groups
            members = site.reshape(mean, [batch * groups, size])
            ones = site.constant(torch.ones(1, size, dtype=mean.meta["val"].dtype))
            mean = site.reshape(site(aten.mul.Tensor, pooled_average(site, members), ones), [batch, channels, 1, 1])
        return mean

    centred = site(aten.sub.Tensor, image, average(image))
    result = _divided(site, centred, average, channels // groups * pixels)
    weights = [each and site.reshape(each, [1, channels, 1, 1]) for each in (given["weight"], given["bias"])]
    return site.reshaped(_affine(site, result, *weights), shape)


def _divided(site: Site, centred: Any, average: Average, length: int) -> Any:
    """Return `centred`, divided by the root of the average of its squares and epsilon."""
    epsilon = _epsilon(site)
    if centred.meta["val"].dtype == torch.float32:
        square = average(site(aten.mul.Tensor, centred, centred))
        shifted = site(aten.add.Tensor, square, site.number(square, epsilon))
        return site(aten.mul.Tensor, centred, site(aten.rsqrt.default, shifted))
    # One value can be `length` / 2 times the average size; 255 is the largest whose square is a number in fp16. Beyond
    # 16 the squares of too many others would vanish: values of more than 4080 times the average size count as that.
    smaller = min(max(length / 2 / 255, 1.0), 16.0)
    root = site.number(centred, math.sqrt(epsilon))
    size = site(aten.add.Tensor, average(site(aten.abs.default, centred)), root)
    scaled, shift = site(aten.div.Tensor, centred, size), site(aten.div.Tensor, root, size)
    if smaller > 1:
        scaled = site(aten.mul.Tensor, scaled, site.number(centred, 1 / smaller))
        shift = site(aten.mul.Tensor, shift, site.number(centred, 1 / smaller))
    # The limit also keeps XNNPACK from fusing square and average into an operator that it has in fp32 only, which would
    # drag all that follows to fp32.
    square = site(aten.hardtanh.default, site(aten.mul.Tensor, scaled, scaled), 0.0, HALF_LARGEST)
    shifted = site(aten.add.Tensor, average(square), site(aten.mul.Tensor, shift, shift))
    return site(aten.mul.Tensor, scaled, site(aten.rsqrt.default, shifted))


def _affine(site: Site, result: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        result = site(aten.mul.Tensor, result, weight)
    return result if bias is None else site(aten.add.Tensor, result, bias)


REWRITES = [
    NodeRewrite([*ROWS, *IMAGES], _fits, lambda site: _rows(site) if site.node.target in ROWS else _image(site))
]
WRONG_IN_HALF = [NodeRewrite([aten.layer_norm.default], _is_wrong, _rows)]
