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
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import calls, constant, known_value, replace, replace_uses, step

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


def find(program: ExportedProgram) -> list[Any]:
    """Return the copies and views that run outside the delegate, and need not."""
    return [node for node in calls(program, *EXPANDING, *REPEATING, *SPLITTING, *VIEWING) if _fits(node)]


def apply(program: ExportedProgram) -> int:
    """Replace each; return how many there were."""
    found = find(program)
    for node in found:
        with program.graph.inserting_before(node):
            if node.target in SPLITTING:
                _split(program, node)
            else:
                result = _changed(program, node)
                if result is node.args[0]:
                    replace_uses(program, node, result)
                    program.graph.erase_node(node)
                else:
                    replace(program, node, result)
    program.graph_module.recompile()
    return len(found)


def _fits(node: Any) -> bool:
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


def _changed(program: ExportedProgram, node: Any) -> Any:
    source, shape = node.args[0], list(node.meta["val"].shape)
    if node.target is aten.select.int:
        axis, place = node.args[1] % source.meta["val"].dim(), node.args[2] % source.meta["val"].shape[node.args[1]]
        piece = step(program, node, aten.slice.Tensor, source, axis, place, place + 1)
        return step(program, node, aten.view.default, piece, shape)
    if node.target in VIEWING:
        return step(program, node, aten.view.default, source, shape)
    if _same_shape(node):
        return source
    if node.target in EXPANDING:
        if all(_broadcasts(user, node) for user in node.users):
            return source
        value = known_value(program, source)
        if value is not None and math.prod(shape) <= LARGEST_CONSTANT:
            return constant(program, value.expand(shape).contiguous())
    for outer, times, inner in _repetitions(node):
        ones = constant(program, torch.ones(1, times, 1, dtype=node.meta["val"].dtype))
        flat = step(program, node, aten.reshape.default, source, [outer, 1, inner])
        source = step(program, node, aten.mul.Tensor, flat, ones)
    return step(program, node, aten.reshape.default, source, shape)


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


def _split(program: ExportedProgram, node: Any) -> None:
    source = node.args[0]
    place = 1 if node.target is aten.unbind.int else 2
    axis = int(node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)) % source.meta["val"].dim()
    start, starts = 0, []
    for value in node.meta["val"]:
        starts.append(start)
        start += 1 if node.target is aten.unbind.int else value.shape[axis]
    for user in list(node.users):
        value, begin = user.meta["val"], starts[user.args[1]]
        length = 1 if node.target is aten.unbind.int else value.shape[axis]
        result = step(program, user, aten.slice.Tensor, source, axis, begin, begin + length)
        if node.target is aten.unbind.int:
            result = step(program, user, aten.view.default, result, list(value.shape))
        replace_uses(program, user, result)
        program.graph.erase_node(user)
    program.graph.erase_node(node)
