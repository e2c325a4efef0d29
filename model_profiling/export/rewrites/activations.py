"""Activations from operators that XNNPACK takes in their dtype, so that they stay inside the delegate.

PyTorch decomposes silu(x), and glu's gate with it, into a conversion to fp32, sigmoid, multiplication and a conversion
back, although XNNPACK takes sigmoid and multiplication in fp16; it takes no conversions, so each SiLU cuts the graph in
two places. In fp16 throughout, the result is rounded once more: off by one or two of fp16's last digits. In fp32
nothing is converted and there is nothing to gain. Hardsigmoid is x / 6 + 1/2, cut off at 0 and 1: PyTorch decomposes it
with whole numbers (x + 3), which ExecuTorch converts outside the delegate, in any dtype.

XNNPACK takes no GELU in fp16. gelu(x) is nearly x * sigmoid(1.5958 x + 0.0714 x^3), its well-known tanh form. Done in
fp16 it is off by at most 0.0021 between -6 and 6, where eager PyTorch's fp16 GELU is off by 0.0010. Very large inputs
overflow on the way to the right answer: x, or zero.
"""

import math
from typing import Any

import torch

from model_profiling.export.rewrites.graph import NodeRewrite, Site, is_replaceable

aten = torch.ops.aten
_LINEAR = math.sqrt(8 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def _in_half(site: Site) -> bool:
    """Return whether it gives fp16 and can be replaced by a new tensor."""
    return bool(site.value.dtype == torch.float16) and is_replaceable(site.node)


def _in_floats(site: Site) -> bool:
    return bool(site.value.dtype in (torch.float16, torch.float32)) and is_replaceable(site.node)


def _gelu(site: Site) -> Any:
    x = site.source
    square = site(aten.mul.Tensor, x, x)
    slope = site(aten.add.Tensor, site(aten.mul.Tensor, square, _CUBIC), _LINEAR)
    return site(aten.mul.Tensor, x, site(aten.sigmoid.default, site(aten.mul.Tensor, x, slope)))


def _hardsigmoid(site: Site) -> Any:
    sloped = site(aten.mul.Tensor, site.source, 1 / 6)
    return site(aten.hardtanh.default, site(aten.add.Tensor, sloped, 0.5), 0.0, 1.0)


def _silu(site: Site) -> Any:
    """Write x * sigmoid(x) for a SiLU, and a * sigmoid(b) for a GLU."""
    x = gated = site.source
    if site.node.target is aten.glu.default:
        dim = site.given["dim"]
        width = x.meta["val"].shape[dim]
        parts = ((0, width // 2), (width // 2, width))
        x, gated = (site(aten.slice.Tensor, site.source, dim, *part) for part in parts)
    return site(aten.mul.Tensor, x, site(aten.sigmoid.default, gated))


GELU_TANH = [NodeRewrite([aten.gelu.default], _in_half, _gelu, True)]
HARDSIGMOID = [NodeRewrite([aten.hardsigmoid.default, aten.hardsigmoid_.default], _in_floats, _hardsigmoid, True)]
SILU = [NodeRewrite([aten.silu.default, aten.silu_.default, aten.glu.default], _in_half, _silu, True)]
