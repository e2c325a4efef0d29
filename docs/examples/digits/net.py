"""A small network that reads noisy digits, trained in seconds on digits that are drawn here: nothing is downloaded."""

from pathlib import Path
from typing import Any

import torch

_ROWS = {
    0: "111 101 101 101 111", 1: "010 110 010 010 111", 2: "111 001 111 100 111", 3: "111 001 111 001 111",
    4: "101 101 111 001 001", 5: "111 100 111 001 111", 6: "111 100 111 101 111", 7: "111 001 001 001 001",
    8: "111 101 111 101 111", 9: "111 101 111 001 111",
}  # fmt: skip
_PICTURES = torch.tensor([[int(bit) for bit in rows.replace(" ", "")] for rows in _ROWS.values()]).float()
# Weights are kept here, so that the network is trained once.
_WEIGHTS = Path("out_digits/digits.pt")


def digits(count: int, seed: int) -> tuple[Any, Any]:
    """Return images of 1 x 16 x 16, and which digits they show."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.nn.functional.interpolate(_PICTURES[labels].view(count, 1, 5, 3), (16, 16))
    contrast = 0.5 + torch.rand(count, 1, 1, 1, generator=generator)
    return images * contrast + 0.6 * torch.randn(images.shape, generator=generator), labels


class Net(torch.nn.Module):  # type: ignore[misc]
    """Convolutions; after training, one channel of `first` is made 3000 times larger than the others.

    `second` makes it smaller again, so nothing changes in fp32; in int8 all other channels of `first` become 0.
    """

    weights = "trained"

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 32, 1)
        self.third = torch.nn.Conv2d(32, 48, 3, padding=1)
        self.fourth = torch.nn.Conv2d(48, 48, 3, padding=1)
        self.head = torch.nn.Linear(48 * 16, 10)

    def forward(self, x: Any) -> dict[str, Any]:
        for layer in (self.first, self.second, self.third, self.fourth):
            x = torch.relu(layer(x))
        return {"logits": self.head(torch.nn.functional.avg_pool2d(x, 4).flatten(1))}

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (digits(1, 0)[0],)


def trained(steps: int = 100) -> Net:
    """Return the network after so many steps of training."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for step in range(1, steps + 1):
        images, labels = digits(48, step)
        loss = torch.nn.functional.cross_entropy(net(images)["logits"], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        net.first.weight[0] *= 3000
        net.first.bias[0] *= 3000
        net.second.weight[:, 0] /= 3000
    return net.eval()


class Digits(Net):
    """The trained network."""

    def __init__(self) -> None:
        super().__init__()
        if not _WEIGHTS.is_file():
            _WEIGHTS.parent.mkdir(exist_ok=True)
            torch.save(trained().state_dict(), _WEIGHTS)
        self.load_state_dict(torch.load(_WEIGHTS))
