"""SqueezeSAM, written for the kit from the published architecture; its operators are those of the original.

The image comes with the prompt drawn into it: three channels of colour, one with the box, one with the points.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from model_profiling.base.errors import InputError
from model_profiling.models.model_base import EagerModelBase
from model_profiling.models.squeeze_sam.two_way import TwoWayTransformer
from model_profiling.models.squeeze_sam.unet import WayDown, WayUp

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
