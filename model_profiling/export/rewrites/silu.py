"""SiLU and GLU in fp16 without conversions to fp32, so that they stay inside the delegate.

PyTorch decomposes silu(x), and glu's gate with it, into a conversion to fp32, sigmoid, multiplication and a conversion
back, although XNNPACK takes sigmoid and multiplication in fp16; it takes no conversions, so each SiLU cuts the graph in
two places. In fp16 throughout, the result is rounded once more: off by one or two of fp16's last digits. In fp32
nothing is converted and there is nothing to gain.
"""

from typing import Any

import torch

from model_profiling.export.rewrites.graph import in_half_precision, step

aten = torch.ops.aten


def find(program: torch.export.ExportedProgram) -> list[Any]:
    """Return every SiLU and GLU of a half-precision tensor."""
    return in_half_precision(program, aten.silu.default, aten.silu_.default, aten.glu.default)


def write(program: torch.export.ExportedProgram, node: Any) -> Any:
    """Write x * sigmoid(x) for every SiLU, and a * sigmoid(b) for every GLU."""
    x, gated = _halves(program, node) if node.target is aten.glu.default else (node.args[0], node.args[0])
    return step(program, node, aten.mul.Tensor, x, step(program, node, aten.sigmoid.default, gated))


def _halves(program: torch.export.ExportedProgram, node: Any) -> tuple[Any, Any]:
    source, dim = node.args[0], node.args[1] if len(node.args) > 1 else -1
    width = source.meta["val"].shape[dim]
    first = step(program, node, aten.slice.Tensor, source, dim, 0, width // 2)
    return first, step(program, node, aten.slice.Tensor, source, dim, width // 2, width)
