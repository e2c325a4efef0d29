"""Models are found by name, listed without torch, and never silently replaced by another."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch

import model_profiling.models as registry
from model_profiling.base.errors import InputError, KitError, RunError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.cli import models as models_command
from model_profiling.models import register_model, registered_models
from model_profiling.models.loading import find_model, load_model
from model_profiling.models.model_base import EagerModelBase
from model_profiling.models.state import let_signals_through
from model_profiling.models.zoo import missing_packages, zoo_models

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register what it likes, and forget it afterwards."""
    registered_models()
    for name in ("_registered", "_folders_that_failed", "_folders_seen"):
        monkeypatch.setattr(registry, name, getattr(registry, name).copy())


def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, init: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(init)
    (folder / "model.py").write_text(
        "import torch\n"
        "from model_profiling.models.model_base import EagerModelBase\n"
        "class Doubling(EagerModelBase):\n"
        "    def get_eager_model(self): return torch.nn.Linear(2, 2)\n"
        "    def get_example_inputs(self): return (torch.ones(1, 2),)\n"
    )
    monkeypatch.setattr(registry, "__path__", [*registry.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, f"model_profiling.models.{name}", raising=False)


def test_listing_the_models_and_the_options_of_export_imports_no_torch() -> None:
    code = (
        "import argparse, sys; from model_profiling.cli import export, models;"
        "models.run(argparse.Namespace(json=True, zoo=None));"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert listed.returncode == 0, listed.stderr
    assert "toy_cnn" in [row["name"] for row in json.loads(listed.stdout)]


def test_the_list_names_both_sources_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_profiling.models.zoo._installed", lambda top: top != "torchvision")
    assert models_command.run(argparse.Namespace(json=False, zoo=None)) == 0
    text = capsys.readouterr().out
    assert "toy_cnn" in text and "ExecuTorch's own examples" in text
    assert next(line for line in text.splitlines() if line.split()[0] == "mv3").endswith("needs torchvision")


def test_the_zoo_is_reached_by_executorchs_own_names() -> None:
    assert zoo_models()["add_mul"] == "executorch.examples.models.toy_model:AddMulModule"
    loaded = load_model("resnet8")
    assert loaded.source == "executorch"
    assert loaded.call[0][0].shape == (1, 3, 32, 32)


def test_a_package_required_inside_a_try_that_raises_counts_as_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_profiling.models.zoo._installed", lambda top: top != "timm")
    assert missing_packages("deit_tiny") == ["timm"]


def test_an_unknown_name_gets_the_closest_ones() -> None:
    with pytest.raises(InputError, match="no model called 'toy_cn'") as caught:
        find_model("toy_cn")
    assert "toy_cnn" in caught.value.hint
    with pytest.raises(InputError) as caught:
        find_model("qqqqqq")
    assert "sme2-kit models" in caught.value.hint


def test_a_missing_package_is_named_and_no_other_model_stands_in(
    clean_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking.py").write_text("import a_package_nobody_has.models\n")
    monkeypatch.syspath_prepend(tmp_path)
    register_model("lacking", "lacking:Model")
    with pytest.raises(SetupError, match=r"the model lacking needs the package a_package_nobody_has") as caught:
        load_model("lacking")
    assert caught.value.hint.startswith("pip install a_package_nobody_has 'torch==")
    register_model("known_lack", "lacking:Model", requires=("a_package_nobody_has",), extra="vision")
    with pytest.raises(SetupError) as caught:
        load_model("known_lack")
    assert caught.value.hint == install_command("vision")


class Offline(EagerModelBase):
    def get_eager_model(self) -> Any:
        raise ConnectionResetError("weights.example is not reachable")

    def get_example_inputs(self) -> Any:
        return ()


class Faulty(Offline):
    def get_eager_model(self) -> Any:
        raise ValueError("first line\nsecond line")


class Lying(Offline):
    def get_eager_model(self) -> Any:
        return "not a module"


@pytest.mark.parametrize(
    ("cls", "error", "words"),
    [
        (
            Offline,
            SetupError,
            "weights of m could not be downloaded: ConnectionResetError: weights.example is not reachable",
        ),
        (Faulty, RunError, r"m could not be built \(at test_models\.py:\d+\): ValueError: first line$"),
        (Lying, InputError, "m does not keep the contract"),
    ],
)
def test_what_a_models_own_code_raises_becomes_one_line(
    clean_registry: None, cls: type, error: type[KitError], words: str
) -> None:
    register_model("m", cls)
    with pytest.raises(error, match=words):
        load_model("m")


def test_a_folder_registers_itself_by_class(
    clean_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = "from model_profiling.models import register_model\nfrom .model import Doubling\n"
    model_folder(tmp_path, monkeypatch, "doubling", init + 'register_model("doubling", Doubling)\n')
    assert load_model("doubling").source == "kit"


def test_the_documented_two_lines_register_a_model(
    clean_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_folder(tmp_path, monkeypatch, "your_model", "from .model import Doubling as YourModelClass\n")
    lines = 'from . import your_model\nregister_model("your_model", your_model.YourModelClass)\n'
    exec(lines, registry.__dict__)  # as if they stood at the end of models/__init__.py
    assert load_model("your_model").call[0][0].shape == (1, 2)


def test_a_broken_folder_hides_no_other_model_and_says_why_when_asked(
    clean_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model_folder(tmp_path, monkeypatch, "broken", "import a_package_nobody_has\n")
    assert "toy_cnn" in registered_models()
    with pytest.raises(SetupError, match="broken needs the package a_package_nobody_has"):
        load_model("broken")
    models_command.run(argparse.Namespace(json=True, zoo=None))
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["broken"]["description"].startswith("broken: No module named")


def test_a_name_is_taken_once_and_fits_a_file_name(clean_registry: None) -> None:
    register_model("mine", Offline)
    register_model("mine", Offline)
    with pytest.raises(InputError, match="two models want the name mine"):
        register_model("mine", Faulty)
    with pytest.raises(InputError, match="cannot be a model's name"):
        register_model("../mine", Offline)


def test_weights_and_inputs_follow_the_seed() -> None:
    first, same, other = load_model("toy_cnn", 1), load_model("toy_cnn", 1), load_model("toy_cnn", 2)
    assert first.call[0][0].equal(same.call[0][0]) and not first.call[0][0].equal(other.call[0][0])
    assert first.module.stem.weight.equal(same.module.stem.weight)
    assert not first.module.stem.weight.equal(other.module.stem.weight)


class Faint(torch.nn.Module):  # type: ignore[misc]
    """Blocks as training begins with them: behind a factor of 0 or 1e-6, a norm that gives 0, and norms of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled, self.normed = torch.nn.Conv2d(4, 4, 1), torch.nn.Conv2d(4, 4, 1)
        self.pooled, self.table = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.zeros(4, 4))
        self.factor = torch.nn.Parameter(torch.full((4, 1, 1), 1e-6))
        self.norm, self.of_one = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm1d(4)
        torch.nn.init.zeros_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.factor * self.scaled(x).relu()
        x = x + self.norm(self.normed(x)).relu()
        return self.of_one(self.pooled(x.mean((2, 3))) @ self.table)


def test_every_layer_with_random_weights_shows_in_the_outputs() -> None:
    torch.manual_seed(0)
    net, image = Faint().eval(), 1e-3 * torch.randn(1, 4, 8, 8)
    let_signals_through(net, ((image,), {}))
    with torch.no_grad():
        before = net(image)
        assert not net.training and net.norm.running_var.max() < 1 and net.of_one.running_var.min() == 1
        for layer in (net.scaled, net.normed, net.pooled):
            held = layer.weight.clone()
            layer.weight.mul_(2)
            assert (net(image) - before).norm() > 0.01 * before.norm()
            layer.weight.copy_(held)


def test_weights_with_which_nothing_finite_comes_out_stay_as_they_are() -> None:
    net = torch.nn.Sequential(torch.nn.PReLU(4, init=0.0))
    let_signals_through(net, ((torch.full((1, 4), -torch.inf),), {}))
    assert not net[0].weight.any()
