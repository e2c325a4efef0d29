"""Averages along an axis as products with a constant, the form in which XNNPACK takes them; for rewrites to build on.

A sum in the order of the axis loses a digit per power of ten of its length. Where the length has a divisor near its
root, the average is taken in two steps, each over few values: as accurate as PyTorch's own.
"""

import math
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import constant, step

aten = torch.ops.aten
# Shorter rows are summed at once.
LONG = 64


def row_average(program: ExportedProgram, like: Any, rows: Any, scale: float = 1.0) -> Any:
    """Return `scale` times the average over the last axis, which stays with length 1."""
    value = rows.meta["val"]
    *outer, length = value.shape
    part = _part(length)
    if part > 1:
        pieces = step(program, like, aten.reshape.default, rows, [*outer, length // part, part])
        averages = _linear(program, like, pieces, 1.0)
        rows = step(program, like, aten.reshape.default, averages, [*outer, length // part])
    return _linear(program, like, rows, scale)


def pooled_average(program: ExportedProgram, like: Any, rows: Any) -> Any:
    """Return the same by average pooling: slower, but in fp16 it is added up in fp32.

    A product of fp16 is added up in fp16, where XNNPACK flushes what is below 6e-5 to zero, parts of a sum too.
    """
    *outer, length = rows.meta["val"].shape
    images = step(program, like, aten.reshape.default, rows, [math.prod(outer), 1, length, 1])
    average = step(program, like, aten.mean.dim, images, [2, 3], True)
    return step(program, like, aten.reshape.default, average, [*outer, 1])


def _linear(program: ExportedProgram, like: Any, rows: Any, scale: float) -> Any:
    value = rows.meta["val"]
    weight = torch.full((1, value.shape[-1]), scale / value.shape[-1], dtype=value.dtype)
    return step(program, like, aten.linear.default, rows, constant(program, weight))


def _part(length: int) -> int:
    if length <= LONG:
        return 1
    part = max(size for size in range(1, int(length**0.5) + 1) if length % size == 0)
    return length // part if part > 3 else 1
