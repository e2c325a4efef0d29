"""Which rule an operator has.

A rule says what the operator asks of the order of its inputs, and returns how the result is held; or None: then the
operator is done as it stands, on contiguous inputs.
"""

import operator
from typing import Any

import torch

from model_profiling.export.rewrites.layout.images import (
    OF_IMAGES,
    PADDING,
    group_norm,
    mean,
    nearest,
    of_images,
    padding,
    picking,
)
from model_profiling.export.rewrites.layout.parts import joining, parting, taking
from model_profiling.export.rewrites.layout.products import SOFTMAX, layer_norm, linear, multiplying, softmax
from model_profiling.export.rewrites.layout.rebuild import Rule
from model_profiling.export.rewrites.layout.views import (
    KEEPING,
    PERMUTING,
    RENAMING,
    channel_shuffle,
    keeping,
    permuting,
    pixel_shuffle,
    pixel_unshuffle,
    renaming,
    shuffling,
)

aten = torch.ops.aten


def rule_table() -> dict[Any, Rule]:
    table: dict[Any, Rule] = {
        aten.linear.default: linear,
        aten.layer_norm.default: layer_norm,
        aten.group_norm.default: group_norm,
        aten.mean.dim: mean,
        aten.cat.default: joining,
        aten.slice.Tensor: taking,
        aten.select.int: taking,
        aten.matmul.default: multiplying,
        aten.bmm.default: multiplying,
        aten.pixel_shuffle.default: shuffling(pixel_shuffle),
        aten.pixel_unshuffle.default: shuffling(pixel_unshuffle),
        aten.channel_shuffle.default: shuffling(channel_shuffle),
        aten.upsample_nearest2d.vec: nearest,
        aten.upsample_nearest2d.default: nearest,
        operator.getitem: picking,
    }
    for targets, rule in (
        (RENAMING, renaming), (PERMUTING, permuting), (KEEPING, keeping), (OF_IMAGES, of_images), (PADDING, padding),
        (SOFTMAX, softmax),
        ((aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int), parting),
    ):  # fmt: skip
        table.update(dict.fromkeys(targets, rule))
    return table
