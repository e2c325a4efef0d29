"""A network of operators that have nothing to do with each other, each kind in sizes that no probe of roofs has."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

_UNARY: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    *(functional.gelu, torch.tanh, torch.sigmoid, torch.exp, torch.log, torch.sin, torch.sqrt, torch.rsqrt),
    *(functional.hardswish, functional.leaky_relu, functional.relu, torch.abs),
)
_BINARY = (torch.add, torch.mul, torch.div, torch.sub, torch.maximum)
_IMAGES = ((24, 40), (96, 60), (64, 140))
_ROWS = ((80, 100), (300, 384), (6000, 24))
# Channels, side, window, stride.
_DEPTHWISE = ((48, 60, 3, 1), (96, 20, 3, 2), (120, 30, 5, 1), (48, 20, 7, 1), (80, 20, 7, 2))


class Apply(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, function: Callable[..., torch.Tensor], *settings: object) -> None:
        super().__init__()
        self.function, self.settings = function, settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.settings)


class Twice(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A function of two numbers, of its input and of what is not quite that."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, torch.neg(x))


class SingleOperators(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList()
        self.shapes: list[tuple[int, ...]] = []
        for channels, side in _IMAGES:
            for function in _UNARY:
                self._add(Apply(function), (1, channels, side, side))
            for function in _BINARY:
                self._add(Twice(function), (1, channels, side, side))
            self._add(nn.GroupNorm(4, channels), (1, channels, side, side))
        for rows, width in _ROWS:
            self._add(nn.LayerNorm(width), (1, rows, width))
            self._add(Apply(torch.softmax, 2), (1, rows, width))
        for channels, side, window, stride in _DEPTHWISE:
            layer = nn.Conv2d(channels, channels, window, stride, window // 2, groups=channels)
            self._add(layer, (1, channels, side, side))

    def _add(self, branch: nn.Module, shape: tuple[int, ...]) -> None:
        self.branches.append(branch)
        self.shapes.append(shape)

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.rand(shape) + 0.1 for shape in self.shapes)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(branch(x) for branch, x in zip(self.branches, inputs, strict=True))
