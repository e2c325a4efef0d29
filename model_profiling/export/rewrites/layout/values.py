"""Values of new tensors: their layout and memory."""

from typing import Any

from model_profiling.export.rewrites.layout.order import Layout
from model_profiling.export.rewrites.layout.rebuild import IMAGE_DIMS, Memory, Value


def value_of(layout: Layout, node: Any, source: Value | None = None) -> Value:
    """Return the value of a new tensor in this order, which it has from `source`."""
    moves = source.moves if source is not None and not layout.is_contiguous else None
    maker = source.memory.maker if source is not None else None
    return Value(layout.simplified(), Memory(flat=node, maker=maker), moves)


def image_of(node: Any) -> Value:
    """Return the value of an operator on images: a 4-D tensor with its channels last in memory."""
    layout = Layout.contiguous(node.meta["val"].shape)
    return Value(Layout(layout.dims, layout.among(IMAGE_DIMS)), Memory(image=node))
