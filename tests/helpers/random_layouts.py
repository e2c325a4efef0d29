"""Networks that change the order of their values at random, between layers that do and do not mind it."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

Step = Callable[["RandomLayouts", torch.Tensor, "Choice"], torch.Tensor | None]
MOST_VALUES = 6000


class Choice:
    """One number decides what a step does, digit by digit, so that smaller numbers mean simpler steps."""

    def __init__(self, number: int) -> None:
        self._left = number

    def below(self, count: int) -> int:
        self._left, picked = divmod(self._left, count)
        return picked

    def order(self, count: int) -> list[int]:
        left = list(range(count))
        return [left.pop(self.below(len(left))) for _ in range(count)]


class RandomLayouts(nn.Module):  # type: ignore[misc]
    """A chain of steps, one for each number; layers are made when they are first met."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__()
        self.numbers = numbers
        self.layers = nn.ModuleDict()
        self.seen: list[torch.Tensor] = []
        self.step = 0

    def layer(self, make: Callable[[], nn.Module]) -> nn.Module:
        name = f"step{self.step}"
        if name not in self.layers:
            self.layers[name] = make()
        return self.layers[name]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen = [x]
        for step, number in enumerate(self.numbers):
            self.step = step
            choice = Choice(number)
            y = STEPS[choice.below(len(STEPS))](self, x, choice)
            if y is not None and 0 < y.numel() <= MOST_VALUES and y.dim() <= 6:
                x = y
                self.seen.append(x)
        middle = self.seen[len(self.seen) // 2]
        return x, middle * 0.5


def random_network(numbers: list[int], shape: tuple[int, ...]) -> tuple[nn.Module, torch.Tensor]:
    """A network with its layers made, and an input of this shape."""
    torch.manual_seed(0)
    network = RandomLayouts(numbers)
    x = torch.randn(shape)
    with torch.no_grad():
        network(x)
    return network.eval(), x


def _permute(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor:
    return x.permute(choice.order(x.dim()))


def _to_last(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else None


def _to_first(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else None


def _join(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    if x.dim() < 3:
        return None
    first = choice.below(x.dim() - 1)
    return x.flatten(first, first + 1)


def _split(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    dim = choice.below(x.dim())
    parts = list(_divisors(x.shape[dim]))
    part = parts[choice.below(len(parts))]
    return x.reshape(*x.shape[:dim], part, x.shape[dim] // part, *x.shape[dim + 1 :])


def _reshape(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor:
    sizes, left = [], x.numel()
    for _ in range(choice.below(3)):
        parts = list(_divisors(left))
        sizes.append(parts[choice.below(len(parts))])
        left //= sizes[-1]
    return x.reshape(*sizes, left)


def _divisors(number: int) -> Iterator[int]:
    return (part for part in range(1, number + 1) if number % part == 0)


def _image(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    """Back to four dimensions, so that convolutions find something."""
    if x.dim() == 4:
        return None
    parts = [part for part in _divisors(x.numel()) if part <= 16]
    channels = parts[choice.below(len(parts))]
    rest = x.numel() // channels
    height = max(part for part in _divisors(rest) if part * part <= rest)
    return x.reshape(1, channels, height, rest // height)


def _linear(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor:
    width = 1 + choice.below(9)
    return net.layer(lambda: nn.Linear(x.shape[-1], width))(x)


def _conv(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    if x.dim() != 4:
        return None
    channels, kernel = x.shape[1], (1, 3)[choice.below(2)]
    groups = channels if choice.below(3) == 2 else 1
    out = channels if groups > 1 else 1 + choice.below(12)
    return net.layer(lambda: nn.Conv2d(channels, out, kernel, padding=kernel // 2, groups=groups))(x)


def _norm(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    kind = choice.below(3)
    if kind == 0:
        return net.layer(lambda: nn.LayerNorm(x.shape[-1]))(x) if x.shape[-1] > 1 else None
    if x.dim() != 4 or x.shape[1:].numel() < 2:
        return None
    return net.layer(lambda: nn.BatchNorm2d(x.shape[1]).eval() if kind == 1 else nn.GroupNorm(1, x.shape[1]))(x)


UNARY = (
    torch.relu, torch.sigmoid, functional.gelu, torch.neg, functional.silu, functional.hardswish, torch.erf, torch.tanh,
    lambda x: x * 2.0, lambda x: x + 1, lambda x: x / 3, lambda x: x.clamp(-1, 1), lambda x: x.contiguous(),
    lambda x: x.clone(), functional.softplus, lambda x: functional.relu_(x + 0.5),
    lambda x: torch.where(x > 0, x, 0.1 * x),
)  # fmt: skip


def _unary(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor:
    return UNARY[choice.below(len(UNARY))](x)


def _binary(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor:
    kind = choice.below(4)
    same = [other for other in net.seen if other.shape == x.shape]
    if kind < 2 and same:
        other = same[choice.below(len(same))]
    elif kind == 2 and x.dim() > 2:
        other = net.layer(lambda: _Constant((x.shape[-3], 1, 1)))(x)
    else:
        other = net.layer(lambda: _Constant((x.shape[-1],)))(x)
    return (x + other, x * other, x - other, torch.maximum(x, other))[choice.below(4)]


class _Constant(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value


def _cat(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor:
    dim = choice.below(x.dim())

    def around(shape: torch.Size) -> list[int]:
        return [size for d, size in enumerate(shape) if d != dim]

    fitting = [other for other in net.seen if other.dim() == x.dim() and around(other.shape) == around(x.shape)]
    others = [other for other in fitting if other is not x] or [torch.relu(x)]
    return torch.cat((x, others[choice.below(len(others))]), dim)


def _part(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    dim, kind = choice.below(x.dim()), choice.below(5)
    size = x.shape[dim]
    if size < 2:
        return x.unsqueeze(dim) if kind else (x.squeeze(dim) if x.dim() > 1 else None)
    if kind == 0:
        return x.narrow(dim, choice.below(size - 1), 1 + choice.below(2) % (size - 1))
    if kind == 1:
        return x.select(dim, choice.below(size)) if x.dim() > 1 else None
    if kind == 2:
        first, *others = x.chunk(2, dim)
        return first + others[0] if others and others[0].shape == first.shape else first
    if kind == 3:
        taken = [slice(None)] * x.dim()
        taken[dim] = slice(choice.below(2), None, 2)
        return x[tuple(taken)]
    return sum(x.unbind(dim)) if x.dim() > 1 and size < 5 else None


def _reduce(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    kind = choice.below(4)
    if kind == 0:
        return x.softmax(-1)
    if kind == 1 and x.dim() == 4:
        return x.mean((2, 3), keepdim=bool(choice.below(2)))
    if x.dim() < 2:
        return None
    return (
        x.mean(choice.below(x.dim()), keepdim=bool(choice.below(2)))
        if kind == 2
        else x.amax(choice.below(x.dim()), True)
    )


def _resize(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    if x.dim() != 4:
        return None
    _, channels, height, width = x.shape
    kind = choice.below(7)
    if kind == 0:
        return functional.max_pool2d(x, 2) if min(height, width) > 1 else None
    if kind == 1:
        return functional.interpolate(x, scale_factor=2, mode="nearest")
    if kind == 2:
        return functional.interpolate(x, scale_factor=2, mode="bilinear")
    if kind == 3:
        return functional.pixel_shuffle(x, 2) if channels % 4 == 0 else None
    if kind == 4:
        return functional.pixel_unshuffle(x, 2) if height % 2 == width % 2 == 0 else None
    if kind == 5:
        return functional.channel_shuffle(x, 2) if channels % 2 == 0 else None
    return functional.pad(x, (0, choice.below(2), 1, 0))


def _product(net: RandomLayouts, x: torch.Tensor, choice: Choice) -> torch.Tensor | None:
    if x.dim() < 3:
        return None
    turned = x.transpose(-1, -2)
    scale = 1 / math.sqrt(x.shape[-1])
    return (x @ turned if choice.below(2) else turned @ x) * scale


STEPS: tuple[Step, ...] = (
    _permute, _linear, _conv, _unary, _to_last, _to_first, _join, _split, _reshape, _image, _binary, _cat, _norm, _part,
    _reduce, _resize, _product,
)  # fmt: skip
