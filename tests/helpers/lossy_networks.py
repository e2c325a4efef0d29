"""Small networks of several kinds in which one layer can be made numerically bad, wherever it stands."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_WIDTH = 12


class Convolutions(torch.nn.Module):  # type: ignore[misc]
    """Convolutions with batch norm and ReLU around a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, _WIDTH, 3, padding=1)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), torch.nn.BatchNorm2d(_WIDTH), torch.nn.ReLU()
            )
            for _ in range(3)
        )
        self.head = torch.nn.Linear(_WIDTH, 7)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Perceptron(torch.nn.Module):  # type: ignore[misc]
    """Linear layers with activations, and operators that belong to no module of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        # Does nothing, and XNNPACK refuses what is left of it beside a tap.
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(_WIDTH, 5)

    def forward(self, x: Any) -> Any:
        for number, block in enumerate(self.blocks):
            x = torch.nn.functional.relu(block(x)) if number % 2 else self.dropout(block(x) + 0.5 * x)
        return self.head(x)


# What stands between layers without a module of its own; `other` is an earlier value, of the same size.
FUNCTIONAL: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda x, other: torch.nn.functional.relu(x),
    "relu_": lambda x, other: torch.nn.functional.relu(0.9 * x, inplace=True),
    "gelu": lambda x, other: torch.nn.functional.gelu(x),
    "silu": lambda x, other: torch.nn.functional.silu(x),
    "clamp": lambda x, other: torch.clamp(x, -6e4, 6e4),
    "add": lambda x, other: x + other,
    "add_": lambda x, other: torch.relu(x).add_(other),
    "scale": lambda x, other: 0.5 * x,
    "max_pool": lambda x, other: torch.nn.functional.max_pool2d(x, 3, 1, 1),
    "avg_pool": lambda x, other: torch.nn.functional.avg_pool2d(x, 3, 1, 1),
    "reshape": lambda x, other: (x.reshape(x.shape[0], -1) + 0).reshape(x.shape),
    "permute": lambda x, other: torch.relu(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    "halves": lambda x, other: torch.cat(x.chunk(2, 1)[::-1], 1),
    "same_dtype": lambda x, other: x.to(other.dtype),
    "mask": lambda x, other: torch.where(x > 0, x, 0.1 * x),
    "norm": lambda x, other: torch.nn.functional.layer_norm(x, x.shape[-1:]),
}


class Drawn(torch.nn.Module):  # type: ignore[misc]
    """Convolutions in any order with anything between them: (`layer`, which) calls one, as often as it is asked for,
    (`branch`, number) goes on from an earlier value, everything else is one of FUNCTIONAL, with an earlier value."""

    def __init__(self, steps: Sequence[tuple[str, int]], layers: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(_WIDTH, _WIDTH, 3 if number % 2 else 1, padding=number % 2) for number in range(layers)
        )
        self.head = torch.nn.Linear(_WIDTH, 5)

    def forward(self, x: Any) -> Any:
        values = [x]
        for kind, number in self.steps:
            other = values[number % len(values)]
            if kind == "layer":
                x = self.layers[number % len(self.layers)](x)
            elif kind == "branch":
                x = other
            elif kind == "row":
                # Changed through a view, which everybody sees.
                x = 0.5 * x
                x[:, 0] += 1
            else:
                x = FUNCTIONAL[kind](x, other)
            values.append(x)
        return self.head(x.mean((2, 3)))

    def get_example_inputs(self) -> Any:
        return (torch.randn(1, _WIDTH, 6, 6),)


def drawn(steps: Sequence[tuple[str, int]], seed: int = 0) -> tuple[Any, Any]:
    """A network of these steps with seeded weights, and an input for it."""
    with seeded(seed):
        net = Drawn(steps).eval()
        return net, net.get_example_inputs()[0]


NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "convolutions": (Convolutions, (1, 3, 8, 8)),
    "perceptron": (Perceptron, (4, _WIDTH)),
}


def network(kind: str, seed: int) -> tuple[Any, Any]:
    """A network with seeded weights, and an input for it."""
    with seeded(seed):
        made, shape = NETWORKS[kind]
        return made().eval(), torch.randn(shape)


def spoil(net: Any, block: int, by: float, undone: bool = False) -> str:
    """Let one output channel of a block be larger `by` so much; `undone`: the next layer reads it smaller again.

    Returns the path of the layer.
    """
    first = net.blocks[block]
    layer = first[0] if isinstance(first, torch.nn.Sequential) else first
    after = net.blocks[block + 1]
    reader = after[0] if isinstance(after, torch.nn.Sequential) else after
    with torch.no_grad():
        layer.weight[2] *= by
        layer.bias[2] *= by
        if undone:
            reader.weight[:, 2] /= by
    return f"blocks.{block}.0" if layer is not first else f"blocks.{block}"


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
