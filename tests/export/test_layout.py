"""`--rewrite layout` keeps what a model computes, moves values no more often than before, and never fails an export."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("executorch.exir")

import torch
from torch import nn
from torch.nn import functional

from model_profiling.export.in_memory import export_module
from model_profiling.export.rewrites import layout
from model_profiling.export.rewrites.layout.order import Layout, transposition
from model_profiling.formats.pte import read
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from tests.conftest import SAMPLED
from tests.helpers.in_process import verify
from tests.helpers.random_layouts import random_network

SHAPES = st.sampled_from([(1, 8, 6, 4), (2, 4, 4, 6), (1, 3, 8, 8), (1, 12, 10), (2, 6, 8)])
NUMBERS = st.lists(st.integers(0, 1 << 30), min_size=2, max_size=12)


def places(layout_: Layout) -> Any:
    """Where in memory each value of a tensor lies."""
    memory = np.arange(math.prod(layout_.shape)).reshape(layout_.sizes(layout_.order))
    named = [layout_.order.index(axis) for axis in layout_.among(range(len(layout_.dims)))]
    return memory.transpose(named).reshape(layout_.shape)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=4), st.data())
def test_views_and_permutes_only_rename_memory(shape: list[int], data: Any) -> None:
    tensor: Any = np.arange(math.prod(shape)).reshape(shape)
    held = Layout.contiguous(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(tensor.ndim)))
            tensor, held = tensor.transpose(order), held.permuted(order)
        else:
            first = data.draw(st.sampled_from([n for n in range(1, tensor.size + 1) if tensor.size % n == 0]))
            renamed = held.reshaped((first, tensor.size // first))
            if renamed is not None:
                tensor, held = tensor.reshape(first, -1), renamed
    assert (places(held) == tensor).all()
    wanted = tuple(data.draw(st.permutations(held.order)))
    sizes, permutation = transposition(held, wanted)
    moved = np.arange(tensor.size).reshape(sizes).transpose(permutation).ravel()
    assert (moved[places(held.reordered(wanted))] == tensor).all()


@settings(max_examples=5 if SAMPLED else 20, deadline=None)
@given(NUMBERS, SHAPES)
@pytest.mark.wide
def test_random_networks_answer_the_same(numbers: list[int], shape: tuple[int, ...]) -> None:
    network, x = random_network(numbers, shape)
    with torch.no_grad():
        expected = network(x)
        program = torch.export.export(network, (x,))
        layout.apply(program)
        answers = program.module()(x)
    for answer, eager in zip(answers, expected, strict=True):
        torch.testing.assert_close(answer, eager, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.wide
@settings(max_examples=2 if SAMPLED else 6, deadline=None, derandomize=True)
@given(NUMBERS, SHAPES)
def test_random_networks_export_and_move_no_more(numbers: list[int], shape: tuple[int, ...]) -> None:
    network, x = random_network(numbers, shape)
    before, stock = lowered(network, (x,), rewrite=False)
    after, answers = lowered(network, (x,), rewrite=True)
    assert transposes(after) <= transposes(before)
    for answer, expected in zip(answers, stock, strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-3, equal_nan=True)


def lowered(network: Any, inputs: tuple[Any, ...], rewrite: bool) -> tuple[DataFlow, list[Any]]:
    """The steps of the program that ExecuTorch makes, and what it answers."""
    from executorch.runtime import Runtime

    from model_profiling.export.lower.lowering import emit, lower

    program = torch.export.export(network, inputs)
    if rewrite:
        layout.apply(program)
    emitted = emit(lower(program, "xnnpack", keep_layout=rewrite)).program
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.pte"
        path.write_bytes(emitted.buffer)
        made = read(path)
        flow = data_flow(made, made.methods[0])
    method = Runtime.get().load_program(emitted.buffer).load_method("forward")
    assert flow is not None
    assert method is not None
    return flow, list(method.execute(list(inputs)))


def transposes(flow: DataFlow) -> int:
    """Those that move something: XNNPACK makes one of the right matrix a part of the multiplication."""
    return sum(
        step.op.startswith(("StaticTranspose", "aten::permute_copy"))
        and not all(flow.steps[reader].op.startswith("BatchMatrix") for reader in flow.readers(position) or [position])
        for position, step in enumerate(flow.steps)
    )


class Idiom(nn.Module):  # type: ignore[misc]
    """A convolution, something that models do with images, and another convolution."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.body = nn.Conv2d(3, 16, 3, padding=1), body
        self.wide, self.narrow, self.four = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 64)
        self.qkv, self.norm, self.batch = nn.Linear(16, 48), nn.LayerNorm(16), nn.BatchNorm2d(16)
        self.group, self.depthwise = nn.GroupNorm(1, 16), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.merge = nn.Linear(64, 16)
        self.register_buffer("offset", torch.randn(16, 1, 1))
        self.last = nn.LazyConv2d(4, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.body(self, self.first(x)))


def tokens(x: Any) -> Any:
    return x.flatten(2).transpose(1, 2)


