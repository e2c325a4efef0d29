"""Programs that compute something else than their model: named, mended, shown to others, and nothing told of them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch
from torch import nn

import sme2_kit
from model_profiling.base.errors import InputError, RunError
from model_profiling.cli.answer import after_run
from model_profiling.export.cache import cached
from model_profiling.export.check.second_sample import second_sample
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.export.lower.lowering import capture, lower
from model_profiling.export.prepare.preparation import prepare
from model_profiling.models.loading import LoadedModel, load_model
from model_profiling.report.content import first_screen
from model_profiling.store.artifacts import ExportPaths
from tests.conftest import QUICK, kit

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, image):
        rows = self.first(image).permute(0, 2, 3, 1)
        return self.last(torch.softmax(rows, -1).permute(0, 3, 1, 2))

    example_inputs = (torch.randn(1, 3, 12, 12),)
"""
OPERATOR = "aten._softmax.default"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "net.py").write_text(NET)
    return folder


def asked(home: Path, name: str, **options: Any) -> ExportRequest:
    return ExportRequest("net", home / name, target=str(home / "net.py"), **{"dtype": "fp32", **options})


@pytest.mark.wide
@pytest.mark.parametrize("dtype", ["fp32", pytest.param("fp16", marks=pytest.mark.again)])
def test_an_export_names_the_operator_what_helps_and_writes_a_script_that_shows_it(home: Path, dtype: str) -> None:
    request = asked(home, f"refused_{dtype}", dtype=dtype)
    with pytest.raises(RunError) as caught:
        export(request)
    assert f"something else than the eager model in {dtype}" in caught.value.message
    assert f"1 x {OPERATOR} (at " in caught.value.message and "net.py:11)" in caught.value.message
    assert caught.value.hint.endswith(f"--dtype {dtype} --leave-out {OPERATOR}")
    assert not request.paths.pte.exists()
    script = request.paths.reproduction
    assert script.name in caught.value.hint and len(script.read_text().splitlines()) <= 40
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=home, check=False)
    assert shown.returncode == 1, shown.stderr
    said = shown.stdout.splitlines()[-1]
    assert said.startswith("largest error") and said in script.read_text()


@pytest.mark.wide
def test_who_goes_on_has_a_program_that_is_right_and_reads_what_is_different_first(home: Path) -> None:
    request = asked(home, "mended", mend=True)
    made = export(request)
    assert made.record.verification is not None and made.record.verification.verdict == "agrees"
    assert "net.py:11" in made.record.remedy and made.record.remedy.endswith(f"with --leave-out {OPERATOR} instead")
    (left,) = made.record.delegation.not_delegated
    assert left.op == OPERATOR and "--leave-out" in left.reason
    assert "torch.ops.aten.softmax" in request.paths.reproduction.read_text()
    # Again, nobody looks for the reason a second time; who does not go on is told the reason.
    again = cached(request)
    assert again is not None and again.record == made.record and cached(asked(home, "mended")) is None
    run = sme2_kit.run(made, runs=2, launches=1, startup_launches=0, out=home / "mended_run")
    assert first_screen.alerts(run)[0].startswith("WRONG as asked for: the program computes something else")


def test_nothing_is_forecast_or_advised_of_a_wrong_program(home: Path) -> None:
    made = export(asked(home, "allowed", allow_wrong=True))
    assert made.record.wrong and cached(asked(home, "allowed")) is None
    run = sme2_kit.run(made, runs=2, launches=1, startup_launches=0, out=home / "allowed_run")
    alerts = first_screen.alerts(run)
    assert alerts[0].startswith("WRONG: ") and "more than the dtype explains" in alerts[0]
    assert not any(each.advice for each in run.summary.experiments.values())
    assert run.sme2 == [] and run.forecasts == [] and first_screen.findings(run) == []
    assert "wrong" in first_screen.nothing_to_do(run) and after_run(run)[0] == "numerics"
    with pytest.raises(InputError, match="nothing is predicted"):
        sme2_kit.forecast(run)


