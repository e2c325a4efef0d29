"""Small networks with what XNNPACK makes of several pieces or none: cat, stack, split, slice, resize, pad."""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Forward = Callable[[Any, Any], Any]


class Network(nn.Module):  # type: ignore[misc]
    """Layers by name, and what each of `forwards` makes of them and one image."""

    def __init__(self, layers: dict[str, Any], *forwards: Forward) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self._forwards = forwards

    def forward(self, image: Any) -> Any:
        return tuple(forward(self.layers, image) for forward in self._forwards)


def _conv(inputs: int, outputs: int = 8) -> Any:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def _cat(count: int) -> Forward:
    """A cat of `count` between convolutions: kernels before and after it."""
    return lambda m, x: m[f"after_{count}"](torch.cat([m["first"](x), *([x] * (count - 1))], 1))


def _nested_cat(m: Any, x: Any) -> Any:
    inner = torch.cat([m["a"](x), x, m["b"](x)], 1)
    return m["nested"](torch.cat([inner, x, m["a"](x)], 1))


def _stack(m: Any, x: Any) -> Any:
    return m["stacked"](torch.stack([m["a"](x), m["b"](x), x], 1).flatten(1, 2))


def _slice(m: Any, x: Any) -> Any:
    y = m["a"](x)
    return m["both"](torch.cat([y[:, :, 2:10, 1:9], y[:, :, 0:8, 4:12]], 1))


def _pad(m: Any, x: Any) -> Any:
    return m["both"](functional.pad(torch.cat([m["a"](x), x], 1), (1, 2, 3, 0)))


def _split(m: Any, x: Any) -> Any:
    left, right = torch.split(m["a"](x), [3, 5], 1)
    return m["a"](torch.cat([torch.relu(right), left], 1))


def _chunk(m: Any, x: Any) -> Any:
    parts = torch.chunk(m["b"](x), 4, 1)
    return m["b"](torch.cat([torch.relu(parts[3]), parts[0], parts[2], parts[0]], 1))


def _resize(mode: str) -> Forward:
    def forward(m: Any, x: Any) -> Any:
        small = functional.max_pool2d(m["a"](x), 2)
        corners = None if mode == "nearest" else False
        large = functional.interpolate(small, scale_factor=2, mode=mode, align_corners=corners)
        return m["both"](torch.cat([large, x], 1))

    return forward


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
    """XNNPACK takes no cumsum, so there are several delegates, two of them with a cat; the last has attention."""
    y = torch.cat([m["a"](x), m["b"](x), x], 1).cumsum(2)
    tokens = m["last"](torch.cat([m["c"](y), y], 1)).cumsum(3).flatten(2).transpose(1, 2)
    query, key, value = m["qkv"](tokens).chunk(3, 2)
    mixed = torch.softmax(query @ key.transpose(1, 2), 2) @ value
    return m["out"](torch.cat([mixed, tokens], 2))


def _random(seed: int) -> Forward:
    """Four convolutions, each of a cat of two to five values drawn from all before it."""
    draw = random.Random(seed)
    plan = [[draw.randrange(2 + step) for _ in range(draw.randint(2, 5))] for step in range(4)]

    def forward(m: Any, x: Any) -> Any:
        values = [x, m["first"](x)]
        for picks in plan:
            values.append(m[f"after_{len(picks)}"](torch.cat([values[pick] for pick in picks], 1)))
        return values[1:]

    return forward


def networks() -> dict[str, Network]:
    """Every network of the family by its name; each takes an image of 8 x 12 x 12."""
    counts = (2, 3, 4, 5, 7)
    pair = {"a": _conv(8), "b": _conv(8), "both": _conv(16)}
    up = {"up1": nn.ConvTranspose2d(16, 12, 2, stride=2), "up2": nn.ConvTranspose2d(12, 8, 2, stride=2)}
    heads = {"c": nn.Conv2d(32, 16, 1), "e": nn.Conv2d(64, 16, 1), "head": nn.Conv2d(16, 8, 1)}
    return {
        "cats": Network(
            {"first": _conv(8), "a": _conv(8), "b": _conv(8), "nested": _conv(40)}
            | {f"after_{count}": _conv(8 * count) for count in counts},
            *map(_cat, counts),
            _nested_cat,
        ),
        "random": Network(
            {"first": _conv(8)} | {f"after_{count}": _conv(8 * count) for count in counts[:4]}, *map(_random, range(3))
        ),
        "pieces": Network(
            pair | {"stacked": _conv(24)},
            *(_stack, _slice, _pad, _split, _chunk, _resize("bilinear"), _resize("nearest")),
        ),
        "bicubic": Network(pair, _resize("bicubic")),
        "unet": Network(
            {"a": _conv(8), "b": _conv(8, 12), "c": _conv(12, 16), "d": _conv(24, 12), "last": _conv(16)} | up, _unet
        ),
        "yolo": Network({"a": _conv(8, 16), "b": _conv(8), "d": _conv(8)} | heads, _yolo),
        "delegates": Network(
            {"a": _conv(8), "b": _conv(8), "c": _conv(24), "last": _conv(32)}
            | {"qkv": nn.Linear(8, 48), "out": nn.Linear(24, 8)},
            _delegates,
        ),
    }


def program(name: str, dtype: str) -> bytes:
    """A network of the family as a .pte."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from model_profiling.upstream.faster_lowering import faster_lowering

    torch.manual_seed(1)
    network, image = networks()[name].eval(), torch.randn(1, 8, 12, 12)
    if dtype == "fp16":
        network, image = network.half(), image.half()
    exported = torch.export.export(network, (image,))
    if dtype == "int8":
        exported = torch.export.export(_quantized(exported.module(), image), (image,))
    with faster_lowering():
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        return bytes(lowered.to_executorch().buffer)


def _quantized(network: Any, image: Any) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(network, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()))
    prepared(image)
    return convert_pt2e(prepared)
