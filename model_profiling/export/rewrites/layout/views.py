"""Views, permutes and copies, parts and concatenations: nothing moves until an operator computes with the result."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.graph import arguments, permutation_of
from model_profiling.export.rewrites.layout.images import of_images
from model_profiling.export.rewrites.layout.order import (
    Layout,
    TensorMemory,
    Value,
    common_cut,
    common_cuts,
    fixed,
    image_of,
    own_cuts,
    value_of,
    without,
)
from model_profiling.export.rewrites.layout.rebuild import Rebuild, ValueRule

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


def view_rule(rb: Rebuild, node: Any, value: Value) -> Value | None:
    if not fixed(node.meta["val"]):
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


def permute_rule(rb: Rebuild, node: Any, value: Value) -> Value:
    return at_once(rb, node, replace(value, layout=value.layout.permuted(permutation_of(node)), moves=node))


def copy_rule(rb: Rebuild, node: Any, value: Value) -> Any:
    if not fixed(node.meta["val"]) or value.shape != tuple(node.meta["val"].shape):
        return None
    if node.kwargs.get("memory_format") is torch.channels_last:
        return of_images(rb, node, value)
    if node.target in (aten.dropout.default, aten.feature_dropout.default) and node.args[2]:
        return None
    return value if node.meta["val"].dtype == node.args[0].meta["val"].dtype else None


def shuffle_rule(views: Callable[..., tuple[Sequence[int], Sequence[int]]]) -> ValueRule:
    """Return the rule of an operator that is a view, a permute and a view."""

    def rule(rb: Rebuild, node: Any, value: Value) -> Value | None:
        if len(value.shape) != 4:
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


def cat(rb: Rebuild, node: Any) -> Value | None:
    """Concatenate along a dimension that lies together in each input's memory."""
    values = [rb.layout_of(entry) for entry in node.args[0]]
    held = [value for value in values if value is not None]
    if len(held) != len(values) or not fixed(node.meta["val"]) or len({len(value.shape) for value in held}) != 1:
        return None
    if all(value.layout.is_contiguous and not value.is_image for value in held):
        return None
    dim = arguments(node)["dim"] % len(held[0].shape)
    if any(value.like_image for value in held):
        return image_of(rb.copy_node(node, ([rb.image(value) for value in held], dim)))
    if any(len(value.layout.dims[dim]) > 1 for value in held):
        return None
    return _joined(rb, node, held, dim)


def _joined(rb: Rebuild, node: Any, held: list[Value], dim: int) -> Value | None:
    cuts = common_cuts([replace(value, layout=without(value.layout, dim)) for value in held])
    if cuts is None:
        return None
    largest = max(held, key=lambda value: (math.prod(value.shape), value.layout.is_contiguous))
    leading = largest.layout.cut(own_cuts(largest, {d: cut for d, cut in cuts.items() if d != dim}))
    own = (dim, 0)
    place = leading.order.index(own) if own in leading.order else 0
    order = tuple(axis for axis in leading.order if axis != own)
    inputs = []
    for value in held:
        cut = replace(value, layout=value.layout.cut(own_cuts(value, {d: c for d, c in cuts.items() if d != dim})))
        here = (own,) if own in cut.layout.order else ()
        wanted = order[:place] + here + order[place:]
        sizes = cut.layout.sizes
        shape = math.prod(sizes(order[:place])), value.shape[dim], math.prod(sizes(order[place:]))
        inputs.append(rb.view(rb.moved(cut, wanted), shape))
    width = node.meta["val"].shape[dim]
    dims = tuple((width,) if d == dim else sizes for d, sizes in enumerate(leading.dims))
    made = rb.copy_node(node, (inputs, 1))
    return value_of(Layout(dims, (*order[:place], own, *order[place:])), made, largest)


def slice_or_select(rb: Rebuild, node: Any, value: Value) -> Value | None:
    """Take a slice or one place of a dimension."""
    if not value.shape:
        return None
    given = arguments(node)
    dim = given["dim"] % len(value.shape)
    size = value.shape[dim]
    if node.target is aten.select.int:
        start, stride = given["index"] % size, 1
        end = start + 1
    else:
        start, end, stride = slice(given["start"], given["end"], given["step"]).indices(size)
    if stride == 1 and start == 0 and end == value.shape[dim] and node.target is aten.slice.Tensor:
        return value
    drop = node.target is aten.select.int
    if value.layout.is_contiguous and not value.is_image and not drop and stride == 1:
        return None
    return _part(rb, value, dim, start, end, stride, drop)


def _part(rb: Rebuild, value: Value, dim: int, start: int, end: int, stride: int, drop: bool) -> Value | None:
    if value.is_image and stride == 1 and not drop:
        return image_of(rb.step(aten.slice.Tensor, value.memory.image, dim, start, end))
    layout = value.layout
    size = layout.shape[dim]
    if stride != 1:
        rb.saved.append(rb.at)
        if size % stride or start >= stride or end < size - stride + start + 1:
            return None
        cut = common_cut(layout.dims[dim], (size // stride, stride)) if size > stride else (stride,)
        if cut is None or len(cut) != (2 if size > stride else 1):
            return None
        value = replace(value, layout=layout.cut({dim: cut}))
        own, taken = (dim, len(cut) - 1), (start, start + 1)
    elif len(layout.dims[dim]) != 1:
        return None
    else:
        own, taken = (dim, 0), (start, end)
    return _narrowed(rb, value, own, taken, drop)


def _narrowed(rb: Rebuild, value: Value, own: tuple[int, int], taken: tuple[int, int], drop: bool) -> Value | None:
    layout, (dim, number) = value.layout, own
    place = layout.order.index(own)
    before, after = layout.sizes(layout.order[:place]), layout.sizes(layout.order[place + 1 :])
    width = taken[1] - taken[0]
    if width < 1:
        return None
    seen = rb.view(value, (math.prod(before), layout.size(own), math.prod(after)))
    made = rb.step(aten.slice_copy.Tensor, seen, 1, *taken)
    sizes = list(layout.dims[dim])
    sizes[number] = width
    order = layout.order
    if width == 1:
        del sizes[number]
        order = tuple((d, n - (d == dim and n > number)) for d, n in order if (d, n) != own)
    kept = Layout(tuple(tuple(sizes) if d == dim else s for d, s in enumerate(layout.dims)), order)
    named = kept.reshaped([size for d, size in enumerate(kept.shape) if d != dim]) if drop else kept
    return value_of(named, made, value) if named is not None else None


def split(rb: Rebuild, node: Any, value: Value) -> list[Value] | None:
    """Split a dimension into all its parts."""
    results, drop = node.meta["val"], node.target is aten.unbind.int
    if not all(fixed(result) for result in results):
        return None
    dim = arguments(node)["dim"] % len(value.shape)
    widths = [1 if drop else result.shape[dim] for result in results]
    if not value.is_image and len(value.layout.dims[dim]) != 1:
        return None
    ends = [sum(widths[: number + 1]) for number in range(len(widths))]
    parts = [_part(rb, value, dim, end - width, end, 1, drop) for width, end in zip(widths, ends, strict=True)]
    return [part for part in parts if part is not None] if None not in parts else None
