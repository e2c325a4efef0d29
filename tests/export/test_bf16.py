"""Why the kit does not export bf16: what programs do that XNNPACK's opt-in (`enable_bf16`) makes.

If one of these tests fails with another ExecuTorch, that one does more: look again whether to offer the dtype.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

import torch
from torch import nn
from torch.nn import functional

from model_profiling.analysis.accuracy.agreement import agreement_of
from model_profiling.base import dtypes
from model_profiling.base.errors import InputError
from model_profiling.export.lower.delegation import list_nodes
from model_profiling.fleet.sweep.sweep_file import parse as parse_sweep
from model_profiling.pipeline.config import parse_config
from model_profiling.pipeline.pipeline import Pipeline
from model_profiling.platforms.emulator import EmulatorPlatform
from model_profiling.runner.protocol import Exit
from model_profiling.upstream.faster_lowering import faster_lowering
from sme2_kit import Run, export
from tests.conftest import kit, needs_emulator

# Between an output that is rounded to bf16 once and what it was: 55 dB.
ROUNDED_DB = 40.0


class Network(nn.Module):  # type: ignore[misc]
    """Layers by name, and what a function makes of them and the inputs."""

    def __init__(self, forward: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self._forward = forward

    def forward(self, *inputs: Any) -> Any:
        return self._forward(self.layers, *inputs)


def attention(m: Any, x: Any) -> Any:
    q, k, v = (m[name](x).unflatten(-1, (4, 16)).transpose(1, 2) for name in "qkv")
    return m["out"](functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def elementwise(m: Any, x: Any) -> Any:
    return functional.gelu(torch.sigmoid(x) * x + torch.relu(x)) - x.abs()


def projections() -> dict[str, nn.Module]:
    return {name: nn.Linear(64, 64) for name in ("q", "k", "v", "out")}


# How a network is made, and the shapes of its inputs.
Case = tuple[Callable[[], Any], list[tuple[int, ...]]]
IMAGE = (1, 8, 10, 10)
RUNS: dict[str, Case] = {
    "several rows": (lambda: Network(lambda m, x: m["a"](x), a=nn.Linear(64, 32)), [(9, 64)]),
    "one row": (lambda: Network(lambda m, x: m["a"](x), a=nn.Linear(64, 32, bias=False)), [(1, 64)]),
    "elementwise": (lambda: Network(elementwise), [(9, 64)]),
    "layer norm": (lambda: Network(lambda m, x: m["b"](m["a"](x)), a=nn.LayerNorm(64), b=nn.Linear(64, 8)), [(9, 64)]),
    # torch computes attention in fp32 where it takes it apart.
    "attention": (lambda: Network(attention, **projections()), [(1, 9, 64)]),
}
DOES_NOT_LOAD: dict[str, Case] = {
    "convolution": (lambda: Network(lambda m, x: m["a"](x), a=nn.Conv2d(8, 16, 3)), [IMAGE]),
    "1x1": (lambda: Network(lambda m, x: m["a"](x), a=nn.Conv2d(8, 16, 1, bias=False)), [IMAGE]),
    "depthwise": (lambda: Network(lambda m, x: m["a"](x), a=nn.Conv2d(8, 8, 3, groups=8)), [IMAGE]),
    "transposed": (lambda: Network(lambda m, x: m["a"](x), a=nn.ConvTranspose2d(8, 16, 2, 2)), [IMAGE]),
    "batch matmul": (lambda: Network(lambda m, a, b: torch.bmm(a, b)), [(2, 9, 16), (2, 16, 12)]),
    "softmax": (lambda: Network(lambda m, x: torch.softmax(x, -1)), [(9, 64)]),
    "max pooling": (lambda: Network(lambda m, x: functional.max_pool2d(x, 2)), [IMAGE]),
    "average pooling": (lambda: Network(lambda m, x: functional.avg_pool2d(x, 2)), [IMAGE]),
    "mean": (lambda: Network(lambda m, x: x.mean((2, 3), keepdim=True)), [IMAGE]),
}


class Program:
    """A network in bf16 as a .pte, how many of its operators are delegated, and what eager PyTorch answers."""

    def __init__(self, case: Case, home: Path, opt_in: bool = True) -> None:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        torch.manual_seed(1)
        network = case[0]().eval().requires_grad_(False).to(torch.bfloat16)
        inputs = tuple(torch.randn(shape).to(torch.bfloat16) for shape in case[1])
        self.expected = network(*inputs)
        with faster_lowering():
            captured = torch.export.export(network, inputs)
            edge = to_edge_transform_and_lower(captured, partitioner=[XnnpackPartitioner(enable_bf16=opt_in)])
            buffer = edge.to_executorch().buffer
        nodes = list_nodes(edge.exported_program().graph_module)
        self.delegated = [node.op for node in nodes if node.delegate is not None]
        self.pte, self.inputs, self._answer = home / "a.pte", [], home / "out"
        self.pte.write_bytes(buffer)
        for number, tensor in enumerate(inputs):
            self.inputs.append(home / f"{number}.bin")
            self.inputs[-1].write_bytes(tensor.view(torch.int16).numpy().tobytes())

    def run(self, runner: Path) -> int:
        given = ",".join(map(str, self.inputs))
        command = [str(runner), "--model_path", str(self.pte), "--inputs", given, "--output_file", str(self._answer)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    def sqnr_db(self) -> float:
        """Of the outputs of the last run, held against eager PyTorch's; infinite where they are equal."""
        values = np.fromfile(f"{self._answer}-0.bin", "<i2").reshape(self.expected.shape)
        ours = torch.from_numpy(values).view(torch.bfloat16).float().numpy()
        found = agreement_of("program", [ours], "eager", [self.expected.float().numpy()], "bf16")
        assert found is not None and not found.remarks
        return found.sqnr_db if found.sqnr_db is not None else np.inf


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("several rows", "attention") else pytest.mark.again) for n in RUNS]
)
def test_linear_layers_and_elementwise_operators_run_in_the_delegate_and_agree(
    name: str, runner: Path, tmp_path: Path
) -> None:
    program = Program(RUNS[name], tmp_path)
    assert program.delegated
    assert program.run(runner) == Exit.OK
    assert program.sqnr_db() > ROUNDED_DB


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("convolution", "softmax") else pytest.mark.again) for n in DOES_NOT_LOAD]
)
def test_what_else_is_delegated_does_not_load(name: str, runner: Path, tmp_path: Path) -> None:
    program = Program(DOES_NOT_LOAD[name], tmp_path)
    assert program.delegated
    assert program.run(runner) == Exit.LOAD_FAILED


