"""Programs that have every kind of matrix node XNNPACK chooses a kernel for: what the table of kernels is made from.

Each layer is there in sizes that a choice might depend on: few, odd and many channels, one row and several, with and
without bias. Where two of one kind would run different kernels, the table's maker finds that and refuses.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

_CHANNELS = (1, 2, 3, 7, 16, 17, 33, 64)
_ROWS = (1, 2, 4, 5, 9, 17, 65)
# int4 in groups takes whole groups only.
_GROUPED_SIZES = ((32, 1), (64, 5), (96, 16), (128, 33))
Layer = tuple[nn.Module, tuple[int, ...]]


class _Side(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A product whose other side is a constant, or computed from the input."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *shape: int, left: bool = False) -> None:
        super().__init__()
        self.side = nn.Parameter(torch.randn(*shape)) if shape else None
        self.function, self.left = function, left

    def forward(self, x: Tensor) -> Tensor:
        other = x.transpose(-1, -2).sigmoid() if self.side is None else self.side
        return self.function(other, x) if self.left else self.function(x, other)


class _Attention(nn.Module):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        heads = x.view(1, -1, 2, 8).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads.sigmoid(), heads.tanh())


class Layers(nn.Module):  # type: ignore[misc]
    """Independent layers, each with an input of its own."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.shapes = nn.ModuleList(), list[tuple[int, ...]]()
        for layer, shape in layers:
            self.layers.append(layer)
            self.shapes.append(shape)

    def example_inputs(self) -> tuple[Tensor, ...]:
        return tuple(torch.randn(shape) for shape in self.shapes)

    def forward(self, *inputs: Tensor) -> tuple[object, ...]:
        return tuple(layer(x) for layer, x in zip(self.layers, inputs, strict=True))


def _convolutions() -> Iterator[Layer]:
    conv, up = nn.Conv2d, nn.ConvTranspose2d
    for channels in _CHANNELS:
        for size in (1, 3):
            yield conv(channels, max(channels, 2), size, padding=size // 2), (1, channels, 6, 6)
    for bias in (True, False):
        yield conv(8, 16, 1, bias=bias), (1, 8, 5, 7)
        yield conv(8, 16, 3, bias=bias), (1, 8, 5, 7)
        yield up(8, 16, 2, stride=2, bias=bias), (1, 8, 5, 7)
    yield conv(8, 1, 1), (1, 8, 6, 6)
    yield conv(8, 1, 3), (1, 8, 6, 6)
    yield conv(8, 16, 1, stride=2), (1, 8, 6, 6)
    yield conv(8, 16, 1, padding=1), (1, 8, 6, 6)
    yield conv(8, 16, 1, stride=2), (1, 8, 1, 1)
    yield conv(8, 16, (1, 3)), (1, 8, 6, 6)
    yield conv(8, 16, (5, 2), stride=(2, 1)), (2, 8, 9, 6)
    yield conv(8, 16, 3, dilation=2), (1, 8, 9, 9)
    yield conv(8, 16, 5), (1, 8, 5, 5)
    yield conv(8, 16, 1), (1, 8, 1, 1)
    yield conv(8, 16, 1), (3, 8, 4, 4)
    yield nn.Sequential(conv(8, 16, 3), nn.ReLU()), (1, 8, 6, 6)
    yield nn.Sequential(conv(8, 16, 1), nn.ReLU6()), (1, 8, 6, 6)
    yield conv(8, 16, 3, groups=2), (1, 8, 6, 6)
    yield conv(8, 16, 1, groups=2), (1, 8, 6, 6)
    yield conv(8, 4, 3, groups=4), (1, 8, 6, 6)
    yield conv(8, 16, 5, groups=2), (1, 8, 5, 5)
    yield conv(8, 16, 1, groups=2), (1, 8, 1, 1)
    for size, out in ((1, 8), (3, 8), (3, 16), (5, 8), (9, 8)):
        yield conv(8, out, size, groups=8), (1, 8, 11, 11)
    yield conv(8, 8, 5, groups=8), (1, 8, 5, 5)
    yield conv(1, 4, 5), (1, 1, 5, 5)
    yield nn.Conv1d(8, 16, 3), (1, 8, 9)
    yield nn.Conv1d(8, 16, 1), (1, 8, 9)
    yield nn.Conv1d(8, 8, 3, groups=8), (1, 8, 9)
    for channels in (2, 3, 17, 33):
        yield up(channels, channels + 1, 3), (1, channels, 5, 5)
    yield up(8, 16, 1), (1, 8, 5, 5)
    yield up(8, 16, 3, stride=2, padding=1, output_padding=1), (1, 8, 5, 5)
    yield up(8, 16, 4, stride=2, padding=1), (2, 8, 5, 5)
    yield up(8, 16, 2, stride=2), (1, 8, 1, 1)
    yield up(8, 16, 3), (1, 8, 1, 1)
    yield up(8, 16, 3, groups=2), (1, 8, 5, 5)
    yield up(8, 16, 3, groups=2), (1, 8, 1, 1)


def _products() -> Iterator[Layer]:
    for channels in _CHANNELS:
        for rows in (1, 4):
            yield nn.Linear(channels, channels + 1), (rows, channels)
    yield from _linear()
    yield _Side(torch.mm, 8, 5), (4, 8)
    yield _Side(torch.mm, 8, 5), (1, 8)
    for batch, rows in ((1, 4), (2, 4), (2, 1), (1, 1), (3, 17)):
        yield _Side(torch.bmm, batch, 8, 5), (batch, rows, 8)
        yield _Side(torch.bmm), (batch, rows, 8)
        yield _Side(torch.bmm, batch, rows, 8, left=True), (batch, 8, 5)
        yield _Side(torch.bmm, left=True), (batch, 8, rows)
    yield _Attention(), (1, 6, 16)
    yield _Attention(), (1, 1, 16)


def _linear() -> Iterator[Layer]:
    for rows in _ROWS:
        yield nn.Linear(64, 48), (rows, 64)
    for size, out in _GROUPED_SIZES:
        for rows in (1, 6):
            yield nn.Linear(size, out, bias=rows == 1), (rows, size)
            yield nn.Linear(size, out, bias=rows > 1), (1, rows, size)
    yield nn.Linear(64, 32), (2, 3, 64)
    yield nn.Linear(64, 32), (2, 3, 4, 64)
    yield nn.Sequential(nn.Linear(64, 32), nn.ReLU()), (4, 64)


class Convolutions(Layers):
    def __init__(self) -> None:
        super().__init__(_convolutions())


class Products(Layers):
    def __init__(self) -> None:
        super().__init__(_products())


class Everything(Layers):
    """For dtypes that quantize linear layers only, and refuse a model without one."""

    def __init__(self) -> None:
        super().__init__((*_convolutions(), *_products()))
