"""Small networks of several kinds in which one layer can be made numerically bad, wherever it stands."""

import contextlib
from collections.abc import Iterator
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
