"""Small networks whose layout changes are partly needless."""

from typing import Any

import torch
from torch import nn

functional = nn.functional


class Net(nn.Module):  # type: ignore[misc]
    """Two convolutions and two linear layers to use, and the image they take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)
        self.norm = nn.LayerNorm(8)

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(1, 3, 8, 8),)

    def mlp(self, tokens: Any) -> Any:
        return self.down(functional.gelu(self.up(tokens)))


class Scaled(Net):
    """Arithmetic with numbers between convolutions."""

    def forward(self, image: Any) -> Any:
        x = functional.relu(self.first(image) * 2.0)
        return self.second(functional.hardswish(x - 0.5) / 3.0)


class Pixels(Net):
    """A linear layer for every pixel, twice."""

    def forward(self, image: Any) -> Any:
        x = self.first(image)
        x = self.mlp(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = self.second(x)
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + self.mlp(self.norm(tokens))
        return self.second(tokens.transpose(1, 2).reshape(x.shape))


class Windows(Net):
    """Windows of pixels, and back."""

    def forward(self, image: Any) -> Any:
        x = self.first(image).permute(0, 2, 3, 1)
        x = x.reshape(1, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(4, 16, 8)
        x = x + self.mlp(x)
        x = x.reshape(1, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, 8)
        return self.second(x.permute(0, 3, 1, 2))


class Heads(Net):
    """Attention: its transposes are needed."""

    def forward(self, image: Any) -> Any:
        x = self.first(image).flatten(2).transpose(1, 2)
        q = self.down(self.up(x)).reshape(1, 64, 2, 4).transpose(1, 2)
        k = self.down(self.up(x + 1.0)).reshape(1, 64, 2, 4).transpose(1, 2)
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1)
        y = torch.matmul(weights, q).transpose(1, 2).reshape(1, 64, 8)
        return self.second(y.transpose(1, 2).reshape(1, 8, 8, 8))


class Ranked(Net):
    """A portable operator between convolutions needs the usual order."""

    def forward(self, image: Any) -> Any:
        x = self.first(image)
        return self.second(torch.topk(x, 8, dim=3)[0] * 2.0)


class Joined(Net):
    """Parts of an image, joined again, with a border."""

    def forward(self, image: Any) -> Any:
        x = self.first(image) + 1.0
        x = torch.cat([x[:, :4], functional.relu(x[:, 4:])], 1)
        return self.second(functional.pad(x, (1, 1, 1, 1)))


class Between(Net):
    """An operator that treats every value alike, and that XNNPACK does not take, stands between convolutions."""

    def forward(self, image: Any) -> Any:
        return self.second(torch.erf(self.first(image)))
