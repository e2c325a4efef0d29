"""Small networks with what XNNPACK makes of several pieces or none: cat, stack, split, slice, resize, pad."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from model_profiling.models.model_base import EagerModelBase


class Network(EagerModelBase):
    """A network of the family: `layers` by name, and what `forward` makes of them and an image of 8 x 12 x 12."""

    def __init__(self, layers: dict[str, Any], forward: Callable[[Any, Any], Any]) -> None:
        self._layers, self._forward = layers, forward

    def get_eager_model(self) -> Any:
        layers, forward = self._layers, self._forward

        class Model(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.ModuleDict(layers)

            def forward(self, image: Any) -> Any:
                return forward(self.layers, image)

        return Model()

    def get_example_inputs(self) -> Any:
        return (torch.randn(1, 8, 12, 12, generator=torch.Generator().manual_seed(1)),)


def _conv(inputs: int, outputs: int = 8, **more: Any) -> Any:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **more)


def _cat(count: int) -> Network:
    """A cat of `count`, each of another convolution, and a convolution of it: kernels before and after."""
    layers = {f"c{index}": _conv(8) for index in range(count)} | {"last": _conv(8 * count)}
    return Network(layers, lambda m, x: m["last"](torch.cat([m[f"c{i}"](x) for i in range(count)], 1)))


def _nested(m: Any, x: Any) -> Any:
    inner = torch.cat([m["a"](x), x, m["b"](x)], 1)
    return m["last"](torch.cat([inner, m["c"](inner)], 1))


def _stack(m: Any, x: Any) -> Any:
    stacked = torch.stack([m["a"](x), m["b"](x), x], 1)
    return m["last"](stacked.flatten(1, 2))


def _split(m: Any, x: Any) -> Any:
    left, right = torch.split(m["a"](x), [3, 5], 1)
    return m["last"](torch.cat([m["c"](right), left], 1))


def _chunk(m: Any, x: Any) -> Any:
    parts = torch.chunk(m["a"](x), 4, 1)
    return m["last"](torch.cat([torch.relu(parts[3]), parts[0], parts[2]], 1))


def _slice(m: Any, x: Any) -> Any:
    y = m["a"](x)
    return m["last"](torch.cat([y[:, :, 2:10, 1:9], y[:, :, 0:8, 4:12]], 1))


def _resize(mode: str) -> Callable[[Any, Any], Any]:
    def forward(m: Any, x: Any) -> Any:
        small = functional.max_pool2d(m["a"](x), 2)
        more = {} if mode == "nearest" else {"align_corners": False}
        return m["last"](torch.cat([functional.interpolate(small, scale_factor=2, mode=mode, **more), x], 1))

    return forward


def _pad(m: Any, x: Any) -> Any:
    return m["last"](functional.pad(torch.cat([m["a"](x), x], 1), (1, 2, 3, 0)))


def _unet(m: Any, x: Any) -> Any:
    top = torch.relu(m["a"](x))
    middle = torch.relu(m["b"](functional.max_pool2d(top, 2)))
    bottom = torch.relu(m["c"](functional.max_pool2d(middle, 2)))
    middle = torch.relu(m["d"](torch.cat([m["up1"](bottom), middle], 1)))
    return m["last"](torch.cat([m["up2"](middle), top], 1))


def _yolo(m: Any, x: Any) -> Any:
    """A C2f block, spatial pyramid pooling, and two scales that are flattened and concatenated."""
    one, two = m["a"](x).chunk(2, 1)
    three = functional.silu(m["b"](two))
    y = functional.silu(m["c"](torch.cat([one, two, three, functional.silu(m["d"](three))], 1)))
    pools = [y]
    for _ in range(3):
        pools.append(functional.max_pool2d(pools[-1], 5, 1, 2))
    y = m["e"](torch.cat(pools, 1))
    scales = [m["head"](y).flatten(2), m["head"](functional.max_pool2d(y, 2)).flatten(2)]
    box, score = torch.cat(scales, 2).split((4, 4), 1)
    return torch.cat([box * 2, score.sigmoid()], 1)


def _delegates(m: Any, x: Any) -> Any:
    """XNNPACK takes no cumsum: three delegates, of which two have a cat."""
    y = torch.cat([m["a"](x), m["b"](x), x], 1).cumsum(2)
    return m["last"](torch.cat([m["c"](y), y], 1)).cumsum(3) * 2


def _attention(m: Any, x: Any) -> Any:
    tokens = x.flatten(2).transpose(1, 2)
    query, key, value = m["qkv"](tokens).chunk(3, 2)
    mixed = torch.softmax(query @ key.transpose(1, 2), 2) @ value
    return m["out"](torch.cat([mixed, tokens], 2))


def networks() -> dict[str, Network]:
    """Every network of the family by its name."""
    return {
        **{f"cat_of_{count}": _cat(count) for count in (2, 3, 4, 5, 7)},
        "nested_cat": Network({"a": _conv(8), "b": _conv(8), "c": _conv(24), "last": _conv(32)}, _nested),
        "stack": Network({"a": _conv(8), "b": _conv(8), "last": _conv(24)}, _stack),
        "split": Network({"a": _conv(8), "c": _conv(5), "last": _conv(11)}, _split),
        "chunk": Network({"a": _conv(8), "last": _conv(6)}, _chunk),
        "slice": Network({"a": _conv(8), "last": _conv(16)}, _slice),
        **{
            mode: Network({"a": _conv(8), "last": _conv(16)}, _resize(mode))
            for mode in ("nearest", "bilinear", "bicubic")
        },
        "pad": Network({"a": _conv(8), "last": _conv(16)}, _pad),
        "unet": Network(
            {
                **{"a": _conv(8), "b": _conv(8, 12), "c": _conv(12, 16), "d": _conv(24, 12), "last": _conv(16)},
                **{"up1": nn.ConvTranspose2d(16, 12, 2, stride=2), "up2": nn.ConvTranspose2d(12, 8, 2, stride=2)},
            },
            _unet,
        ),
        "yolo": Network(
            {
                **{"a": _conv(8, 16), "b": _conv(8), "c": nn.Conv2d(32, 16, 1), "d": _conv(8)},
                **{"e": nn.Conv2d(64, 16, 1), "head": nn.Conv2d(16, 8, 1)},
            },
            _yolo,
        ),
        "delegates": Network({"a": _conv(8), "b": _conv(8), "c": _conv(24), "last": _conv(32)}, _delegates),
        "attention": Network({"qkv": nn.Linear(8, 48), "out": nn.Linear(24, 8)}, _attention),
    }
