"""Rules of views, permutes and copies: nothing moves until an operator computes with the result."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.layout.images import of_images
from model_profiling.export.rewrites.layout.order import Layout
from model_profiling.export.rewrites.layout.rebuild import Rebuild, Rule
from model_profiling.export.rewrites.layout.values import TensorMemory, Value, fixed, value_of

aten = torch.ops.aten

RENAMING = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints, aten.unflatten.int,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.view_copy.default,
    aten.view_as.default, aten.reshape_as.default,
}  # fmt: skip
PERMUTING = {
    aten.permute.default, aten.transpose.int, aten.t.default, aten.movedim.intlist, aten.movedim.int,
    aten.swapaxes.default, aten.swapdims.default, aten.moveaxis.int, aten.moveaxis.intlist, aten.numpy_T.default,
    aten.mT.default, aten.permute_copy.default, aten.adjoint.default,
}  # fmt: skip
# Operators that only say in which order values are to be.
CHANGING = PERMUTING | {aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.channel_shuffle.default}
KEEPING = {
    aten.contiguous.default, aten.clone.default, aten.detach.default, aten.alias.default, aten.expand.default,
    aten.dropout.default, aten.feature_dropout.default, aten.lift_fresh_copy.default, aten.expand_as.default,
    aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default, aten._to_copy.default,
}  # fmt: skip


def view_rule(rb: Rebuild, node: Any) -> Value | None:
    value = rb.layout_of(node.args[0])
    if value is None or not fixed(node.meta["val"]):
        return None
    shape = tuple(node.meta["val"].shape)
    layout = value.layout.reshaped(shape) if node.name not in rb.plan.at_once else None
    if value.like_image and not value.layout.is_contiguous:
        # Lowered as it stands, a view has an image turned first.
        rb.viewed.append(node)
        value = replace(value, moves=node)
    if layout is not None:
        return replace(value, layout=layout)
    # The view joins what does not lie together in memory: its values have to be in their usual order.
    plain = rb.view(Value(Layout.contiguous(value.shape), TensorMemory(flat=rb.contiguous(value))), shape)
    return value_of(Layout.contiguous(shape), plain)


def at_once(rb: Rebuild, node: Any, value: Value) -> Value:
    """Move the values now, if that was found to be better than later."""
    if node.name not in rb.plan.at_once or value.layout.is_contiguous:
        return value
    return Value(Layout.contiguous(value.shape), TensorMemory(flat=rb.contiguous(value)))


def permute_rule(rb: Rebuild, node: Any) -> Value | None:
    value = rb.layout_of(node.args[0])
    if value is None:
        return None
    # Dimensions told apart by their sizes show where each goes.
    by_size = torch.empty([2 + dim for dim in range(len(value.shape))], device="meta")
    permutation = [size - 2 for size in node.target(by_size, *node.args[1:], **node.kwargs).shape]
    return at_once(rb, node, replace(value, layout=value.layout.permuted(permutation), moves=node))


def copy_rule(rb: Rebuild, node: Any) -> Any:
    value = rb.layout_of(node.args[0])
    if value is None or not fixed(node.meta["val"]) or value.shape != tuple(node.meta["val"].shape):
        return None
    if node.kwargs.get("memory_format") is torch.channels_last:
        return of_images(rb, node)
    if node.target in (aten.dropout.default, aten.feature_dropout.default) and node.args[2]:
        return None
    return value if node.meta["val"].dtype == node.args[0].meta["val"].dtype else None


def shuffle_rule(views: Callable[..., tuple[Sequence[int], Sequence[int]]]) -> Rule:
    """Return the rule of an operator that is a view, a permute and a view."""

    def rule(rb: Rebuild, node: Any) -> Value | None:
        value = rb.layout_of(node.args[0])
        if value is None or len(value.shape) != 4:
            return None
        shape, permutation = views(value.shape, *node.args[1:])
        cut = value.layout.reshaped(shape)
        if not value.layout.is_contiguous:
            rb.saved.append(node)
        joined = cut and cut.permuted(permutation).reshaped(tuple(node.meta["val"].shape))
        return at_once(rb, node, replace(value, layout=joined, moves=node)) if joined is not None else None

    return rule


def pixel_shuffle(shape: Sequence[int], factor: int) -> tuple[Sequence[int], Sequence[int]]:
    n, c, h, w = shape
    return (n, c // factor**2, factor, factor, h, w), (0, 1, 4, 2, 5, 3)


def pixel_unshuffle(shape: Sequence[int], factor: int) -> tuple[Sequence[int], Sequence[int]]:
    n, c, h, w = shape
    return (n, c, h // factor, factor, w // factor, factor), (0, 1, 3, 5, 2, 4)


def channel_shuffle(shape: Sequence[int], groups: int) -> tuple[Sequence[int], Sequence[int]]:
    n, c, h, w = shape
    return (n, groups, c // groups, h, w), (0, 2, 1, 3, 4)
