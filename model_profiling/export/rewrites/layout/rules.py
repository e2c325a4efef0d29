"""The table of rules, by operator.

A rule says what the operator needs of the order of its inputs, and returns the result with its layout; or None: then
the operator is done as it stands, on contiguous inputs.
"""

import operator
from typing import Any

import torch

from model_profiling.export.rewrites.graph import PADDING
from model_profiling.export.rewrites.layout.images import (
    OF_IMAGES,
    get_item,
    group_norm,
    mean,
    nearest,
    of_images,
    padding,
)
from model_profiling.export.rewrites.layout.parts import cat, slice_or_select, split
from model_profiling.export.rewrites.layout.products import SOFTMAX, layer_norm, linear, matmul, softmax
from model_profiling.export.rewrites.layout.rebuild import Rule
from model_profiling.export.rewrites.layout.views import (
    KEEPING,
    PERMUTING,
    RENAMING,
    channel_shuffle,
    copy_rule,
    permute_rule,
    pixel_shuffle,
    pixel_unshuffle,
    shuffle_rule,
    view_rule,
)

aten = torch.ops.aten


def rule_table() -> dict[Any, Rule]:
    table: dict[Any, Rule] = {
        aten.linear.default: linear,
        aten.layer_norm.default: layer_norm,
        aten.group_norm.default: group_norm,
        aten.mean.dim: mean,
        aten.cat.default: cat,
        aten.slice.Tensor: slice_or_select,
        aten.select.int: slice_or_select,
        aten.matmul.default: matmul,
        aten.bmm.default: matmul,
        aten.pixel_shuffle.default: shuffle_rule(pixel_shuffle),
        aten.pixel_unshuffle.default: shuffle_rule(pixel_unshuffle),
        aten.channel_shuffle.default: shuffle_rule(channel_shuffle),
        aten.upsample_nearest2d.vec: nearest,
        aten.upsample_nearest2d.default: nearest,
        operator.getitem: get_item,
    }
    for targets, rule in (
        (RENAMING, view_rule), (PERMUTING, permute_rule), (KEEPING, copy_rule), (OF_IMAGES, of_images),
        (PADDING, padding), (SOFTMAX, softmax),
        ((aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int), split),
    ):  # fmt: skip
        table.update(dict.fromkeys(targets, rule))
    return table
