"""Values of the rebuilt graph: a layout, and the memory that it names."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses import FakeTensor

from model_profiling.export.rewrites.layout.order import Axis, Layout

IMAGE_DIMS = (0, 2, 3, 1)


@dataclass
class TensorMemory:
    """A tensor of the new graph: `flat` has its values in the order of memory, `image` is the same memory as NCHW."""

    flat: Any = None
    image: Any = None
    views: dict[tuple[int, ...], Any] = field(default_factory=dict)
    images: dict[tuple[int, ...], Any] = field(default_factory=dict)
    turned: bool = False
    # The layer whose outputs lie innermost in this memory, side by side.
    maker: Any = None
    # The operator whose image this is, or was before arithmetic.
    origin: Any = None
    moved: dict[tuple[Layout, tuple[Axis, ...]], "TensorMemory"] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """What a node of the model gives. `moves` is the model's own permute that is still to be done, if there is one."""

    layout: Layout
    memory: TensorMemory
    moves: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def is_image(self) -> bool:
        """Return whether memory is in the order of an image, and this is the image by name too."""
        image = self.memory.image
        return image is not None and self.in_image_order and tuple(image.meta["val"].shape) == self.shape

    @property
    def in_image_order(self) -> bool:
        return len(self.layout.dims) == 4 and self.layout.order == self.layout.among(IMAGE_DIMS)

    @property
    def like_image(self) -> bool:
        """Return whether this is an image, or costs nothing to be one and is not in its usual order."""
        return self.is_image or (self.in_image_order and not self.layout.is_contiguous)


def value_of(layout: Layout, node: Any, source: Value | None = None) -> Value:
    """Return the value of a new tensor in this order, which it has from `source`."""
    moves = source.moves if source is not None and not layout.is_contiguous else None
    maker = source.memory.maker if source is not None else None
    return Value(layout.simplified(), TensorMemory(flat=node, maker=maker), moves)


def image_of(node: Any) -> Value:
    """Return the value of an operator on images: a 4-D tensor with its channels last in memory."""
    layout = Layout.contiguous(node.meta["val"].shape)
    return Value(Layout(layout.dims, layout.among(IMAGE_DIMS)), TensorMemory(image=node))


def is_known(node: Any) -> bool:
    """Return whether an operator can be computed of what a node gives: its tensors are torch.export's own."""
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return value is not None and not any(isinstance(p, torch.Tensor) and not isinstance(p, FakeTensor) for p in parts)


def fixed(value: Any) -> bool:
    """Return whether this is one tensor, of a size known now."""
    return (
        isinstance(value, FakeTensor)
        and all(isinstance(size, int) for size in value.shape)
        and value.numel() > 0
        and not value.is_sparse
    )
