"""The U-Net of SqueezeSAM: two 3x3 convolutions per level, max-pooling down, linear layers up."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


class Level(nn.Sequential):  # type: ignore[misc]
    """Twice: a 3x3 convolution, ReLU, batch norm; after the ReLU, so no norm can be folded into its convolution."""

    def __init__(self, channels: int, out: int) -> None:
        pair = ((channels, out), (out, out))
        super().__init__(*(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(b)) for a, b in pair))


class Enlarge(nn.Module):  # type: ignore[misc]
    """Twice the height and width, half the channels: each pixel becomes 2 x 2 by one linear layer."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 4 * (channels // 2))
        self.norm = nn.BatchNorm2d(self.linear.out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, height, width = x.shape
        pixels = x.permute(0, 2, 3, 1).flatten(0, 2)
        pixels = functional.relu(self.linear(pixels)).unflatten(0, (batch, height, width))
        squares = self.norm(pixels.permute(0, 3, 1, 2)).unflatten(1, (-1, 2, 2))
        return squares.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)


class Up(nn.Module):  # type: ignore[misc]
    """One level up: doubled, beside what the way down had there, and two convolutions over both."""

    def __init__(self, channels: int, skip: int) -> None:
        super().__init__()
        self.enlarge = Enlarge(channels)
        self.level = Level(channels // 2 + skip, skip)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        x = self.enlarge(x)
        # Pooling drops the last row and column of an odd size.
        rows, columns = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        x = functional.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return self.level(torch.cat((skip, x), 1))


class WayDown(nn.Module):  # type: ignore[misc]
    """Gives the maps of all levels, the largest first."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        self.levels = nn.ModuleList([Level(a, b) for a, b in pairwise((channels[0], *channels))])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = [self.levels[0](x)]
        for level in self.levels[1:]:
            maps.append(level(functional.max_pool2d(maps[-1], 2)))
        return maps


class WayUp(nn.Module):  # type: ignore[misc]
    """From the smallest map back to the size of the largest."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        self.ups = nn.ModuleList([Up(below, skip) for below, skip in pairwise(reversed(channels))])

    def forward(self, x: torch.Tensor, skips: list[torch.Tensor]) -> torch.Tensor:
        for up, skip in zip(self.ups, reversed(skips), strict=True):
            x = up(x, skip)
        return x
