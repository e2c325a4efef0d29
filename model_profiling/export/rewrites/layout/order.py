"""In which order a tensor's values lie in memory, whatever its dimensions are called: views and permutes as algebra.

A dimension is a product of axes: `reshape(2, 8, 3)` of 48 values may need the 8 as 4 x 2 later. A view or a permute
changes which axes a dimension consists of, and moves nothing. What has to be moved is decided by who computes with the
tensor: a convolution wants its channels last in memory, a matrix multiplication its rows and columns.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch._subclasses import FakeTensor

Axis = tuple[int, int]
"""The dimension an axis belongs to, and its number in that dimension, outermost first."""


@dataclass(frozen=True)
class Layout:
    """A tensor's dimensions, each as the sizes of its axes (none has size 1), and all axes in the order of memory."""

    dims: tuple[tuple[int, ...], ...]
    order: tuple[Axis, ...]

    @staticmethod
    def contiguous(shape: Iterable[int]) -> "Layout":
        dims = tuple((size,) if size != 1 else () for size in shape)
        return Layout(dims, tuple((d, 0) for d, axes in enumerate(dims) if axes))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(axes) for axes in self.dims)

    @cached_property
    def is_contiguous(self) -> bool:
        return self.order == tuple(sorted(self.order))

    def size(self, axis: Axis) -> int:
        return self.dims[axis[0]][axis[1]]

    def sizes(self, axes: Iterable[Axis]) -> list[int]:
        return [self.size(axis) for axis in axes]

    def of(self, dim: int) -> tuple[Axis, ...]:
        """Return the axes of a dimension, outermost first."""
        return tuple((dim, number) for number in range(len(self.dims[dim])))

    def among(self, dims: Sequence[int]) -> tuple[Axis, ...]:
        """Return the axes of these dimensions as contiguous memory would have them."""
        return tuple(axis for dim in dims for axis in self.of(dim))

    def in_memory(self, dims: Iterable[int]) -> tuple[Axis, ...]:
        """Return the axes of these dimensions in the order of memory."""
        chosen = set(dims)
        return tuple(axis for axis in self.order if axis[0] in chosen)

    def permuted(self, permutation: Sequence[int]) -> "Layout":
        place = {old: new for new, old in enumerate(permutation)}
        return Layout(tuple(self.dims[old] for old in permutation), tuple((place[d], n) for d, n in self.order))

    def reordered(self, order: tuple[Axis, ...]) -> "Layout":
        return Layout(self.dims, order).simplified()

    def reshaped(self, shape: Sequence[int]) -> "Layout | None":
        """Return the layout of a view of this shape; None if no cut of the axes gives its dimensions."""
        if math.prod(shape) != math.prod(self.shape):
            return None
        parts: dict[Axis, list[tuple[int, Axis]]] = {axis: [] for axis in self.order}
        waiting = [(axis, self.size(axis)) for axis in self.among(range(len(self.dims)))][::-1]
        dims: list[tuple[int, ...]] = []
        for dim, size in enumerate(shape):
            taken: list[int] = []
            while (missing := size // math.prod(taken)) > 1:
                axis, left = waiting.pop()
                piece = math.gcd(missing, left)
                if piece not in (missing, left):
                    return None
                if piece < left:
                    waiting.append((axis, left // piece))
                parts[axis].append((piece, (dim, len(taken))))
                taken.append(piece)
            dims.append(tuple(taken))
        return Layout(tuple(dims), tuple(new for axis in self.order for _, new in parts[axis])).simplified()

    def cut(self, cuts: dict[int, tuple[int, ...]]) -> "Layout":
        """Cut dimensions into smaller axes, of the sizes given, each of which divides one that is there."""
        pieces: dict[Axis, list[Axis]] = {}
        dims = list(self.dims)
        for dim, sizes in cuts.items():
            waiting = list(enumerate(sizes))[::-1]
            for number, whole in enumerate(self.dims[dim]):
                left = whole
                while left > 1:
                    new, size = waiting.pop()
                    pieces.setdefault((dim, number), []).append((dim, new))
                    left //= size
            dims[dim] = tuple(sizes)
        return Layout(tuple(dims), tuple(new for axis in self.order for new in pieces.get(axis, [axis])))

    def simplified(self) -> "Layout":
        """Join axes that follow each other both in their dimension and in memory."""
        joined: dict[Axis, Axis] = {}
        dims: list[tuple[int, ...]] = []
        after = dict(itertools.pairwise(self.order))
        for dim, sizes in enumerate(self.dims):
            merged: list[int] = []
            for number, size in enumerate(sizes):
                if number and after.get((dim, number - 1)) == (dim, number):
                    merged[-1] *= size
                else:
                    joined[dim, number] = (dim, len(merged))
                    merged.append(size)
            dims.append(tuple(merged))
        return Layout(tuple(dims), tuple(joined[axis] for axis in self.order if axis in joined))


def common_cut(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the coarsest axes that both cuts of a dimension can be made of; None if there are none."""
    ends = sorted({*itertools.accumulate(first, lambda a, b: a * b), *itertools.accumulate(second, lambda a, b: a * b)})
    sizes = []
    before = 1
    for end in ends:
        if end % before:
            return None
        sizes.append(end // before)
        before = end
    return tuple(sizes)


def runs(order: Sequence[Axis], apart: Sequence[frozenset[Axis]]) -> list[list[Axis]]:
    """Group neighbours in memory that no set of `apart` tells apart: fewer dimensions for the same values."""
    found: list[list[Axis]] = []
    for axis in order:
        if found and all((axis in group) == (found[-1][-1] in group) for group in apart):
            found[-1].append(axis)
        else:
            found.append([axis])
    return found


def transposition(before: Layout, order: tuple[Axis, ...]) -> tuple[list[int], list[int]]:
    """Return the shape to see memory in, and the permutation of that shape, that bring it into `order`."""
    follows = dict(itertools.pairwise(order))
    blocks: list[list[Axis]] = []
    for axis in before.order:
        if blocks and follows.get(blocks[-1][-1]) == axis:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    place = {block[0]: number for number, block in enumerate(blocks)}
    permutation = [place[axis] for axis in order if axis in place]
    return [math.prod(before.sizes(block)) for block in blocks], permutation


def without(layout: Layout, dim: int) -> Layout:
    dims = tuple(() if d == dim else sizes for d, sizes in enumerate(layout.dims))
    return Layout(dims, tuple(axis for axis in layout.order if axis[0] != dim))


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

    def cut(self, cuts: dict[int, tuple[int, ...]]) -> "Value":
        """Return the same with its dimensions cut into these axes, but for those of size 1."""
        return replace(self, layout=self.layout.cut({dim: cuts[dim] for dim in cuts if self.layout.dims[dim]}))


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


def common_cuts(layouts: Iterable[Layout]) -> dict[int, tuple[int, ...]] | None:
    """Return for each dimension the axes that all tensors can be cut into."""
    cuts: dict[int, tuple[int, ...]] = {}
    for dim, sizes in ((dim, sizes) for layout in layouts for dim, sizes in enumerate(layout.dims) if sizes):
        both = common_cut(cuts[dim], sizes) if dim in cuts else sizes
        if both is None:
            return None
        cuts[dim] = both
    return cuts
