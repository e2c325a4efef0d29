"""How the results of operators are held."""

from typing import Any

from model_profiling.export.rewrites.layout.order import Layout
from model_profiling.export.rewrites.layout.rebuild import IMAGE_DIMS, Memory, Value


def held_as(layout: Layout, node: Any, source: Value | None = None) -> Value:
    """A new tensor in this order, which it has from `source`."""
    moves = source.moves if source is not None and not layout.is_contiguous else None
    maker = source.memory.maker if source is not None else None
    return Value(layout.simplified(), Memory(flat=node, maker=maker), moves)


def image_of(node: Any) -> Value:
    """What an operator on images gives: a 4-D tensor with its channels last in memory."""
    layout = Layout.contiguous(node.meta["val"].shape)
    return Value(Layout(layout.dims, layout.among(IMAGE_DIMS)), Memory(image=node))