def image(x: Any, like: Any) -> Any:
    return x.transpose(1, 2).reshape(1, -1, *like.shape[2:])


def mlp(net: Any, x: Any) -> Any:
    return net.narrow(functional.gelu(net.wide(x)))


def enlarged(net: Any, x: Any) -> Any:
    """Linear and a pixel shuffle by hand."""
    n, _, h, w = x.shape
    y = net.four(x.permute(0, 2, 3, 1)).relu().reshape(n, h, w, 2, 2, 16)
    return net.batch(y.permute(0, 5, 1, 3, 2, 4).reshape(n, 16, 2 * h, 2 * w))


def attention(net: Any, x: Any) -> Any:
    t = tokens(x)
    q, k, v = net.qkv(t).reshape(1, t.shape[1], 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
    weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
    return image(t + (weights @ v).transpose(1, 2).flatten(2), x)


def windows(net: Any, x: Any) -> Any:
    """Windows of 4 x 4 pixels, an MLP over each, and back: nothing in there minds the order of windows."""
    n, c, h, w = x.shape
    y = x.permute(0, 2, 3, 1).reshape(n, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
    y = mlp(net, net.norm(y)).reshape(n, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(n, h, w, c)
    return x + y.permute(0, 3, 1, 2)


def merged(net: Any, x: Any) -> Any:
    """Patch merging as Swin does it, on channels-last tokens."""
    y = x.permute(0, 2, 3, 1)
    parts = (y[:, ::2, ::2], y[:, 1::2, ::2], y[:, ::2, 1::2], y[:, 1::2, 1::2])
    return net.merge(torch.cat(parts, -1)).permute(0, 3, 1, 2)


def shuffled(net: Any, x: Any) -> Any:
    """A block of ShuffleNet."""
    first, second = x.chunk(2, 1)
    return functional.channel_shuffle(torch.cat((first, net.depthwise(second)), 1), 2)


def focus(net: Any, x: Any) -> Any:
    return torch.cat((x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]), 1)


# What is left: the input and the output, which the caller has as NCHW, and what the comment says.
IDIOMS: dict[str, tuple[Callable[..., Any], int]] = {
    "an MLP on channels-last pixels": (lambda net, x: mlp(net, x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), 2),
    "an MLP on tokens": (lambda net, x: x + image(mlp(net, net.norm(tokens(x))), x), 2),
    "numbers beside an image": (lambda net, x: (x * 2.0 + 1) / 3, 2),
    "a vector beside an image": (lambda net, x: x + net.offset, 2),
    "a gate": (lambda net, x: functional.hardsigmoid(x) * functional.mish(x), 2),
    "squeeze and excite": (lambda net, x: x * net.narrow(net.wide(x.mean((2, 3))))[..., None, None].sigmoid(), 2),
    "an operator that is not delegated": (lambda net, x: torch.where(x > 0, x, torch.erf(x)), 2),
    "one group": (lambda net, x: torch.cat((x, net.group(x)), 1), 2),
    "nearest upsampling": (lambda net, x: functional.interpolate(x, scale_factor=2.0, mode="nearest"), 2),
    "windows": (windows, 2),
    "focus": (focus, 2),
    "patch merging": (merged, 2),
    "pixel shuffle": (lambda net, x: functional.pixel_shuffle(x, 2), 3),  # pixels go to other rows
    "linear and pixel shuffle": (enlarged, 3),  # pixels go to other rows
    "channel shuffle": (shuffled, 3),  # channels change places
    "attention": (attention, 4),  # heads are taken apart, and put together
    "a classifier": (lambda net, x: x.flatten(1)[..., None, None], 3),  # channels become outermost
}


class Side(nn.Module):  # type: ignore[misc]
    """Networks side by side, each on its own image: one lowering costs much less than several."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, *images: Any) -> Any:
        return tuple(network(x) for network, x in zip(self.networks, images, strict=True))


FOLLOWING: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.softmax(-1),
    lambda x: x * torch.linspace(1, 2, 8),
    lambda x: functional.prelu(x - 0.5, torch.full((8,), 0.1)),
    *(lambda x, dim=dim: x.softmax(dim) for dim in range(1, 3)),
    *(lambda x, shape=shape: x * torch.linspace(1, 2, math.prod(shape)).reshape(shape)
      for shape in ((8, 1), (8, 8), (8, 1, 1), (8, 1, 8), (1, 8, 8), (1, 1), (1, 8, 8, 8))),
    lambda x: functional.prelu(x - 0.5, torch.full((1,), 0.1)),
    lambda x: functional.leaky_relu(x - 0.5),
    lambda x: torch.where(x > 0.5, x, -x),
    lambda x: functional.glu(x, 1),
    lambda x: functional.glu(x, 3),
    lambda x: x @ x.transpose(2, 3),
    lambda x: functional.linear(x, torch.linspace(-1, 1, 64).reshape(8, 8)),
    lambda x: x[:, 2:6],
    lambda x: x[..., 1::2],
    lambda x: torch.cat((x, x * 2), 3),
    lambda x: torch.cat((x, x * 2), 1),
    lambda x: functional.pad(x, (1, 2, 0, 1)),
    *(lambda x, dim=dim: x.mean(dim, keepdim=True) for dim in range(1, 4)),
    *(lambda x, dim=dim: x.amax(dim, keepdim=True) for dim in range(1, 4)),
    lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 8, 8),
    lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: functional.layer_norm(x, (8,)),
    lambda x: x.cumsum(1),
)  # fmt: skip


class Given(nn.Module):  # type: ignore[misc]
    """Something that reads an image and is an output."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.body = nn.Conv2d(3, 8, 3, padding=1), body

    def forward(self, x: Any) -> Any:
        return self.body(self.first(x).relu())


class Following(Given):
    """It is read as an image again, too."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        super().__init__(body)
        self.last = nn.LazyConv2d(4, 1)

    def forward(self, x: Any) -> Any:
        made = super().forward(x)
        return torch.cat((made.flatten(), self.last(made).flatten()))


@pytest.mark.parametrize(
    ("kind", "bodies"),
    [
        (Given, FOLLOWING[:3]),
        pytest.param(Given, FOLLOWING[3:], marks=pytest.mark.wide),
        pytest.param(Following, FOLLOWING, marks=pytest.mark.wide),
    ],
)
def test_whatever_reads_an_image_answers_as_eager_does(kind: Any, bodies: Any) -> None:
    torch.manual_seed(0)
    # Channels, height and width are alike, so that shapes alone tell nothing.
    network, images = Side([kind(body) for body in bodies]), tuple(torch.randn(1, 3, 8, 8) for _ in bodies)
    with torch.no_grad():
        wanted = network(*images)
        _, answers = lowered(network.eval(), images, rewrite=True)
    for place, (answer, eager) in enumerate(zip(answers, wanted, strict=True)):
        torch.testing.assert_close(answer, eager, rtol=1e-4, atol=1e-4, msg=lambda m, n=place: f"{n}: {m}")


def _starts() -> list[Any]:
    """Six idioms at a time; CI has the first twelve."""
    left = [pytest.mark.wide, pytest.mark.again]
    return [pytest.param(start, marks=left if start > 6 else left[:1]) for start in range(0, len(IDIOMS), 6)]


@pytest.mark.parametrize("start", _starts())
def test_idioms_move_only_what_has_to_move(start: int) -> None:
    names = list(IDIOMS)[start : start + 6]
    torch.manual_seed(0)
    images = tuple(torch.randn(1, 3, 8, 12) for _ in names)
    network = Side([Idiom(IDIOMS[name][0]) for name in names])
    with torch.no_grad():
        network(*images)  # the last convolutions learn their widths
        network.eval()
        flow, answers = lowered(network, images, rewrite=True)
        for name, answer, wanted in zip(names, answers, network(*images), strict=True):
            torch.testing.assert_close(answer, wanted, rtol=1e-4, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
    assert transposes(flow) <= sum(IDIOMS[name][1] for name in names)
    for name, part, x in zip(names, network.networks, images, strict=True):
        told = layout.find(torch.export.export(part, (x,)))
        # A mean that drops its dimensions has a rewrite of its own.
        assert told or name in ("a classifier", "squeeze and excite"), name


@pytest.mark.wide
def test_fp16_answers_as_the_eager_model_does(tmp_path: Path) -> None:
    class All(Idiom):
        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for body in (enlarged, lambda net, x: x * 2.0, windows, attention):
                x = body(self, x)
            return self.last(x)

    torch.manual_seed(0)
    network, x = All(enlarged), torch.randn(1, 3, 4, 4)
    with torch.no_grad():
        network(x)
    result = export_module(network.eval(), x, tmp_path, dtype="fp16", rewrites=("layout",))
    assert verify(result).verdict == "agrees"
    assert result.record.rewrites is not None
    assert not result.record.rewrites["layout"], "a second time would find something to change"


def test_changes_in_place_are_kept_in_order() -> None:
    class InPlace(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = x.permute(0, 2, 3, 1) * 1
            z = functional.relu_(y + 1)
            z += y
            z *= 2
            return z.permute(0, 3, 1, 2), y

    x = torch.randn(1, 3, 4, 5)
    program = torch.export.export(InPlace().eval(), (x,))
    layout.apply(program)
    for answer, expected in zip(program.module()(x), InPlace()(x), strict=True):
        torch.testing.assert_close(answer, expected)


@pytest.mark.parametrize("case", ["a part is overwritten", "sizes that are not known"])
def test_what_cannot_be_proven_stays(case: str) -> None:
    class Net(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = x.permute(0, 2, 3, 1).clone()
            if case == "a part is overwritten":
                y[:, 0] += 1
            return y.permute(0, 3, 1, 2).relu()

    x = torch.randn(2, 3, 4, 5)
    dynamic = {"x": {0: torch.export.Dim("batch", min=1, max=8)}} if case == "sizes that are not known" else None
    program = torch.export.export(Net().eval(), (x,), dynamic_shapes=dynamic)
    layout.apply(program)
    torch.testing.assert_close(program.module()(x), Net()(x))
