"""Gates in fp16 that PyTorch's decompositions compute in fp32 stay in fp16, and so inside the delegate.

silu(x), and glu's gate with it, becomes a conversion to fp32, sigmoid, multiplication and a conversion back, although
XNNPACK takes sigmoid and multiplication in fp16; it takes no conversions, so each SiLU cuts the graph in two places.
hardsigmoid(x) likewise. In fp16 throughout, the result is rounded once more: off by one or two of fp16's last digits.
In fp32 nothing is converted and there is nothing to gain.
"""

from typing import Any

import torch

from model_profiling.export.rewrites.graph import in_half_precision, step, write_anew

aten = torch.ops.aten


def fp16_silus(program: torch.export.ExportedProgram) -> list[Any]:
    return in_half_precision(program, aten.silu.default, aten.silu_.default, aten.glu.default)


def silu(program: torch.export.ExportedProgram) -> int:
    """Write x * sigmoid(x) for every SiLU, and a * sigmoid(b) for every GLU, of a half-precision tensor."""
    return write_anew(program, fp16_silus(program), _gated)


def _gated(program: torch.export.ExportedProgram, node: Any) -> Any:
    x, gated = _halves(program, node) if node.target is aten.glu.default else (node.args[0], node.args[0])
    return step(program, node, aten.mul.Tensor, x, step(program, node, aten.sigmoid.default, gated))


def _halves(program: torch.export.ExportedProgram, node: Any) -> tuple[Any, Any]:
    source, dim = node.args[0], node.args[1] if len(node.args) > 1 else -1
    width = source.meta["val"].shape[dim]
    first = step(program, node, aten.slice.Tensor, source, dim, 0, width // 2)
    return first, step(program, node, aten.slice.Tensor, source, dim, width // 2, width)


def fp16_hardsigmoids(program: torch.export.ExportedProgram) -> list[Any]:
    return in_half_precision(program, aten.hardsigmoid.default, aten.hardsigmoid_.default)


def hardsigmoid(program: torch.export.ExportedProgram) -> int:
    """Write x / 6 + 1/2, cut off at 0 and 1, for every hardsigmoid of a half-precision tensor."""
    return write_anew(program, fp16_hardsigmoids(program), _cut_line)


def _cut_line(program: torch.export.ExportedProgram, node: Any) -> Any:
    sloped = step(program, node, aten.mul.Tensor, node.args[0], 1 / 6)
    shifted = step(program, node, aten.add.Tensor, sloped, 0.5)
    return step(program, node, aten.hardtanh.default, shifted, 0.0, 1.0)
