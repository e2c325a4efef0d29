"""What each operator asks of the order of its inputs, and the order of what it gives.

A rule returns how the result is held, or None: then the operator is done as it stands, on contiguous inputs.
"""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.layout.order import Layout, common_cut, runs
from model_profiling.export.rewrites.layout.rebuild import IMAGE_DIMS, Memory, Rebuild, Rule, Value, fixed
from model_profiling.graph_terms import TO_NCHW

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
KEEPING = {
    aten.contiguous.default, aten.clone.default, aten.detach.default, aten.alias.default, aten.expand.default,
    aten.dropout.default, aten.feature_dropout.default, aten.lift_fresh_copy.default, aten.expand_as.default,
    aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default, aten._to_copy.default,
}  # fmt: skip
OF_IMAGES = {
    aten.conv2d.default, aten.conv2d.padding, aten.conv_transpose2d.input, aten.max_pool2d.default,
    aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default, aten.upsample_bilinear2d.vec,
    aten.upsample_bilinear2d.default, aten.batch_norm.default, aten.prelu.default, aten.convolution.default,
    aten._native_batch_norm_legit_no_training.default, aten.max_pool2d_with_indices.default,
}  # fmt: skip
ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}
PADDING = {aten.pad.default, aten.constant_pad_nd.default}
SOFTMAX = {aten.softmax.int, aten._softmax.default}


def held_as(layout: Layout, node: Any) -> Value:
    return Value(layout.simplified(), Memory(flat=node))


def image_of(node: Any) -> Value:
    """What an operator on images gives: a 4-D tensor with its channels last in memory."""
    layout = Layout.contiguous(node.meta["val"].shape)
    return Value(Layout(layout.dims, layout.among(IMAGE_DIMS)), Memory(image=node))


def renaming(rb: Rebuild, node: Any) -> Value | None:
    value = rb.held(node.args[0])
    if value is None or not fixed(node.meta["val"]):
        return None
    shape = tuple(node.meta["val"].shape)
    layout = value.layout.reshaped(shape)
    if layout is not None:
        return replace(value, layout=layout)
    # The view joins what does not lie together in memory: its values have to be in their usual order.
    plain = rb.seen(Value(Layout.contiguous(value.shape), Memory(flat=rb.contiguous(value))), shape)
    return held_as(Layout.contiguous(shape), plain)


def permuting(rb: Rebuild, node: Any) -> Value | None:
    value = rb.held(node.args[0])
    if value is None:
        return None
    # Dimensions told apart by their sizes show where each goes.
    told_apart = torch.empty([2 + dim for dim in range(len(value.shape))], device="meta")
    permutation = [size - 2 for size in node.target(told_apart, *node.args[1:], **node.kwargs).shape]
    return replace(value, layout=value.layout.permuted(permutation), moves=node)


def keeping(rb: Rebuild, node: Any) -> Value | None:
    value = rb.held(node.args[0])
    if value is None or not fixed(node.meta["val"]) or value.shape != tuple(node.meta["val"].shape):
        return None
    if node.kwargs.get("memory_format") is torch.channels_last:
        return of_images(rb, node)
    if node.target in (aten.dropout.default, aten.feature_dropout.default) and node.args[2]:
        return None
    return value if node.meta["val"].dtype == node.args[0].meta["val"].dtype else None


def shuffling(views: Callable[..., tuple[Sequence[int], Sequence[int]]]) -> Rule:
    """An operator that is a view, a permute and a view."""

    def rule(rb: Rebuild, node: Any) -> Value | None:
        value = rb.held(node.args[0])
        if value is None or len(value.shape) != 4:
            return None
        shape, permutation = views(value.shape, *node.args[1:])
        cut = value.layout.reshaped(shape)
        joined = cut and cut.permuted(permutation).reshaped(tuple(node.meta["val"].shape))
        return joined and replace(value, layout=joined, moves=node)

    return rule


