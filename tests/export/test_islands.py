"""Operators that XNNPACK does not take, rewritten with operators that it takes: the same answers, and nothing left out.

Values are checked on the rewritten graph in eager PyTorch, where many forms can be tried, and in real programs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.export.in_memory import export_module
from model_profiling.export.rewrites import apply, matches
from model_profiling.upstream.faster_lowering import faster_lowering
from tests.conftest import SAMPLED
from tests.helpers.in_process import run_program, verify

functional = torch.nn.functional
attend = functional.scaled_dot_product_attention
Forward = Callable[..., Any]
ISLANDS = ("attention", "copies", "cumsum", "mean", "norm", "upsample")
TOLERANCE = {torch.float32: 2e-5, torch.float16: 1e-2}


class Net(torch.nn.Module):  # type: ignore[misc]
    """Several forwards over one tensor of 2 x 4 x 6 x 8, and constants for them to use."""

    def __init__(self, *forwards: Forward) -> None:
        super().__init__()
        self.forwards = forwards
        self.token = torch.nn.Parameter(torch.randn(1, 1, 8))
        self.wide, self.groups, self.channels = torch.randn(8), torch.randn(4), torch.rand(4) + 0.5
        self.register_buffer("bias", torch.randn(1, 4, 6, 6))
        self.register_buffer("allowed", torch.rand(6, 6).round().bool() | torch.eye(6).bool())

    def forward(self, x: Any) -> tuple[Any, ...]:
        return tuple(forward(self, x) for forward in self.forwards)


def rewritten(name: str, module: Any, *inputs: Any, dynamic: Any = None) -> tuple[int, Any, Any]:
    """How many places changed, and what graph and model answer."""
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic)
    before = str(program.graph)
    places = len(matches(program, [name])[name])
    assert str(program.graph) == before, "looking changes nothing"
    assert apply(name, program) == places
    program.graph.lint()
    assert matches(program, [name])[name] == []
    # Lowering starts with this; a graph that does not fit its signature would fail here.
    with faster_lowering():
        program.run_decompositions({})
    with torch.no_grad():
        return places, program.module()(*(x.clone() for x in inputs)), module(*(x.clone() for x in inputs))


CHANGE: dict[str, dict[str, Forward]] = {
    "attention": {
        "plain": lambda net, x: attend(x, x[:, :, :5], x[:, :, 1:]),
        "causal": lambda net, x: attend(x, x, x, is_causal=True, scale=0.3),
        "a bias": lambda net, x: attend(x, x, x, attn_mask=net.bias.to(x.dtype)),
        "a mask": lambda net, x: attend(x, x, x, attn_mask=net.allowed),
        "shared keys": lambda net, x: attend(x, x[:, :2], x[:, :2], is_causal=True, enable_gqa=True),
        "product": lambda net, x: x @ x.transpose(-1, -2),
        "product of three": lambda net, x: x.flatten(0, 1) @ x.flatten(0, 1).mT,
        "one matrix for all": lambda net, x: x @ x[0, 0].mT,
        "one of a batch for all": lambda net, x: x @ x[:1, :1].mT,
        "two matrices": lambda net, x: x[0, 0] @ x[0, 1].mT,
    },
    "copies": {
        "expand of nothing": lambda net, x: x.expand(2, 4, 6, 8) * 2,
        "expand before arithmetic": lambda net, x: x[:1].expand_as(x) + x,
        "expand for its own sake": lambda net, x: x[:, :1, :, :1].expand(-1, 4, -1, 3).relu(),
        "expand of a parameter": lambda net, x: torch.cat([net.token.to(x.dtype).expand(2, -1, -1), x[:, 0]], 1),
        "select": lambda net, x: x.select(1, -1),
        "unbind": lambda net, x: torch.stack(x.unbind(2)[::-1]),
        "chunk": lambda net, x: torch.cat(x.chunk(3, -1)[::-1], -1),
        "split": lambda net, x: torch.cat(x.split([1, 3], 1)[::-1], 1),
        "repeat each": lambda net, x: x.repeat_interleave(3, 1),
        "repeat all": lambda net, x: x[0].repeat(2, 1, 3, 1),
        "squeeze": lambda net, x: x.unsqueeze(1).relu().squeeze(1),
    },
    "cumsum": {"in the middle": lambda net, x: x.cumsum(1), "at the end": lambda net, x: x.cumsum(-1)},
    "mean": {
        "last": lambda net, x: x.mean(-1),
        "kept": lambda net, x: x.repeat(1, 1, 1, 12).mean(3, keepdim=True),
        "channels": lambda net, x: x.mean(1),
        "sum of tokens": lambda net, x: x[0].sum(1, keepdim=True),
        "several": lambda net, x: x.mean((1, 2, 3)),
    },
    "norm": {
        "layer": lambda net, x: functional.layer_norm(x, (8,), net.wide.to(x.dtype), net.wide.to(x.dtype)),
        "layer of two axes": lambda net, x: functional.layer_norm(x * 300, (6, 8)),
        "RMS": lambda net, x: functional.rms_norm(x * 0.01, (8,), net.wide.to(x.dtype), 1e-6),
        "group": lambda net, x: functional.group_norm(x, 2, net.groups.to(x.dtype), net.channels.to(x.dtype)),
        "one group": lambda net, x: functional.group_norm(x * 1000 + 5, 1),
        "instance": lambda net, x: functional.instance_norm(x, weight=net.channels.to(x.dtype)),
        "instance of a sequence": lambda net, x: functional.instance_norm(x[0]),
    },
    "upsample": {
        "twice": lambda net, x: functional.interpolate(x, scale_factor=2),
        "to a size": lambda net, x: functional.interpolate(x, (18, 8)),
        "exact": lambda net, x: functional.interpolate(x, scale_factor=(1, 4), mode="nearest-exact"),
        "channels that no group divides": lambda net, x: functional.interpolate(
            x.repeat(1, 10, 1, 1)[:, :37], scale_factor=(2, 3)
        ),
        "a factor that is not whole": lambda net, x: functional.interpolate(x, scale_factor=1.5),
        "nearly whole": lambda net, x: functional.interpolate(x, scale_factor=(3.05, 3.05), mode="nearest-exact"),
        "pooling whose border counts": lambda net, x: functional.avg_pool2d(x, (3, 2), (1, 2), (1, 0)),
        "pooling that rounds nothing up": lambda net, x: functional.avg_pool2d(x, 2, ceil_mode=True),
        "both, and strides": lambda net, x: functional.avg_pool2d(x, 3, (1, 7), 1, ceil_mode=True),
        "pooling to the size that is there": lambda net, x: functional.adaptive_avg_pool2d(x.relu(), (6, 8)) * 2,
    },
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", ISLANDS)
def test_the_answers_stay_the_same(name: str, dtype: Any) -> None:
    torch.manual_seed(0)
    cases = CHANGE[name]
    net = Net(*cases.values()).to(dtype)
    places, ours, theirs = rewritten(name, net, torch.randn(2, 4, 6, 8).to(dtype))
    assert places >= len(cases)
    tolerance = 0 if name in ("copies", "upsample") else TOLERANCE[dtype]
    for case, mine, other in zip(cases, ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=tolerance, rtol=tolerance, msg=lambda m, c=case: f"{c}: {m}")


def changed_in_place(net: Any, x: Any) -> Any:
    x = x * 2
    for part in x.unbind(1):
        part.add_(1)
    x.select(2, 0).mul_(3)
    return x


STAY: dict[str, tuple[str, Forward]] = {
    "a mask that is computed": ("attention", lambda net, x: attend(x, x, x, attn_mask=x[..., :6])),
    "a mask that allows nothing": ("attention", lambda net, x: attend(x, x, x, attn_mask=net.allowed & (net.bias > 9))),
    "a linear layer": ("attention", lambda net, x: x @ net.token[0].mT),
    "a resize that is delegated": ("upsample", lambda net, x: functional.interpolate(x, (9, 9), mode="bilinear")),
    "pooling that rounds up": ("upsample", lambda net, x: functional.avg_pool2d(x, 5, 2, ceil_mode=True)),
    "windows that are delegated": ("upsample", lambda net, x: functional.avg_pool2d(x, 3, 1, 1, False, False)),
    "another divisor": ("upsample", lambda net, x: functional.avg_pool2d(x, 2, 2, 0, True, True, 3)),
    "pooling that is delegated": ("upsample", lambda net, x: functional.adaptive_avg_pool2d(x, (3, 4))),
    "integers": ("copies", lambda net, x: x.long().expand(2, 4, 6, 8).select(1, 0)),
    "a long sum": ("cumsum", lambda net, x: x.reshape(2, 192).repeat(1, 3).cumsum(1)),
    "double precision": ("norm", lambda net, x: functional.layer_norm(x.double(), (8,))),
    "means over pixels": ("mean", lambda net, x: x.mean((2, 3))),
    "means over axes apart": ("mean", lambda net, x: x.mean((0, 2))),
}


@pytest.mark.parametrize("name", ISLANDS)
def test_what_cannot_be_proven_stays(name: str) -> None:
    torch.manual_seed(0)
    cases = [forward for rewrite, forward in STAY.values() if rewrite == name]
    places, ours, theirs = rewritten(name, Net(*cases), torch.randn(2, 4, 6, 8))
    assert places == 0
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


def test_views_that_are_written_to_stay_views() -> None:
    places, ours, theirs = rewritten("copies", Net(changed_in_place), torch.randn(2, 4, 6, 8))
    assert places == 2 and torch.equal(ours[0], theirs[0])


def test_sizes_that_are_not_known_stay() -> None:
    forwards = [forward for cases in CHANGE.values() for case, forward in cases.items() if case in ("layer", "last")]
    dynamic = ({0: torch.export.Dim("batch", min=2, max=8)},)
    for name in ("norm", "mean"):
        assert rewritten(name, Net(*forwards), torch.randn(2, 4, 6, 8), dynamic=dynamic)[0] == 0


@pytest.mark.wide
@settings(max_examples=2 if SAMPLED else 6, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_norms_of_any_shape_and_size(data: st.DataObject) -> None:
    """Of all lengths, averages and sizes that fp16 can hold, and with values far out."""
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16]))
    length = data.draw(st.sampled_from([1, 2, 7, 64, 65, 97, 192, 1000]))
    x = torch.randn(3, 2, length, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    x = x * data.draw(st.sampled_from([0.01, 1.0, 300.0])) + data.draw(st.sampled_from([0.0, 100.0]))
    x[0, 0, 0] = data.draw(st.sampled_from([0.0, 60000.0]))
    forwards: list[Forward] = [
        lambda net, x: functional.layer_norm(x, (length,)),
        lambda net, x: functional.rms_norm(x, (length,), eps=1e-5),
        lambda net, x: functional.group_norm(x, 1),
    ]
    x = x.to(dtype)
    places, ours, _ = rewritten("norm", Net(*forwards), x)
    wanted = [forward(None, x.double()) for forward in forwards]
    assert places == len(forwards)
    for mine, other in zip(ours, wanted, strict=True):
        # What the dtype itself loses of such values: rounding of x, in units of the deviation.
        spread = x.double().std(-1, correction=0).clamp(min=1e-3).min().item() if length > 1 else 1.0
        lost = torch.finfo(dtype).eps * (4 + x.double().abs().max().item() / spread)
        torch.testing.assert_close(mine.double(), other, atol=4 * lost, rtol=8 * torch.finfo(dtype).eps)


RESIZES: dict[str, Callable[[Any, tuple[int, int], bool], Any]] = {
    "bicubic": lambda x, size, corners: functional.interpolate(x, size, mode="bicubic", align_corners=corners),
    "bicubic by a factor": lambda x, size, corners: functional.interpolate(
        x, scale_factor=(size[0] / 5, size[1] / 7), mode="bicubic", align_corners=corners
    ),
    "smoothed bicubic": lambda x, size, corners: functional.interpolate(
        x, size, mode="bicubic", align_corners=corners, antialias=True
    ),
    "smoothed bilinear": lambda x, size, corners: functional.interpolate(
        x, size, mode="bilinear", align_corners=corners, antialias=True
    ),
    "nearest": lambda x, size, corners: functional.interpolate(x, size, mode="nearest"),
    "pooling": lambda x, size, corners: functional.adaptive_avg_pool2d(x, size),
}


@pytest.mark.wide
@settings(max_examples=3 if SAMPLED else 12, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_resizes_of_any_kind_and_size(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16]))
    channels, height, width = (data.draw(st.integers(2, 9)) for _ in range(3))
    size = data.draw(st.integers(4, 20)), data.draw(st.integers(4, 20))
    corners, kinds = data.draw(st.booleans()), data.draw(st.lists(st.sampled_from(sorted(RESIZES)), min_size=1))
    if dtype == torch.float16:
        # PyTorch has these in fp32 only.
        kinds = [kind for kind in kinds if "smoothed" not in kind] or ["bicubic"]
    x = torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    forwards = [lambda net, x, kind=kind: RESIZES[kind](x, size, corners) for kind in kinds]
    places, ours, _ = rewritten("upsample", Net(*forwards), x)
    divides = height % size[0] == 0 and width % size[1] == 0
    assert places == sum(kind != "pooling" or not divides for kind in kinds)
    for kind, mine in zip(kinds, ours, strict=True):
        wanted = RESIZES[kind](x.double(), size, corners)
        tolerance = 16 * torch.finfo(dtype).eps
        torch.testing.assert_close(mine.double(), wanted, atol=tolerance, rtol=tolerance, msg=lambda m, k=kind: k + m)


def test_a_large_resize_is_done_without_a_large_matrix() -> None:
    x = torch.randn(1, 700, 40, 3)
    places, ours, theirs = rewritten("upsample", Net(lambda net, x: RESIZES["bicubic"](x, (50, 4), False)), x)
    assert places == 1
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


class Islands(torch.nn.Module):  # type: ignore[misc]
    """All of them between layers that are delegated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 1)
        self.groups, self.rows = torch.nn.GroupNorm(2, 8), torch.nn.LayerNorm(8)
        self.parts = torch.nn.Linear(8, 24)

    def forward(self, image: Any) -> Any:
        x = functional.interpolate(self.groups(self.first(image)), scale_factor=2)
        x = functional.interpolate(x, (7, 6), mode="bicubic")
        tokens = self.rows(self.last(x).flatten(2).transpose(1, 2))
        query, key, value = self.parts(tokens).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attend(query, key, value).transpose(1, 2).flatten(2)
        return mixed.cumsum(-1) + mixed.mean(-1, keepdim=True), (query @ key.mT)[:, 0]


