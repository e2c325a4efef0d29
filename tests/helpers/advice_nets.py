"""Small networks, each made to earn a finding, or to look as if it did."""

from typing import Any

import torch
from torch import nn

functional = nn.functional


class Net(nn.Module):  # type: ignore[misc]
    """Two convolutions to use, and the image they take."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(1, 3, 32, 32),)


class Siamese(Net):
    """Two transposes one after the other in time, each of another input and for another convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Conv2d(3, 16, 3, padding=1)

    def forward(self, left: Any, right: Any) -> Any:
        return self.first(left) * self.other(right)

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(1, 3, 32, 32), torch.randn(1, 3, 32, 32))


class ThereAndBack(Net):
    """A permute that is undone, with only a relu and a scale between."""

    def forward(self, image: Any) -> Any:
        x = self.first(image).permute(0, 2, 3, 1)
        x = torch.relu(x) * 2.0
        return self.second(x.permute(0, 3, 1, 2))


class Kept(Net):
    """One permute is undone, but its result is an output too; another is followed by one that is no way back."""

    def forward(self, image: Any) -> Any:
        x = (image * 2.0).transpose(1, 3)
        turned = image.permute(0, 1, 3, 2).relu().permute(0, 2, 1, 3)
        return x * 3.0, x.relu().transpose(1, 3), turned * 2.0


class Lookups(nn.Module):  # type: ignore[misc]
    """Nearly all of it looks values up; nothing changes a layout."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(64, 128)
        self.head = nn.Linear(128, 4)

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        x = torch.index_select(x, 0, words % 32)
        return self.head(x[words % 32])

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.arange(64),)


class Gates(Net):
    """SiLU as a function, as a module that works in place, and GLU: no line of it converts anything."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.SiLU(inplace=True)

    def forward(self, image: Any) -> Any:
        x = functional.silu(self.first(image))
        x = self.gate(self.second(x))
        return self.second(functional.glu(torch.cat([x, torch.relu(x)], 1), 1))


class TinyClamp(Net):
    """An index is clamped in no time, right before the image is transposed, which takes some."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", torch.ones(4))

    def forward(self, image: Any, index: Any) -> Any:
        scale = self.scales[index.clamp(0, 3)]
        return self.second(self.first(image)) * scale.sum()

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.randn(1, 3, 64, 64), torch.tensor([1, 2]))


class Means(Net):
    """A mean that XNNPACK takes with its dimensions kept, one that it takes as a convolution, and one in no form."""

    def forward(self, image: Any) -> Any:
        x = self.first(image)
        over_channels = x.mean(1, keepdim=True)
        over_columns = x.mean((1, 3), keepdim=True)
        x = self.second(x * over_channels * over_columns)
        return x.mean((2, 3))


class Many(Net):
    """Several findings over the same data: conversions, portable operators, layout changes at their edges."""

    def forward(self, image: Any) -> Any:
        x = functional.silu(self.first(image))
        x = functional.gelu(self.second(x)).float()
        x = functional.softmax(x.permute(0, 2, 3, 1), 1).permute(0, 3, 1, 2)
        return self.second(x.to(image.dtype)).mean((2, 3))


class Scaled(Net):
    """Attention that PyTorch decomposes into operators of many names, all outside the delegate."""

    def forward(self, image: Any) -> Any:
        x = self.first(image)[:, :, ::2, ::2].flatten(2).transpose(1, 2)
        return functional.scaled_dot_product_attention(x, x + 1.0, x - 1.0)


class Ranked(Net):
    """A portable operator with two results stands between convolutions."""

    def forward(self, image: Any) -> Any:
        return self.second(torch.topk(self.first(image), 32, dim=3)[0])


class Pyramid(Net):
    """A small detector: a map resized and joined with a finer one, and heads whose results become one list."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(16, 16, 3, 2, 1)
        self.fuse = nn.Conv2d(32, 16, 1)
        self.heads = nn.ModuleList([nn.Conv2d(16, 3 * 6, 3, padding=1) for _ in range(2)])

    def forward(self, image: Any) -> Any:
        fine = functional.silu(self.first(image))
        coarse = functional.silu(self.down(fine))
        joined = torch.cat([fine, functional.interpolate(coarse, scale_factor=2.0)], 1)
        found = []
        for x, head in zip((functional.silu(self.fuse(joined)), coarse), self.heads, strict=True):
            b, _, h, w = x.shape
            found.append(head(x).view(b, 3, 6, h, w).permute(0, 1, 3, 4, 2).sigmoid().reshape(b, -1, 6))
        return torch.cat(found, 1)


class Attending(Net):
    """Attention over pixels: of its transposes, those of the keys become a flag of the product that takes them."""

    def forward(self, image: Any) -> Any:
        x = self.first(image)[:, :, ::2, ::2].flatten(2)
        tokens = x.transpose(1, 2) * 2.0
        keys, values = tokens + 1.0, tokens - 1.0
        weights = functional.softmax(torch.bmm(tokens, keys.transpose(1, 2)), 2)
        return torch.bmm(weights, values).transpose(1, 2).relu().transpose(0, 1)
