"""A network that shows every kind of time the kit reports, small enough to profile in seconds.

Convolutions and linear layers dominate until they are accelerated; the window partition costs real transposes
in both directions; and the mean without `keepdim` is the one operator XNNPACK does not take.
"""

import torch
from torch import nn

from model_profiling.models.model_base import EagerModelBase

IMAGE = 96
WINDOW = 8


class ToyCNN(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int = 48, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.conv = nn.Conv2d(32, channels, 3, padding=1)
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, 1)
        self.expand = nn.Linear(channels, 2 * channels)
        self.project = nn.Linear(2 * channels, channels)
        self.reduce = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(image))
        x = torch.relu(self.conv(x))
        x = torch.relu(self.depthwise(x))
        x = torch.relu(self.pointwise(x))
        x = self.mix_windows(x)
        x = torch.relu(self.reduce(x))
        # Deliberate: with keepdim=True this would be delegated, and the graph would not be cut in two here.
        return self.head(x.mean((2, 3)))

    def mix_windows(self, x: torch.Tensor) -> torch.Tensor:
        """Apply an MLP to every pixel, window by window: channels go last and come back, as in a Swin block."""
        batch, channels, height, width = x.shape
        windows = x.reshape(batch, channels, height // WINDOW, WINDOW, width // WINDOW, WINDOW)
        tokens = windows.permute(0, 2, 4, 3, 5, 1)
        tokens = tokens + self.project(torch.relu(self.expand(tokens)))
        return tokens.permute(0, 5, 1, 3, 2, 4).reshape(batch, channels, height, width)


class ToyCNNModel(EagerModelBase):
    weights = "random"

    def get_eager_model(self) -> torch.nn.Module:
        return ToyCNN()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, IMAGE, IMAGE),)
