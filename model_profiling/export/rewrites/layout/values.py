"""How the results of operators are held."""

from typing import Any

from model_profiling.export.rewrites.layout.order import Layout
from model_profiling.export.rewrites.layout.rebuild import IMAGE_DIMS, Memory, Value


def held_as(layout: Layout, node: Any) -> Value:
    return Value(layout.simplified(), Memory(flat=node))


def image_of(node: Any) -> Value:
    """What an operator on images gives: a 4-D tensor with its channels last in memory."""
    layout = Layout.contiguous(node.meta["val"].shape)
    return Value(Layout(layout.dims, layout.among(IMAGE_DIMS)), Memory(image=node))
