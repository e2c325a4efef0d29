"""Means and sums that XNNPACK does not take, as products with a constant.

Over the last axes it is a linear layer with one output (see averages.py), over the channels of an image a 1x1
convolution, which keeps the image's layout, and over an axis in the middle a product with a row of equal numbers.
Those over the pixels of an image are for `keepdim`.
"""

import math
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.averages import row_average
from model_profiling.export.rewrites.graph import calls, constant, step

aten = torch.ops.aten


def find(program: ExportedProgram) -> list[Any]:
    """Return the means and sums over neighbouring axes of a tensor."""
    return [node for node in calls(program, aten.mean.dim, aten.sum.dim_IntList) if _fits(node)]


def write(program: ExportedProgram, node: Any) -> Any:
    """Write each as a product."""
    source, axes = node.args[0], _axes(node)
    shape = list(source.meta["val"].shape)
    length = math.prod(shape[axis] for axis in axes)
    scale = float(length) if node.target is aten.sum.dim_IntList else 1.0
    if axes == [1] and len(shape) == 4:
        weight = constant(program, torch.full((1, length, 1, 1), scale / length, dtype=node.meta["val"].dtype))
        result = step(program, node, aten.conv2d.default, source, weight)
    elif axes[-1] == len(shape) - 1:
        flat = [*shape[: axes[0]], length]
        rows = source if flat == shape else step(program, node, aten.reshape.default, source, flat)
        result = row_average(program, node, rows, scale)
    else:
        batch, inner = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
        weight = torch.full((batch, 1, length), scale / length, dtype=node.meta["val"].dtype)
        flat = step(program, node, aten.reshape.default, source, [batch, length, inner])
        result = step(program, node, aten.bmm.default, constant(program, weight), flat)
    return step(program, node, aten.reshape.default, result, list(node.meta["val"].shape))


def _axes(node: Any) -> list[int]:
    rank = node.args[0].meta["val"].dim()
    return sorted(axis % rank for axis in node.args[1]) if node.args[1] else list(range(rank))


def _fits(node: Any) -> bool:
    value, axes = node.args[0].meta["val"], _axes(node)
    if not axes or axes != list(range(axes[0], axes[-1] + 1)) or value.dim() < 2:
        return False
    own_dtype = node.kwargs.get("dtype") is None and node.meta["val"].dtype == value.dtype
    return own_dtype and not (value.dim() == 4 and axes == [2, 3])