def _pixel_shuffle(shape: Sequence[int], factor: int) -> tuple[Sequence[int], Sequence[int]]:
    n, c, h, w = shape
    return (n, c // factor**2, factor, factor, h, w), (0, 1, 4, 2, 5, 3)


def _pixel_unshuffle(shape: Sequence[int], factor: int) -> tuple[Sequence[int], Sequence[int]]:
    n, c, h, w = shape
    return (n, c, h // factor, factor, w // factor, factor), (0, 1, 3, 5, 2, 4)


def _channel_shuffle(shape: Sequence[int], groups: int) -> tuple[Sequence[int], Sequence[int]]:
    n, c, h, w = shape
    return (n, groups, c // groups, h, w), (0, 2, 1, 3, 4)


def of_images(rb: Rebuild, node: Any) -> Any:
    value = rb.held(node.args[0])
    if value is None or len(value.shape) != 4:
        return None
    others = torch.fx.map_arg(node.args[1:], rb._plain)
    made = rb.again(node, (rb.image(value), *others))
    return image_of(made) if fixed(made.meta["val"]) else made


def padding(rb: Rebuild, node: Any) -> Any:
    return rb.values[node.args[0]] if not any(node.args[1]) else of_images(rb, node)


def picking(rb: Rebuild, node: Any) -> Any:
    """One of several results."""
    held = rb.values[node.args[0]]
    if isinstance(held, list):
        return held[node.args[1]]
    made = rb.again(node, (held, node.args[1]))
    images = held.target in OF_IMAGES and fixed(made.meta["val"]) and made.meta["val"].dim() == 4
    return image_of(made) if images else rb.own(made)


def pointwise(rb: Rebuild, node: Any) -> Value | None:
    """Any order will do, as long as all have the same."""
    operands = list(dict.fromkeys(node.all_input_nodes))
    values = {entry: rb.held(entry) for entry in operands}
    if not fixed(node.meta["val"]) or any(value is None for value in values.values()) or node.kwargs.get("out"):
        return None
    held: dict[Any, Value] = {entry: value for entry, value in values.items() if value is not None}
    shape = tuple(node.meta["val"].shape)
    full = [value for value in held.values() if value.shape == shape]
    if not full or all(value.layout.is_contiguous and not value.is_image for value in full):
        return None
    if any(value.like_image for value in full):
        return image_of(_applied(rb, node, {entry: _as_image(rb, value) for entry, value in held.items()}))
    return _in_one_order(rb, node, held, full)


def _applied(rb: Rebuild, node: Any, inputs: dict[Any, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda entry: inputs[entry])
    return rb.again(node, _floats(node, args), kwargs)


def _floats(node: Any, args: Any) -> Any:
    """Whole numbers beside floating-point tensors as such: otherwise ExecuTorch converts each while the model runs."""
    if node.target not in ARITHMETIC or not node.meta["val"].is_floating_point():
        return args
    return tuple(float(arg) if type(arg) is int and abs(arg) < 2**11 else arg for arg in args)


def _as_image(rb: Rebuild, value: Value) -> Any:
    """Broadcast to four dimensions by name, so that it can be held as an image."""
    layout = value.layout.reshaped((1,) * (4 - len(value.shape)) + value.shape)
    assert layout is not None
    return rb.image(replace(value, layout=layout))


def _in_one_order(rb: Rebuild, node: Any, held: dict[Any, Value], full: list[Value]) -> Value | None:
    rank = len(full[0].shape)
    lifted = {entry: _lifted(value, rank) for entry, value in held.items()}
    cuts = _common_cuts(list(lifted.values()))
    if cuts is None:
        return None
    cut = {entry: replace(value, layout=value.layout.cut(_own(value, cuts))) for entry, value in lifted.items()}
    leading = _leading([value for value in cut.values() if value.shape == full[0].shape])
    order = leading.layout.order
    present = {entry: frozenset(value.layout.order) for entry, value in cut.items()}
    groups = runs(order, list(present.values()))
    inputs = {}
    for entry, value in cut.items():
        wanted = tuple(axis for axis in order if axis in present[entry])
        sizes = [math.prod(value.layout.sizes(g)) if g[0] in present[entry] else 1 for g in groups]
        inputs[entry] = rb.seen(rb.moved(value, wanted), sizes or [1])
    return held_as(leading.layout, _applied(rb, node, inputs))


def _lifted(value: Value, rank: int) -> Value:
    layout = value.layout.reshaped((1,) * (rank - len(value.shape)) + value.shape)
    assert layout is not None
    return replace(value, layout=layout)


def _common_cuts(values: list[Value]) -> dict[int, tuple[int, ...]] | None:
    """For each dimension the axes that all tensors can be cut into."""
    cuts: dict[int, tuple[int, ...]] = {}
    for value in values:
        for dim, sizes in enumerate(value.layout.dims):
            if not sizes:
                continue
            both = common_cut(cuts[dim], sizes) if dim in cuts else sizes
            if both is None:
                return None
            cuts[dim] = both
    return cuts


def _own(value: Value, cuts: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    return {dim: cut for dim, cut in cuts.items() if value.layout.dims[dim]}


def _leading(full: list[Value]) -> Value:
    """The one whose order most others have already; of equals, one that is not in its usual order."""
    orders = [value.layout.order for value in full]
    return max(full, key=lambda value: (orders.count(value.layout.order), not value.layout.is_contiguous))


def linear(rb: Rebuild, node: Any) -> Value | None:
    value = rb.held(node.args[0])
    if value is None or len(value.shape) < 2 or not fixed(node.meta["val"]):
        return None
    last = len(value.shape) - 1
    matrix, value = rb.rows(value, last)
    others = torch.fx.map_arg(node.args[1:], rb._plain)
    made = rb.again(node, (matrix, *others))
    return held_as(_with_last(value.layout, node.meta["val"].shape[-1]), made)


def _with_last(layout: Layout, width: int) -> Layout:
    """The same with another innermost last dimension."""
    last = len(layout.dims) - 1
    rest = tuple(axis for axis in layout.order if axis[0] != last)
    own = ((last, 0),) if width != 1 else ()
    return Layout((*layout.dims[:-1], (width,) if width != 1 else ()), rest + own)


def softmax(rb: Rebuild, node: Any) -> Value | None:
    value = rb.held(node.args[0])
    if value is None or not value.shape:
        return None
    dim = node.args[1] % len(value.shape)
    axes = value.layout.in_memory([dim])
    if not axes or value.layout.is_contiguous or value.layout.order[-len(axes) :] != axes:
        return None
    width = value.shape[dim]
    matrix = rb.seen(value, (math.prod(value.shape) // width, width))
    return held_as(value.layout, rb.again(node, (matrix, -1, *node.args[2:])))


def layer_norm(rb: Rebuild, node: Any) -> Value | None:
    value = rb.held(node.args[0])
    if value is None or value.layout.is_contiguous:
        return None
    rank, count = len(value.shape), len(node.args[1])
    tail = value.layout.among(range(rank - count, rank))
    if not tail or value.layout.order[-len(tail) :] != tail:
        return None
    wide = tuple(node.args[1])
    matrix = rb.seen(value, (math.prod(value.shape) // math.prod(wide), *wide))
    others = torch.fx.map_arg(node.args[2:], rb._plain)
    return held_as(value.layout, rb.again(node, (matrix, list(wide), *others)))


def group_norm(rb: Rebuild, node: Any) -> Value | None:
    """One group is all values of an image, in any order; what is done to each channel follows."""
    value = rb.held(node.args[0])
    if value is None or not value.like_image or node.args[1] != 1 or value.layout.in_memory([0]) != value.layout.of(0):
        return None
    batch, channels = value.shape[:2]
    weight, bias, eps = (*node.args[2:5], *(None, None, 1e-5)[len(node.args[2:5]) :])
    flat = rb.seen(value, (batch, 1, math.prod(value.shape) // batch))
    made = rb.step(node.target, flat, 1, None, None, eps)
    result = rb.image(held_as(value.layout, made))
    for target, factor in ((aten.mul.Tensor, weight), (aten.add.Tensor, bias)):
        if factor is not None:
            own = rb.held(factor)
            if own is None:
                return None
            result = rb.step(target, result, _as_image(rb, replace(own, layout=Layout.contiguous((1, channels, 1, 1)))))
    return image_of(result)


def mean(rb: Rebuild, node: Any) -> Value | None:
    """Over what lies between the outermost and the innermost dimensions in memory: the mean over an image's pixels."""
    value = rb.held(node.args[0])
    result = node.meta["val"]
    if value is None or not node.args[1] or not fixed(result) or node.kwargs.get("dtype") is not None:
        return None
    over = {dim % len(value.shape) for dim in node.args[1]}
    keeps = len(node.args) > 2 and node.args[2]
    if len(value.shape) == 4 and over == {2, 3} and keeps:
        return of_images(rb, node)
    order = value.layout.order
    inside = [number for number, axis in enumerate(order) if axis[0] in over]
    if (
        value.layout.is_contiguous
        or not inside
        or inside[-1] - inside[0] + 1 != len(inside)
        or inside[-1] + 1 == len(order)
    ):
        return None
    parts = order[: inside[0]], order[inside[0] : inside[-1] + 1], order[inside[-1] + 1 :]
    outer, inner, channels = (math.prod(value.layout.sizes(part)) for part in parts)
    image = rb.step(aten.permute_copy.default, rb.seen(value, (outer, inner, 1, channels)), list(TO_NCHW))
    made = rb.step(aten.mean.dim, image, [2, 3], True)
    kept = Layout(
        tuple(() if dim in over else sizes for dim, sizes in enumerate(value.layout.dims)), parts[0] + parts[2]
    )
    layout = kept if keeps else kept.reshaped(tuple(result.shape))
    return layout and Value(layout, Memory(image=made))


def joining(rb: Rebuild, node: Any) -> Value | None:
    """A concatenation; its dimension lies together in each input's memory."""
    values = [rb.held(entry) for entry in node.args[0]]
    held = [value for value in values if value is not None]
    if len(held) != len(values) or not fixed(node.meta["val"]) or len({len(value.shape) for value in held}) != 1:
        return None
    if all(value.layout.is_contiguous and not value.is_image for value in held):
        return None
    dim = (node.args[1] if len(node.args) > 1 else 0) % len(held[0].shape)
    if any(value.like_image for value in held):
        return image_of(rb.again(node, ([rb.image(value) for value in held], dim)))
    if any(len(value.layout.dims[dim]) > 1 for value in held):
        return None
    return _joined(rb, node, held, dim)


def _joined(rb: Rebuild, node: Any, held: list[Value], dim: int) -> Value | None:
    rest = [replace(value, layout=_without(value.layout, dim)) for value in held]
    cuts = _common_cuts(rest)
    if cuts is None:
        return None
    largest = max(held, key=lambda value: (math.prod(value.shape), not value.layout.is_contiguous))
    leading = largest.layout.cut(_own(largest, {d: cut for d, cut in cuts.items() if d != dim}))
    own = (dim, 0)
    place = leading.order.index(own) if own in leading.order else 0
    order = tuple(axis for axis in leading.order if axis != own)
    inputs = []
    for value in held:
        cut = replace(value, layout=value.layout.cut(_own(value, {d: c for d, c in cuts.items() if d != dim})))
        here = (own,) if own in cut.layout.order else ()
        wanted = order[:place] + here + order[place:]
        sizes = cut.layout.sizes
        shape = math.prod(sizes(order[:place])), value.shape[dim], math.prod(sizes(order[place:]))
        inputs.append(rb.seen(rb.moved(cut, wanted), shape))
    width = node.meta["val"].shape[dim]
    dims = tuple((width,) if d == dim else sizes for d, sizes in enumerate(leading.dims))
    made = rb.again(node, (inputs, 1))
    return held_as(Layout(dims, order[:place] + (own,) + order[place:]), made)


def _without(layout: Layout, dim: int) -> Layout:
    dims = tuple(() if d == dim else sizes for d, sizes in enumerate(layout.dims))
    return Layout(dims, tuple(axis for axis in layout.order if axis[0] != dim))


def taking(rb: Rebuild, node: Any) -> Value | None:
    """A slice or one place of a dimension."""
    value = rb.held(node.args[0])
    if value is None or not value.shape:
        return None
    dim, start, end, stride = _range(node, value.shape)
    if stride == 1 and start == 0 and end == value.shape[dim] and node.target is aten.slice.Tensor:
        return value
    value = _to_part(rb, node, value)
    drop = node.target is aten.select.int
    if value.layout.is_contiguous and not value.is_image and not drop and stride == 1:
        return None
    return _part(rb, value, dim, start, end, stride, drop)


def _range(node: Any, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    if node.target is aten.select.int:
        dim = node.args[1] % len(shape)
        place = node.args[2] % shape[dim]
        return dim, place, place + 1, 1
    dim, start, end, stride = (*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :])
    dim %= len(shape)
    return dim, *slice(start, end, stride).indices(shape[dim])


def _to_part(rb: Rebuild, node: Any, value: Value) -> Value:
    """The tensor that parts are taken of: in its usual order already, if every part has to be in that."""
    if value.is_image or value.layout.is_contiguous or not _wanted_contiguous(node):
        return value
    return Value(Layout.contiguous(value.shape), Memory(flat=rb.contiguous(value)))


# Who wants its inputs contiguous, or nearly so.
MULTIPLYING = {
    aten.matmul.default, aten.bmm.default, aten.scaled_dot_product_attention.default, aten.baddbmm.default,
}  # fmt: skip


def _wanted_contiguous(node: Any) -> bool:
    """Whether all that is computed from this goes to matrix multiplications as it is named."""
    users = list(node.users)
    if not users:
        return False
    passing = KEEPING | {aten.mul.Tensor, aten.div.Tensor, operator.getitem, aten.select.int, aten.slice.Tensor}
    for user in users:
        if user.target in MULTIPLYING:
            continue
        last_two = user.target is aten.transpose.int and {dim % 4 for dim in user.args[1:3]} == {2, 3}
        if not (user.target in passing or user.target in RENAMING or last_two) or not _wanted_contiguous(user):
            return False
    return True


def _part(rb: Rebuild, value: Value, dim: int, start: int, end: int, stride: int, drop: bool) -> Value | None:
    if value.is_image and stride == 1 and not drop:
        return image_of(rb.step(aten.slice.Tensor, value.memory.image, dim, start, end))
    layout = value.layout
    size = layout.shape[dim]
    if stride != 1:
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
    seen = rb.seen(value, (math.prod(before), layout.size(own), math.prod(after)))
    made = rb.step(aten.slice_copy.Tensor, seen, 1, *taken)
    sizes = list(layout.dims[dim])
    sizes[number] = width
    order = layout.order
    if width == 1:
        del sizes[number]
        order = tuple((d, n - (d == dim and n > number)) for d, n in order if (d, n) != own)
    kept = Layout(tuple(tuple(sizes) if d == dim else s for d, s in enumerate(layout.dims)), order)
    named = kept.reshaped([size for d, size in enumerate(kept.shape) if d != dim]) if drop else kept
    return named and replace(held_as(named, made), moves=value.moves)


def parting(rb: Rebuild, node: Any) -> list[Value] | None:
    """All parts of a dimension."""
    value = rb.held(node.args[0])
    results = node.meta["val"]
    if value is None or not all(fixed(result) for result in results):
        return None
    value = _to_part(rb, node, value)
    drop = node.target is aten.unbind.int
    place = {aten.unbind.int: 1}.get(node.target, 2)
    dim = (node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)) % len(value.shape)
    widths = [1 if drop else result.shape[dim] for result in results]
    if not value.is_image and len(value.layout.dims[dim]) != 1:
        return None
    ends = [sum(widths[: number + 1]) for number in range(len(widths))]
    parts = [_part(rb, value, dim, end - width, end, 1, drop) for width, end in zip(widths, ends, strict=True)]
    return [part for part in parts if part is not None] if None not in parts else None


def multiplying(rb: Rebuild, node: Any) -> Value | None:
    """A product of matrices; the right one may lie in memory by columns, and the result with it."""
    left, right = (rb.held(entry) for entry in node.args[:2])
    if left is None or right is None or not fixed(node.meta["val"]):
        return None
    rank = len(left.shape)
    if rank < 3 or len(right.shape) != rank or left.shape[:-2] != right.shape[:-2]:
        return None
    batch = range(rank - 2)
    cuts = _common_cuts([replace(v, layout=_without(_without(v.layout, rank - 2), rank - 1)) for v in (left, right)])
    if cuts is None:
        return None
    left, right = (replace(value, layout=value.layout.cut(_own(value, cuts))) for value in (left, right))
    rows, columns = rank - 2, rank - 1
    outer = left.layout.in_memory(batch)
    if outer != right.layout.in_memory(batch):
        outer = left.layout.among(batch)
    by_columns = _innermost(right) == rows
    if by_columns and _innermost(left) == rows:
        # Both lie the other way round: so does their product, computed with the two exchanged.
        made = _product(rb, (right, (columns, rows)), (left, (rows, columns)), outer, False)
        return held_as(_of_product(node, left, outer, (columns, rows)), made)
    made = _product(
        rb, (left, (rows, columns)), (right, (columns, rows) if by_columns else (rows, columns)), outer, by_columns
    )
    return held_as(_of_product(node, left, outer, (rows, columns)), made)


def _innermost(value: Value) -> int | None:
    return value.layout.order[-1][0] if value.layout.order else None


def _product(rb: Rebuild, left: tuple[Value, Any], right: tuple[Value, Any], outer: Any, by_columns: bool) -> Any:
    matrices = []
    for value, dims in (left, right):
        inner = value.layout.among(dims)
        count = math.prod(value.layout.sizes(outer))
        moved = rb.moved(value, outer + inner)
        matrices.append(rb.seen(moved, (count, value.shape[dims[0]], value.shape[dims[1]])))
    if by_columns:
        matrices[1] = rb.step(aten.permute_copy.default, matrices[1], [0, 2, 1])
    return rb.step(aten.bmm.default, *matrices)


def _of_product(node: Any, left: Value, outer: Any, inner: tuple[int, int]) -> Layout:
    shape = node.meta["val"].shape
    rank = len(shape)
    own = tuple((size,) if size != 1 else () for size in shape[-2:])
    dims = (*left.layout.dims[: rank - 2], *own)
    return Layout(dims, outer + tuple((dim, 0) for dim in inner if dims[dim]))


def nearest(rb: Rebuild, node: Any) -> Value | None:
    """Each pixel becomes several: rows and columns of pixels are written more than once, in the order they lie in."""
    value = rb.held(node.args[0])
    if value is None or not value.like_image:
        return None
    n, c, h, w = value.shape
    height, width = node.meta["val"].shape[2:]
    if height % h or width % w:
        return None
    wide = _repeated(rb, rb.seen(value, (n, h, w, c)), (n * h * w, 1, c), width // w)
    made = _repeated(rb, wide, (n * h, 1, width * c), height // h)
    layout = Layout.contiguous((n, c, height, width))
    return held_as(Layout(layout.dims, layout.among(IMAGE_DIMS)), made)


def _repeated(rb: Rebuild, node: Any, shape: tuple[int, int, int], times: int) -> Any:
    """The middle dimension several times; as views of their own, for XNNPACK takes no tensor twice."""
    views = [rb.view(node, shape) for _ in range(times)]
    return rb.step(aten.cat.default, views, 1) if times > 1 else views[0]


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
        aten.pixel_shuffle.default: shuffling(_pixel_shuffle),
        aten.pixel_unshuffle.default: shuffling(_pixel_unshuffle),
        aten.channel_shuffle.default: shuffling(_channel_shuffle),
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