@pytest.mark.wide
@pytest.mark.parametrize("dtype", ["fp16", pytest.param("int8", marks=pytest.mark.again)])
def test_a_program_of_islands_is_one_delegate(dtype: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    result = export_module(Islands(), torch.randn(1, 3, 4, 4), tmp_path, dtype=dtype, rewrites=ISLANDS)
    assert result.record.rewrites is not None and not any(result.record.rewrites[name] for name in ISLANDS)
    assert not result.record.delegation.not_delegated and result.record.delegation.delegate_calls == 1
    assert verify(result).verdict == "agrees"


def test_layer_norm_in_fp16_is_right_where_the_portable_kernel_is_not(tmp_path: Path) -> None:
    """ExecuTorch 1.5.1 adds up rows of fp16 in fp16."""
    x = torch.cat([torch.randn(4, 512), torch.randn(4, 512) * 500, torch.full((1, 512), 3.0)])
    norm = torch.nn.LayerNorm(512)
    wanted = norm(x.half().float()).detach()
    off = {}
    for rewrites in ((), ("norm",)):
        made = export_module(
            norm, x, tmp_path / "_".join(("norm", *rewrites)), dtype="fp16", rewrites=rewrites, allow_wrong=True
        )
        (answer,) = run_program(made.paths, made.record)
        off[rewrites] = float((answer.float() - wanted).abs().max())
    assert not off[()] < 1, "the portable kernel is right now: say so in norm.py"
    assert off[("norm",)] < 0.02


@pytest.mark.wide
def test_norms_in_fp16_neither_overflow_nor_vanish(tmp_path: Path) -> None:
    """XNNPACK flushes small numbers to zero, parts of sums too; eager PyTorch does not, so this needs a program."""

    class Norms(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, tiny: Any) -> Any:
            image = functional.hardtanh(x, -200, 200).view(1, 16, 64, 64)
            return (
                functional.group_norm(image, 4),
                functional.layer_norm(x, (1024,)),
                functional.layer_norm(tiny, (1024,)),
            )

    x = torch.randn(64, 1024)
    x[0, 0], x[1], x[2] = 50000.0, 0.0, x[2] + 100
    tiny = 1e-3 + 1e-4 * torch.randn(4, 1024)
    made = export_module(Norms(), (x, tiny), tmp_path, dtype="fp16", rewrites=("norm",))
    wanted = Norms()(x.half().float(), tiny.half().float())
    for mine, other in zip(run_program(made.paths, made.record), wanted, strict=True):
        torch.testing.assert_close(mine.float(), other, atol=0.02, rtol=0.01)