@pytest.mark.wide
def test_a_profile_goes_on_and_numerics_writes_the_script_where_it_is_asked_to(home: Path) -> None:
    done = kit("profile", "net.py", "--dtype", "fp32", "--no-html", "--runs", 2, "--launches", 1, cwd=home, env=QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.lstrip().startswith("WRONG as asked for: ")
    done = kit("numerics", "net.py", "--dtype", "fp32", "--reproduce", "shown.py", cwd=home)
    assert done.returncode == 0 and "shown.py" in done.stdout and (home / "shown.py").is_file()
    done = kit("numerics", "toy_cnn", "--dtype", "fp32", "--reproduce", "none.py", cwd=home)
    assert done.returncode == 2 and "nothing to show" in done.stderr and not (home / "none.py").exists()


@pytest.mark.wide
def test_a_kernel_that_is_known_to_be_wrong_in_halves_is_named_at_once_and_written_as_its_parts(tmp_path: Path) -> None:
    source = (
        "import torch\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n        super().__init__("
        "torch.nn.Linear(16, 256), torch.nn.LayerNorm(256), torch.nn.Linear(256, 8))\n"
        "    example_inputs = (torch.randn(4, 16),)\n"
    )
    (tmp_path / "net.py").write_text(source)
    request = ExportRequest("net", tmp_path / "out", "fp16", target=f"{tmp_path / 'net.py'}:Net")
    said: list[str] = []
    with pytest.raises(RunError, match="native_layer_norm") as caught:
        export(request, said.append)
    assert caught.value.hint.endswith("--dtype fp16 --rewrite norm")
    assert [stage for stage in said if "try" in stage] == ["look for the reason, try 1"]
    assert "layer_norm" in request.paths.reproduction.read_text()


class Ends(nn.Module):  # type: ignore[misc]
    """A convolution and what `end` makes of it."""

    def __init__(self, end: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.end = nn.Conv2d(3, 8, 3), end

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.end(self.first(image).relu())


@pytest.mark.parametrize(
    ("end", "tested"),
    [(lambda x: x * 0 + 1, False), (lambda x: (x - x).sum((1, 2, 3)), False), (lambda x: x.mean(1) + 100, True)],
    ids=["constant", "cancelled", "small changes"],
)
def test_what_does_not_depend_on_the_input_tests_nothing(
    end: Callable[[torch.Tensor], torch.Tensor], tested: bool, tmp_path: Path
) -> None:
    made = export_module(Ends(end), torch.randn(1, 3, 8, 8), tmp_path, dtype="fp32").record.verification
    assert made is not None and made.status == "verified"
    assert (made.verdict == "agrees") == tested
    assert tested or str(made).endswith("not tested: the outputs do not depend on the input")


def test_a_program_that_is_right_for_the_example_alone_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_profiling.export.prepare import samples

    real = samples.shuffled

    def other(value: Any) -> Any:
        """Other inputs, of which the program is then given the first ones."""
        changed = real(value)
        monkeypatch.setattr(samples, "npy_bytes", lambda tensor: written(tensor, changed))
        return changed

    bytes_of, first = samples.npy_bytes, torch.randn(1, 3, 8, 8)

    def written(tensor: torch.Tensor, changed: Any) -> bytes:
        same = tensor is changed[0][0]
        return bytes_of(first if same else tensor)

    monkeypatch.setattr(samples, "shuffled", other)
    with pytest.raises(RunError, match="something else than the eager model"):
        export_module(Ends(lambda x: x), first, tmp_path, dtype="fp32")


WEIGHTS = {
    "net = torch.nn.Linear(4, 4)": "random, as the model's own code draws them (seed 0)",
    "net = torch.nn.ReLU()": "as the model's own code loads them",
    "net = torch.nn.Linear(4, 4); net.load_state_dict(net.state_dict())": "as the model's own code loads them",
}


@pytest.mark.parametrize("code", WEIGHTS)
def test_random_weights_are_called_random_and_loaded_ones_are_not(code: str, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(f"import torch\ndef make():\n    {code}\n    return net\n")
    from model_profiling.models.options import LoadOptions, input_spec

    loaded = load_model(f"{tmp_path / 'made.py'}:make", options=LoadOptions((input_spec("1,4"),)))
    assert loaded.weights == WEIGHTS[code]


LEFT_OUT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "aten.linear.default": (nn.Linear(16, 10), (2, 16)),
    "aten.matmul.default": (lambda x: x @ x.transpose(1, 2), (2, 3, 16)),
    "aten.hardswish.default": (nn.Hardswish(), (2, 16)),
    "aten.silu.default": (nn.SiLU(), (2, 16)),
    "aten.prelu.default": (nn.PReLU(4), (1, 4, 8, 8)),
    "aten.adaptive_avg_pool2d.default": (nn.AdaptiveAvgPool2d(1), (1, 4, 8, 8)),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_an_operator_that_is_left_out_is_decomposed_into_is_in_no_delegate(name: str) -> None:
    """A linear layer outside of delegates was one of XNNPACK's again, as `addmm`: the remedy changed nothing."""
    operator, shape = LEFT_OUT[name]

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.after = operator

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.after(x.relu())

    made = lower(capture(Net().eval(), ((torch.randn(shape),), {})), "xnnpack", leave_out=(name,))
    delegated = [node.op for node in made.nodes if node.delegate is not None]
    # The transpose before the product is one of its own.
    assert [op for op in delegated if op != "aten.permute_copy.default"] == ["aten.relu.default"]
    assert any("--leave-out" in reason for reason in made.reasons.values())


def test_each_sample_is_judged_by_what_halves_cost_of_it(tmp_path: Path) -> None:
    """Equal values cancel exactly, and others do not: what one input costs says nothing of another."""

    class Net(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x[:, ::2] - x[:, 1::2]).sum(-1, keepdim=True) * 0.1 + x[:, :1]

    model = LoadedModel("net", "", "random", Net().eval(), ((torch.ones(1, 64),), {}), None, "memory")
    prepared = prepare(model, ExportRequest("net", tmp_path, "fp16"))
    assert prepared.cost is not None and (prepared.cost.sqnr_db is None or prepared.cost.sqnr_db > 90)
    cost = prepared.second[2]
    assert cost is not None and cost.sqnr_db is not None and cost.sqnr_db < 80
    paths = ExportPaths(tmp_path / "net.pte")
    assert second_sample(prepared, paths).cost == cost
