"""Four networks of half a millisecond to fifty, each with a twin that does about 2 % more work."""

from pathlib import Path

import torch
from torch import nn


class Convolutions(nn.Module):  # type: ignore[misc]
    """A stack of 3x3 convolutions; the twin has one 1x1 convolution more."""

    def __init__(self, width: int, depth: int, more: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, 1, 1), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 1), nn.ReLU()] if more else []
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class TokenMixer(nn.Module):  # type: ignore[misc]
    """Linear layers over tokens and channels, with transposes between; the twin has one small layer more."""

    def __init__(self, more: bool, tokens: int = 64, width: int = 96, depth: int = 4) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.over_tokens = nn.ModuleList([nn.Linear(tokens, tokens) for _ in range(depth)])
        self.over_channels = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(depth)]
        )
        self.more = nn.Linear(width, width * 5 // 6) if more else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for tokens, channels in zip(self.over_tokens, self.over_channels, strict=True):
            x = x + tokens(x.transpose(1, 2)).transpose(1, 2)
            x = x + channels(x)
        return self.more(x).mean(1) if self.more is not None else x.mean(1)


def _network(name: str, more: bool) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if name == "mixer":
        return TokenMixer(more), torch.randn(1, 3, 64, 64)
    width, depth, size = {"conv small": (16, 6, 48), "conv medium": (32, 5, 88), "conv large": (64, 5, 144)}[name]
    return Convolutions(width, depth, more), torch.randn(1, 3, size, size)


NAMES = ("conv small", "mixer", "conv medium", "conv large")


def export(home: Path) -> dict[str, tuple[Path, Path]]:
    """Return each network and its twin as a .pte in fp32."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    made = {}
    for name in NAMES:
        pair = []
        for more in (False, True):
            module, inputs = _network(name, more)
            exported = torch.export.export(module.eval(), (inputs,))
            program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
            pair.append(home / f"{name.replace(' ', '_')}{'_more' if more else ''}.pte")
            pair[-1].write_bytes(program.buffer)
        made[name] = (pair[0], pair[1])
    return made
