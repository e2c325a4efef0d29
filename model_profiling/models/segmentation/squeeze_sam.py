"""SqueezeSAM, written for the kit from the published architecture; its operators are those of the original.

The image comes with the prompt drawn into it: three channels of colour, one with the box, one with the points.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase


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


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.out = nn.Linear(inner, width)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        return self.out((torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2))


class TwoWayBlock(nn.Module):  # type: ignore[misc]
    """Tokens among themselves, tokens to image, MLP, image to tokens; a layer norm after each sum."""

    def __init__(self, width: int, heads: int, hidden: int, first: bool) -> None:
        super().__init__()
        self.first = first
        self.among_tokens = Attention(width, width, heads)
        self.tokens_to_image = Attention(width, width // 2, heads)
        self.image_to_tokens = Attention(width, width // 2, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])

    def forward(
        self, tokens: torch.Tensor, image: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The tokens are their own positions, so the first block has them already.
        tokens = tokens if self.first else tokens + position
        tokens = self.norms[0](tokens + self.among_tokens(tokens, tokens, tokens))
        tokens = self.norms[1](tokens + self.tokens_to_image(tokens + position, image, image))
        tokens = self.norms[2](tokens + self.mlp(tokens))
        return tokens, self.norms[3](image + self.image_to_tokens(image, tokens + position, tokens))


class TwoWayTransformer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, depth: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([TwoWayBlock(width, heads, hidden, first=i == 0) for i in range(depth)])
        self.last = Attention(width, width // 2, heads)
        self.norm = nn.LayerNorm(width)

    def forward(self, image: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens and the map, each having seen the other."""
        tokens, pixels = position, image.flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens, pixels = block(tokens, pixels, position)
        tokens = self.norm(tokens + self.last(tokens + position, pixels, pixels))
        return tokens, pixels.transpose(1, 2).unflatten(2, image.shape[2:])


CHANNELS = (64, 128, 128, 128, 128, 164, 256, 256)
MASKS = 4
POINT_RADIUS = 5


def mlp(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))


class SqueezeSam(nn.Module):  # type: ignore[misc]
    """Three masks at half the input's size, and an estimate of how good each of them is."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        largest, smallest = channels[0], channels[-1]
        # A group norm of one group: over the whole map.
        self.patches = nn.Sequential(nn.Conv2d(5, largest, 2, stride=2), nn.GroupNorm(1, largest))
        self.down = WayDown(channels)
        self.transformer = TwoWayTransformer(smallest, depth=2, heads=8, hidden=256)
        self.up = WayUp(channels)
        self.quality_token = nn.Parameter(torch.randn(1, 1, smallest))
        self.mask_tokens = nn.Parameter(torch.randn(1, MASKS, smallest))
        # Where SAM has the tokens of a prompt; here the prompt is in the image.
        self.register_buffer("no_prompt", torch.zeros(1, 1, smallest), persistent=False)
        self.mask_weights = nn.ModuleList([mlp(smallest, largest) for _ in range(MASKS)])
        self.quality = mlp(smallest, MASKS)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        *skips, smallest = self.down(self.patches(image))
        tokens = torch.cat((self.quality_token, self.mask_tokens, self.no_prompt), 1)
        tokens, smallest = self.transformer(smallest, tokens)
        pixels = self.up(smallest, skips)
        weights = torch.stack([weigh(tokens[:, 1 + i]) for i, weigh in enumerate(self.mask_weights)], 1)
        masks = (weights @ pixels.flatten(2)).unflatten(2, pixels.shape[2:])
        # As in SAM, the first mask is the answer to an unambiguous prompt, and not among the three.
        return masks[:, 1:], self.quality(tokens[:, 0])[:, 1:]


class SqueezeSamModel(EagerModelBase):
    weights = "random"

    def __init__(self, resolution: int = 512, levels: int = len(CHANNELS)) -> None:
        if not 2 <= levels <= len(CHANNELS):
            raise InputError(f"levels {levels} is not between 2 and {len(CHANNELS)}", "Use for example 5.")
        if resolution % 2 or resolution < 2**levels:
            raise InputError(
                f"resolution {resolution} is not an even number from {2**levels} on, as {levels} levels need",
                "Use for example 512.",
            )
        self.resolution, self.channels = resolution, CHANNELS[:levels]

    def get_eager_model(self) -> torch.nn.Module:
        network = SqueezeSam(self.channels)
        # Random weights would have ReLU cut half of all values, and then 31 norms in a row enlarge rounding errors more
        # than the signal: fp16 would answer noise. With these biases ReLU cuts few.
        for layer in (*network.down.modules(), *network.up.modules()):
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.ones_(layer.bias)
        return network

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Return an image with a box and a point drawn into it."""
        size = self.resolution
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        from_middle = torch.stack((rows, columns)).sub(size // 2)
        box = from_middle.abs().amax(0) < size // 4
        point = from_middle.square().sum(0) <= POINT_RADIUS**2
        return (torch.cat((image_of_all_scales(size), box[None, None], point[None, None]), 1),)


def image_of_all_scales(size: int) -> torch.Tensor:
    """Return random spots of every size, as photographs have them.

    In white noise all large areas are alike: after seven poolings only rounding errors would tell them apart.
    """
    scales = [2**i for i in range(1, size.bit_length())]
    spots = [functional.interpolate(torch.randn(1, 3, n, n), (size, size), mode="bilinear") for n in scales]
    return torch.stack(spots).sum(0) / len(scales) ** 0.5
