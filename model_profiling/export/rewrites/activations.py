"""Activations in fp16 from operators that XNNPACK takes in fp16, so that they stay inside the delegate.

PyTorch decomposes silu(x), and glu's gate with it, into a conversion to fp32, sigmoid, multiplication and a conversion
back, although XNNPACK takes sigmoid and multiplication in fp16; it takes no conversions, so each SiLU cuts the graph in
two places. In fp16 throughout, the result is rounded once more: off by one or two of fp16's last digits. In fp32
nothing is converted and there is nothing to gain. Hardsigmoid is x / 6 + 1/2, cut off at 0 and 1.

XNNPACK takes no GELU in fp16. gelu(x) is nearly x * sigmoid(1.5958 x + 0.0714 x^3), its well-known tanh form. Done in
fp16 it is off by at most 0.0021 between -6 and 6, where eager PyTorch's fp16 GELU is off by 0.0010. Very large inputs
overflow on the way to the right answer: x, or zero.
"""

import math
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import NodeRewrite, in_half_precision, step

aten = torch.ops.aten
_LINEAR = math.sqrt(8 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def _of(write: Any, *targets: Any) -> NodeRewrite:
    return NodeRewrite(lambda program: in_half_precision(program, *targets), write)


def _gelu(program: ExportedProgram, node: Any) -> Any:
    x = node.args[0]
    square = step(program, node, aten.mul.Tensor, x, x)
    slope = step(program, node, aten.add.Tensor, step(program, node, aten.mul.Tensor, square, _CUBIC), _LINEAR)
    gate = step(program, node, aten.sigmoid.default, step(program, node, aten.mul.Tensor, x, slope))
    return step(program, node, aten.mul.Tensor, x, gate)


def _hardsigmoid(program: ExportedProgram, node: Any) -> Any:
    sloped = step(program, node, aten.mul.Tensor, node.args[0], 1 / 6)
    return step(program, node, aten.hardtanh.default, step(program, node, aten.add.Tensor, sloped, 0.5), 0.0, 1.0)


def _silu(program: ExportedProgram, node: Any) -> Any:
    """Write x * sigmoid(x) for a SiLU, and a * sigmoid(b) for a GLU."""
    x = gated = node.args[0]
    if node.target is aten.glu.default:
        dim = node.args[1] if len(node.args) > 1 else -1
        width = x.meta["val"].shape[dim]
        parts = ((0, width // 2), (width // 2, width))
        x, gated = (step(program, node, aten.slice.Tensor, node.args[0], dim, *part) for part in parts)
    return step(program, node, aten.mul.Tensor, x, step(program, node, aten.sigmoid.default, gated))


GELU_TANH = _of(_gelu, aten.gelu.default)
HARDSIGMOID = _of(_hardsigmoid, aten.hardsigmoid.default, aten.hardsigmoid_.default)
SILU = _of(_silu, aten.silu.default, aten.silu_.default, aten.glu.default)
