"""Copies that XNNPACK does not take go, or become slices, views and products with ones, which it takes.

`expand` to the shape that a tensor has goes; so does one in front of arithmetic that broadcasts by itself. Any other
expand, `repeat` and `repeat_interleave` multiply by ones, one for each copy. `select`, `unbind`, `chunk` and `split`
become slices. `squeeze` and `unsqueeze` become views, which cost nothing outside a delegate and are allowed inside. All
values stay the same bit by bit, and what was a view of a tensor remains one.
"""

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch

from model_profiling.export.rewrites.graph import NodeRewrite, Site, known_value

aten = torch.ops.aten
ARITHMETIC = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
EXPANDING = (aten.expand.default, aten.expand_as.default)
REPEATING = (aten.repeat.default, aten.repeat_interleave.self_int)
SPLITTING = (
    *(aten.unbind.int, aten.chunk.default),
    *(aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default),
)
VIEWING = (*(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), *(aten.unsqueeze.default, aten.select.int))
# An expanded constant is stored, unless that makes the file much larger.
LARGEST_CONSTANT = 1 << 20


def _fits(site: Site) -> bool:
    node = site.node
    if node.target is aten.unsqueeze.default:
        # At the end of the shape it is delegated.
        return bool(node.args[1] not in (-1, node.args[0].meta["val"].dim()))
    if node.target is aten.repeat_interleave.self_int:
        return len(node.args) == 3 and isinstance(node.args[1], int) and node.args[2] is not None and not node.kwargs
    if node.target in SPLITTING:
        return all(user.target is operator.getitem for user in node.users)
    # A signature names its outputs; a tensor that would be an input and an output at once stays a copy.
    return not (_same_shape(node) and any(user.op == "output" for user in node.users))


def _same_shape(node: Any) -> bool:
    return bool(node.args[0].meta["val"].shape == node.meta["val"].shape)


def _changed(site: Site) -> Any:
    node, source = site.node, site.source
    if node.target in SPLITTING:
        return _split(site)
    shape = list(site.value.shape)
    if node.target is aten.select.int:
        axis, place = node.args[1] % source.meta["val"].dim(), node.args[2] % source.meta["val"].shape[node.args[1]]
        source = site(aten.slice.Tensor, source, axis, place, place + 1)
    if node.target in VIEWING:
        return site(aten.view.default, source, shape)
    if _same_shape(node):
        return source
    if node.target in EXPANDING:
        if all(_broadcasts(user, node) for user in node.users):
            return source
        value = known_value(site.program, source)
        if value is not None and math.prod(shape) <= LARGEST_CONSTANT:
            return site.constant(value.expand(shape).contiguous())
    for outer, times, inner in _repetitions(node):
        ones = site.constant(torch.ones(1, times, 1, dtype=node.meta["val"].dtype))
        source = site(aten.mul.Tensor, site.reshape(source, [outer, 1, inner]), ones)
    return site.reshape(source, shape)


def _broadcasts(user: Any, node: Any) -> bool:
    """Return whether a user of an expanded tensor computes the same without the expand."""
    if user.target not in ARITHMETIC or user.kwargs:
        return False
    values = [node.args[0] if entry is node else entry for entry in user.args]
    shapes = [entry.meta["val"].shape for entry in values if isinstance(entry, torch.fx.Node)]
    return bool(torch.broadcast_shapes(*shapes) == user.meta["val"].shape)


def _repetitions(node: Any) -> Iterator[tuple[int, int, int]]:
    """Yield for each axis that grows how many pieces there are, how often each is repeated, and its values."""
    before = list(node.args[0].meta["val"].shape)
    after = list(node.meta["val"].shape)
    before = [1] * (len(after) - len(before)) + before
    for axis in reversed(range(len(after))):
        times, behind = after[axis] // before[axis], math.prod(after[axis + 1 :])
        if times > 1 and node.target is aten.repeat_interleave.self_int:
            yield math.prod(before[: axis + 1]), times, behind
        elif times > 1:
            yield math.prod(before[:axis]), times, before[axis] * behind


def _split(site: Site) -> None:
    unbinds = site.node.target is aten.unbind.int
    axis = site.given["dim"] % site.source.meta["val"].dim()
    lengths = [1 if unbinds else value.shape[axis] for value in site.value]
    for user in list(site.node.users):
        part, end = Site(site.program, user), sum(lengths[: user.args[1] + 1])
        result = part(aten.slice.Tensor, site.source, axis, end - lengths[user.args[1]], end)
        part.replace(part(aten.view.default, result, list(part.value.shape)) if unbinds else result)
    site.program.graph.erase_node(site.node)


REWRITES = [NodeRewrite([*EXPANDING, *REPEATING, *SPLITTING, *VIEWING], _fits, _changed)]
