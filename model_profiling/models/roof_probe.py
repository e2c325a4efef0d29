"""The probe program: operators of many shapes, one after another, whose best rates are the roofs of a CPU.

It goes through the ordinary exporter and runner, so that what is measured is what any model could reach: the same
backend, the same kernels, the same clock. As in a model, most operators read what the one before has just written.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from model_profiling.models.kernel_space import Layer, Layers

# Rows, width and the width between two linear layers: an m x k by k x n product, then m x n by n x k.
_PRODUCTS = (
    *((1, 256, 1024), (4, 128, 128), (16, 64, 64), (64, 64, 64), (65, 65, 65), (49, 96, 576), (49, 192, 768)),
    *((196, 40, 120), (196, 192, 576), (196, 384, 384), (256, 512, 512), (784, 16, 96), (1024, 64, 256)),
    *((3136, 24, 72), (3136, 32, 96), (12544, 16, 16)),
)
# Heads, tokens and width of attention's two products.
_ATTENTION = ((3, 196, 64), (8, 64, 32))
# Channels in and out, side of the image, side of the window and stride; a second convolution keeps channels and size.
_CONVOLUTIONS = (
    *((3, 16, 112, 3, 2), (3, 32, 96, 3, 1), (16, 16, 56, 3, 1), (32, 64, 28, 3, 1), (48, 80, 20, 3, 1)),
    *((64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1)),
)
# Channels, side of the image, side of the window and stride; a second one has stride 1. XNNPACK has kernels of its own
# for windows of up to 25, and computes larger ones as products of many groups.
_DEPTHWISE = (
    *((32, 112, 3, 1), (96, 56, 3, 2), (512, 14, 3, 1), (16, 56, 3, 2), (192, 28, 5, 1), (16, 28, 5, 2)),
    *((72, 28, 5, 2), (64, 28, 1, 1), (64, 28, 2, 2), (16, 14, 7, 2), (96, 14, 7, 1), (64, 7, 9, 1)),
)
# The length of windows along a sequence.
_DEPTHWISE_1D = (3, 5, 7, 15, 31)
# Channels of each of 16 groups.
_GROUPED = (2, 4, 8, 16, 32)
# Channels, side of the image, side of the window and stride.
_TRANSPOSED = ((64, 14, 2, 2), (32, 28, 2, 2), (32, 14, 4, 2), (32, 14, 3, 2))
# Side and channels of images that are moved and worked on point by point: in the first cache, the second, and none.
_IMAGES = ((8, 16), (16, 16), (28, 32), (56, 64), (112, 64))
# Rows, and how long each is, where operators work row by row.
_ROWS = ((256, 16), (12544, 16), (64, 64), (3136, 64), (49, 256), (1568, 256), (32, 768), (512, 768))


class Probe(Layers):
    """Independent branches; each input feeds one, and what each makes is returned."""

    def __init__(self) -> None:
        super().__init__(_branches())


def _branches() -> Iterator[Layer]:
    for m, k, n in _PRODUCTS:
        yield nn.Sequential(nn.Linear(k, n), nn.Linear(n, k)), (1, m, k)
    for heads, tokens, width in _ATTENTION:
        yield _Attention(), (heads, tokens, width)
    for cin, cout, side, window, stride in _CONVOLUTIONS:
        first = nn.Conv2d(cin, cout, window, stride, window // 2)
        yield nn.Sequential(first, nn.Conv2d(cout, cout, window, 1, window // 2)), (1, cin, side, side)
    for channels, side, window, stride in _DEPTHWISE:
        layers = (nn.Conv2d(channels, channels, window, s, window // 2, groups=channels) for s in (stride, 1))
        yield nn.Sequential(*layers), (1, channels, side, side)
    for window in _DEPTHWISE_1D:
        yield nn.Conv2d(128, 128, (1, window), padding=(0, window // 2), groups=128), (1, 128, 1, 200)
    for width in _GROUPED:
        yield nn.Conv2d(16 * width, 16 * width, 3, padding=1, groups=16), (1, 16 * width, 14, 14)
    for channels, side, window, stride in _TRANSPOSED:
        yield nn.ConvTranspose2d(channels, 32, window, stride), (1, channels, side, side)
    for side, channels in _IMAGES:
        for branch in (_Moved(), _PointByPoint(), _Pooled(), nn.GroupNorm(8, channels), _Converted()):
            yield branch, (1, channels, side, side)
    for rows, width in _ROWS:
        yield _RowByRow(width), (1, rows, width)
        yield _Heads(), (1, rows, width // 4, 32)


class _Attention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bmm(torch.softmax(torch.bmm(x, x.transpose(1, 2)), 2), x)


class _Moved(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Channels to the end and back, joined and cut."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = x.permute(0, 2, 3, 1)
        joined = torch.cat((last, torch.relu(last)), 3)
        return joined[:, :, :, x.shape[1] // 2 :].permute(0, 3, 1, 2)


class _PointByPoint(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Every function of one number and of two, in an order in which all results are finite.

    No clamp follows what XNNPACK fuses it into.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.rsqrt(torch.sqrt(torch.sigmoid(x)))
        y = torch.abs(torch.neg(torch.exp(torch.log(y))))
        y = torch.cos(torch.sin(torch.square(y)))
        y = functional.leaky_relu(functional.hardswish(functional.gelu(torch.tanh(y))))
        z = torch.ceil(torch.floor(torch.relu(y)))
        z = torch.minimum(torch.maximum(z + x, y) - y, x) * x
        return z / torch.exp(y)


class _RowByRow(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """What normalizes rows, in one operator and in several."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale, self.shift = (nn.Parameter(torch.randn(width)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(self.norm(x), 2)
        y = y - y.mean(2, keepdim=True)
        y = y / torch.exp(y[:, :, :1])
        return y * torch.sigmoid(y[:, :, :1]) * self.scale + self.shift


class _Converted(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float16 if x.dtype is torch.float32 else torch.float32).to(x.dtype)


class _Heads(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Rows that stay whole when heads and tokens change places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.permute(0, 2, 1, 3))


class _Pooled(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = functional.max_pool2d(x, 3, 1, 1)
        small = functional.max_pool2d(y, 3, 2, 1)
        large = functional.interpolate(small, scale_factor=2, mode="bilinear")
        return functional.avg_pool2d(y, 2), functional.avg_pool2d(y, 3, 1), functional.max_pool2d(y, 2), large
