"""GELU in fp16, which XNNPACK does not take, becomes multiplications and a sigmoid, which it takes.

gelu(x) is nearly x * sigmoid(1.5958 x + 0.0714 x^3), its well-known tanh form. Done in fp16 it is off by at most 0.0021
between -6 and 6, where eager PyTorch's fp16 GELU is off by 0.0010. Very large inputs overflow on the way to the right
answer: x, or zero.
"""

import math
from typing import Any

import torch

from model_profiling.export.rewrites.graph import in_half_precision, step

aten = torch.ops.aten
_LINEAR = math.sqrt(8 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def find(program: torch.export.ExportedProgram) -> list[Any]:
    """Return every GELU of a half-precision tensor."""
    return in_half_precision(program, aten.gelu.default)


def write(program: torch.export.ExportedProgram, node: Any) -> Any:
    """Replace each by its tanh form."""
    x = node.args[0]
    square = step(program, node, aten.mul.Tensor, x, x)
    slope = step(program, node, aten.add.Tensor, step(program, node, aten.mul.Tensor, square, _CUBIC), _LINEAR)
    gate = step(program, node, aten.sigmoid.default, step(program, node, aten.mul.Tensor, x, slope))
    return step(program, node, aten.mul.Tensor, x, gate)
