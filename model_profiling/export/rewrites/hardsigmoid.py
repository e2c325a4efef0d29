"""Hardsigmoid in fp16 without conversions to fp32, as silu.py does it for SiLU."""

from typing import Any

import torch

from model_profiling.export.rewrites.graph import in_half_precision, step

aten = torch.ops.aten


def find(program: torch.export.ExportedProgram) -> list[Any]:
    """Return every hardsigmoid of a half-precision tensor."""
    return in_half_precision(program, aten.hardsigmoid.default, aten.hardsigmoid_.default)


def write(program: torch.export.ExportedProgram, node: Any) -> Any:
    """Write x / 6 + 1/2, cut off at 0 and 1, for each of them."""
    sloped = step(program, node, aten.mul.Tensor, node.args[0], 1 / 6)
    shifted = step(program, node, aten.add.Tensor, sloped, 0.5)
    return step(program, node, aten.hardtanh.default, shifted, 0.0, 1.0)
