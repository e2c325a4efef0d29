"""Reductions over an image's pixels that XNNPACK does not take become the one that it takes.

That is the mean of a 4-D tensor over height and width which keeps its dimensions (global average pooling). A mean that
drops them keeps them and is followed by a view; a sum is the mean times the number of pixels. Other reductions stay:
XNNPACK takes none of them, with or without their dimensions.
"""

from typing import Any

import torch

from model_profiling.export.rewrites.graph import step

aten = torch.ops.aten


def find(program: torch.export.ExportedProgram) -> list[Any]:
    """Return the means and sums over height and width of an image that XNNPACK does not take as they are."""
    found = []
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target not in (aten.mean.dim, aten.sum.dim_IntList):
            continue
        source, dims = node.args[0].meta["val"], node.args[1]
        static = all(isinstance(size, int) for size in source.shape)
        over_pixels = bool(dims) and source.dim() == 4 and sorted(dim % 4 for dim in dims) == [2, 3]
        own_dtype = node.meta["val"].dtype == source.dtype and source.is_floating_point()
        taken = node.target is aten.mean.dim and _keeps(node)
        if static and over_pixels and own_dtype and not taken and node.kwargs.get("dtype") is None:
            found.append(node)
    return found


def write(program: torch.export.ExportedProgram, node: Any) -> Any:
    """Compute each by a mean that keeps its dimensions."""
    height, width = node.args[0].meta["val"].shape[2:]
    result = step(program, node, aten.mean.dim, node.args[0], [2, 3], True)
    if node.target is aten.sum.dim_IntList:
        result = step(program, node, aten.mul.Tensor, result, float(height * width))
    return result if _keeps(node) else step(program, node, aten.view.default, result, list(node.meta["val"].shape))


def _keeps(node: Any) -> bool:
    return len(node.args) > 2 and bool(node.args[2])
