"""Concatenations, and parts that are taken out of a tensor."""

import math
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.layout.order import Layout, common_cut
from model_profiling.export.rewrites.layout.pointwise import common_cuts, own_cuts
from model_profiling.export.rewrites.layout.rebuild import Rebuild
from model_profiling.export.rewrites.layout.values import Value, fixed, image_of, value_of

aten = torch.ops.aten


def cat(rb: Rebuild, node: Any) -> Value | None:
    """Concatenate along a dimension that lies together in each input's memory."""
    values = [rb.layout_of(entry) for entry in node.args[0]]
    held = [value for value in values if value is not None]
    if len(held) != len(values) or not fixed(node.meta["val"]) or len({len(value.shape) for value in held}) != 1:
        return None
    if all(value.layout.is_contiguous and not value.is_image for value in held):
        return None
    dim = (node.args[1] if len(node.args) > 1 else 0) % len(held[0].shape)
    if any(value.like_image for value in held):
        return image_of(rb.copy_node(node, ([rb.image(value) for value in held], dim)))
    if any(len(value.layout.dims[dim]) > 1 for value in held):
        return None
    return _joined(rb, node, held, dim)


def _joined(rb: Rebuild, node: Any, held: list[Value], dim: int) -> Value | None:
    rest = [replace(value, layout=without(value.layout, dim)) for value in held]
    cuts = common_cuts(rest)
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


def without(layout: Layout, dim: int) -> Layout:
    dims = tuple(() if d == dim else sizes for d, sizes in enumerate(layout.dims))
    return Layout(dims, tuple(axis for axis in layout.order if axis[0] != dim))


def slice_or_select(rb: Rebuild, node: Any) -> Value | None:
    """Take a slice or one place of a dimension."""
    value = rb.layout_of(node.args[0])
    if value is None or not value.shape:
        return None
    dim, start, end, stride = _range(node, value.shape)
    if stride == 1 and start == 0 and end == value.shape[dim] and node.target is aten.slice.Tensor:
        return value
    drop = node.target is aten.select.int
    if value.layout.is_contiguous and not value.is_image and not drop and stride == 1:
        return None
    return _part(rb, value, dim, start, end, stride, drop)


def _range(node: Any, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    if node.target is aten.select.int:
        dim = node.args[1] % len(shape)
        place = node.args[2] % shape[dim]
        return dim, place, place + 1, 1
    given: list[Any] = [*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :]]
    dim = given[0] % len(shape)
    return dim, *slice(*given[1:]).indices(shape[dim])


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


def split(rb: Rebuild, node: Any) -> list[Value] | None:
    """Split a dimension into all its parts."""
    value = rb.layout_of(node.args[0])
    results = node.meta["val"]
    if value is None or not all(fixed(result) for result in results):
        return None
    drop = node.target is aten.unbind.int
    place = {aten.unbind.int: 1}.get(node.target, 2)
    dim = (node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)) % len(value.shape)
    widths = [1 if drop else result.shape[dim] for result in results]
    if not value.is_image and len(value.layout.dims[dim]) != 1:
        return None
    ends = [sum(widths[: number + 1]) for number in range(len(widths))]
    parts = [_part(rb, value, dim, end - width, end, 1, drop) for width, end in zip(widths, ends, strict=True)]
    return [part for part in parts if part is not None] if None not in parts else None
