"""A rewrite keeps what a model computes, does what it is for, and leaves alone what does not qualify."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch

from model_profiling.base.rewrites import AUTO, NO_REWRITE, REWRITES
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.export.lower.lowering import lower
from model_profiling.export.rewrites import apply, matches
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.models.toy_cnn.model import ToyCNN
from model_profiling.upstream.faster_lowering import faster_lowering
from tests.helpers.parsers import parser_of

Forward = Callable[[Any, Any], Any]


class Net(torch.nn.Module):  # type: ignore[misc]
    """An image, forwards over it, and layers for them to use."""

    def __init__(self, *forwards: Forward) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 1)
        self.up, self.down = torch.nn.Linear(4, 6), torch.nn.Linear(6, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.forwards = forwards

    def forward(self, image: Any) -> Any:
        return tuple(forward(self, self.conv(image)) for forward in self.forwards)


def rewritten(name: str, module: Any, image: Any) -> tuple[int, float, set[Any]]:
    """How many places changed, the largest error, and the operators that are left."""
    program = torch.export.export(module.eval(), (image,))
    changed = apply(name, program)
    with torch.no_grad():
        pairs = zip(
            *(each if isinstance(each, tuple) else (each,) for each in (program.module()(image), module(image))),
            strict=True,
        )
        error = max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
    # Lowering starts with this; a graph that does not fit its signature would fail here.
    with faster_lowering():
        program.run_decompositions({})
    return changed, error, {node.target for node in program.graph.nodes}


def mlp(net: Any, tokens: Any) -> Any:
    return net.down(torch.nn.functional.gelu(net.up(tokens)))


QUALIFY: dict[str, Forward] = {
    "channels last and back": lambda net, x: mlp(net, x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    "tokens and back": lambda net, x: mlp(net, x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape),
    "a residual inside": lambda net, x: (x.movedim(1, -1) + mlp(net, x.movedim(1, -1))).movedim(-1, 1),
    "two after each other": lambda net, x: net.conv(
        QUALIFY["nothing but a transpose and back"](net, QUALIFY["tokens and back"](net, x))
    ),
    "nothing but a transpose and back": lambda net, x: x.transpose(2, 3).relu().transpose(2, 3),
}
NEEDED: dict[str, Forward] = {
    "another order afterwards": lambda net, x: mlp(net, x.permute(0, 2, 3, 1)).permute(0, 3, 2, 1),
    "linear over the width": mlp,
    "tokens that leave": lambda net, x: mlp(net, x.permute(0, 2, 3, 1)),
    "a mixture of two orders": lambda net, x: (x.permute(0, 1, 3, 2) + x).permute(0, 1, 3, 2),
    "weights used elsewhere": lambda net, x: (
        QUALIFY["channels last and back"](net, x) * net.up.weight.mean() * net.down.weight.mean()
    ),
}


def moving(program: pte.Program) -> int:
    """How many transposes a program has."""
    flow = data_flow(program, program.methods[0])
    assert flow is not None
    return sum(bool(step.permutation) for step in flow.steps)


def test_only_the_input_and_the_output_of_layers_that_treat_every_pixel_alike_are_transposed(tmp_path: Path) -> None:
    def all_of_them(net: Any, x: Any) -> Any:
        for forward in QUALIFY.values():
            x = forward(net, x)
        return x

    changed, error, _ = rewritten("layout", network := Net(all_of_them), x := torch.randn(2, 4, 4, 4))
    assert changed >= len(QUALIFY) and error < 1e-5
    program = torch.export.export(network, (x,))
    apply("layout", program)
    path = tmp_path / "net.pte"
    path.write_bytes(lower(program, "xnnpack", keep_layout=True).edge.to_executorch().buffer)
    assert moving(pte.read(path)) == 2


def test_an_order_that_somebody_needs_is_made() -> None:
    # Width, height and channels are alike, so that shapes alone tell nothing.
    assert rewritten("layout", Net(*NEEDED.values()), torch.randn(1, 4, 4, 4))[1] < 1e-5


def test_gelu_in_fp16_becomes_what_xnnpack_takes() -> None:
    x = torch.linspace(-400, 400, 4001).half()
    changed, _, left = rewritten("gelu-tanh", torch.nn.GELU(), x)
    assert changed == 1 and torch.ops.aten.gelu.default not in left
    program = torch.export.export(torch.nn.GELU(), (x,))
    apply("gelu-tanh", program)
    torch.testing.assert_close(program.module()(x).float(), torch.nn.functional.gelu(x.float()), atol=3e-3, rtol=1e-3)
    assert rewritten("gelu-tanh", torch.nn.GELU(), x.float())[0] == 0


def twice_in_place(net: Any, x: Any) -> Any:
    return torch.nn.functional.silu(x, inplace=True) + x


def seen_through_a_view(net: Any, x: Any) -> Any:
    view = x.flatten(1)
    torch.nn.functional.silu(x, inplace=True)
    return view * 2


HALF: dict[str, tuple[str, int, Forward]] = {
    "silu": ("silu", 1, lambda net, x: torch.nn.functional.silu(x)),
    "silu in place, and its input read again": ("silu", 1, twice_in_place),
    "silu in place of what a view shows": ("silu", 0, seen_through_a_view),
    "glu": ("silu", 1, lambda net, x: torch.nn.functional.glu(x, 1)),
    "hardsigmoid": ("hardsigmoid", 1, lambda net, x: torch.nn.functional.hardsigmoid(x)),
    "hardsigmoid in place": ("hardsigmoid", 1, lambda net, x: torch.nn.functional.hardsigmoid(x, inplace=True)),
    "mean over pixels": ("keepdim", 1, lambda net, x: x.mean((-1, -2))),
    "sum over pixels": ("keepdim", 1, lambda net, x: x.sum((2, 3))),
    "sum over pixels, dimensions kept": ("keepdim", 1, lambda net, x: x.sum((3, 2), keepdim=True)),
    "mean over pixels, dimensions kept": ("keepdim", 0, lambda net, x: x.mean((2, 3), keepdim=True)),
    "mean over channels": ("mean", 1, lambda net, x: x.mean(1)),
    "mean over the width": ("mean", 1, lambda net, x: x.mean(3)),
    "a norm, whose squares fp16 may not have": ("mean", 0, lambda net, x: x.norm(dim=-1)),
    "sum of all": ("keepdim", 0, lambda net, x: x.sum()),
}


NORMS: dict[str, tuple[str, int, Forward]] = {
    "rows of length one": ("mean", 1, lambda net, x: x / x.norm(dim=-1, keepdim=True)),
    "norm over channels": ("mean", 1, lambda net, x: torch.linalg.vector_norm(x, dim=1)),
    "norm over pixels": ("mean", 1, lambda net, x: torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)),
    "norm over rows and columns": ("mean", 1, lambda net, x: x.movedim(1, 3).norm(dim=(1, 2), keepdim=True)),
    "norm of all": ("mean", 1, lambda net, x: torch.linalg.vector_norm(x)),
    "another norm": ("mean", 0, lambda net, x: torch.linalg.vector_norm(x, 1, dim=1)),
}
SINGLE = ("silu", "hardsigmoid", "mean over pixels", "sum over pixels", *NORMS)
CASES = HALF | NORMS


@pytest.mark.parametrize(
    ("cases", "dtype"), [(tuple(HALF), torch.float16), (SINGLE, torch.float32)], ids=["fp16", "fp32"]
)
def test_what_is_computed_stays_and_only_what_gains_changes(cases: tuple[str, ...], dtype: Any) -> None:
    module = Net(*(CASES[case][2] for case in cases)).to(dtype).eval()
    image = (torch.linspace(-40, 40, 4 * 36).reshape(1, 4, 6, 6)).to(dtype)
    program = torch.export.export(module, (image,))
    before = str(program.graph)
    # What layouts cost is another matter.
    found = {name: len(places) for name, places in matches(program).items() if name != "layout"}
    assert str(program.graph) == before, "looking changes nothing"
    wanted = dict.fromkeys(found, 0)
    for name, expected, _ in map(CASES.__getitem__, cases):
        # SiLU of fp32 is delegated as it is.
        wanted[name] += expected if dtype == torch.float16 or name in ("keepdim", "mean", "hardsigmoid") else 0
    assert found == wanted
    for name, count in wanted.items():
        assert apply(name, program) == count and matches(program, [name])[name] == []
    with torch.no_grad():
        ours, theirs = program.module()(image.clone()), module(image.clone())
    tolerance = 4e-3 if dtype == torch.float16 else 1e-5
    for case, mine, other in zip(cases, ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=tolerance, rtol=tolerance, msg=lambda m, c=case: f"{c}: {m}")
    with faster_lowering():
        program.run_decompositions({})


@pytest.mark.parametrize("name", ["keepdim", "layout"])
def test_toy_cnn_answers_the_same(name: str) -> None:
    changed, error, _ = rewritten(name, ToyCNN(), torch.randn(1, 3, 96, 96))
    assert changed and error < 1e-6


def test_the_command_offers_every_rewrite() -> None:
    parser = parser_of("export")
    for name in (*REWRITES, AUTO, NO_REWRITE):
        assert parser.parse_args(["toy_cnn", "--rewrite", name]).rewrites == [name]


def test_a_rewrite_that_finds_nothing_is_a_warning(tmp_path: Path) -> None:
    image = torch.randn(1, 3, 8, 8)
    made = export_module(torch.nn.ReLU(), image, tmp_path, name="net", dtype="fp32", rewrites=("layout",))
    assert "the rewrite layout finds nothing to change in net (fp32)" in made.record.warnings


@pytest.mark.wide
def test_int8_is_quantized_after_the_rewrite(tmp_path: Path) -> None:
    made = export(ExportRequest("toy_cnn", tmp_path, "int8", rewrites=("layout",), verify=False))
    assert moving(pte.read(made.paths.pte)) <= 1, "that of the input"