@pytest.mark.wide
def test_without_the_opt_in_nothing_is_delegated_and_convolutions_lose_accuracy(runner: Path, tmp_path: Path) -> None:
    """Leaving them out of the delegate is no way: portable kernels add up in bf16, eager PyTorch in fp32."""
    wide = lambda: Network(lambda m, x: m["a"](x), a=nn.Conv2d(128, 16, 3))  # noqa: E731
    program = Program((wide, [(1, 128, 8, 8)]), tmp_path, opt_in=False)
    assert not program.delegated
    assert program.run(runner) == Exit.OK
    assert program.sqnr_db() < ROUNDED_DB


@pytest.mark.wide
def test_its_products_run_in_fp32_and_never_on_sme2(tmp_path: Path) -> None:
    needs_emulator()
    program = Program(RUNS["attention"], tmp_path)
    experiment = {"name": "sme2", "mode": "trace", "num_runs": 1, "warmup": 1}
    raw = {"model": str(program.pte), "output_root": str(tmp_path / "out"), "experiments": [experiment]}
    done = Pipeline(parse_config(raw, "a test"), EmulatorPlatform(), lambda label, finished, total: None).run()
    found = Run.open(done.directory.path).summary.experiments["sme2"].coverage
    assert found is not None
    layers = [operator for operator in found.operators if operator.weights]
    # Though XNNPACK runs the attention's products before the linear layer that comes first in the graph.
    known = [(each.weights, each.multiply_accumulates, each.level) for each in layers]
    assert known == [("bf16", 9 * 64 * 64, "XNNPACK's own")] * 4
    assert {each.why_not for each in layers} == {
        "XNNPACK multiplies bf16 in fp32, with kernels of its own, in this ExecuTorch; fp16 has SME2 kernels"
    }
    products = [operator for operator in found.operators if not operator.weights]
    assert [operator.level for operator in products] == ["SME2", "SME2"]


def test_who_asks_for_it_is_told_why_not(tmp_path: Path) -> None:
    why = dtypes.why_refused("bf16")
    assert "bf16 is not offered: XNNPACK loads no program with convolutions" in why
    assert not dtypes.why_refused("fp16") and not dtypes.why_refused("fp5")
    done = kit("export", "--model", "toy_cnn", "--dtype", "bf16", "--outdir", tmp_path)
    assert done.returncode == 2 and why.strip() in " ".join(done.stderr.split())
    with pytest.raises(InputError) as raised:
        export("toy_cnn", dtype="bf16", out=tmp_path)
    assert why in raised.value.hint
    with pytest.raises(InputError) as raised:
        parse_sweep({"models": ["toy_cnn"], "dtypes": ["bf16"]}, "a test")
    assert why in raised.value.hint
