"""Models of other zoos by name: their own inputs, random weights, names of outputs, and up to a module of them."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

import torch

from model_profiling.base.errors import InputError, SetupError
from model_profiling.cli.main import main
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.in_memory import export_module
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.models import public_zoos
from model_profiling.models.loading import load_model
from model_profiling.models.lookup import model_name
from model_profiling.models.options import LoadOptions, input_spec
from tests.conftest import needs

SMALL = (("hidden_size", 32), ("intermediate_size", 64), ("num_attention_heads", 2), ("vocab_size", 99))


def exported(name: str, home: Path, *settings: tuple[str, Any]) -> Any:
    zoo = name.split(":")[0]
    needs(importlib.util.find_spec(public_zoos.ZOOS[zoo]) is not None, public_zoos.ZOOS[zoo])
    request = ExportRequest(model_name(name), home, "fp32", target=name, options=LoadOptions((), settings))
    return export(request).record


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "settings", "shapes"),
    [
        ("timm:test_convnext", (), [[1, 3, 160, 160]]),
        ("torchvision:shufflenet_v2_x0_5", (), [[1, 3, 224, 224]]),
        ("hf:BertModel", SMALL, [[1, 32]]),
        ("timm:test_efficientnet", (), [[1, 3, 160, 160]]),
        ("timm:test_resnet", (), [[1, 3, 160, 160]]),
        ("torchvision:squeezenet1_1", (), [[1, 3, 224, 224]]),
        ("torchvision:ssdlite320_mobilenet_v3_large", (("until", "head"),), [[3, 320, 320]]),
        # Its decoder has a configuration of its own.
        ("hf:T5Model", (("d_model", 32), ("d_ff", 64), ("num_heads", 2), ("vocab_size", 99)), [[1, 32], [1, 8]]),
        ("hf:ViTModel", (*SMALL[:3], ("image_size", 32)), [[1, 3, 32, 32]]),
    ],
)
def test_a_model_of_a_zoo_is_exported_with_its_own_inputs_and_agrees(
    name: str, settings: tuple[tuple[str, Any], ...], shapes: list[list[int]], tmp_path: Path
) -> None:
    record = exported(name, tmp_path, *settings)
    assert [entry.shape for entry in record.inputs] == shapes and record.weights == "random (seed 0)"
    assert record.verification.verdict == "agrees", record.verification
    assert record.request.origin == "registry" and name in record.request.command
    if name.startswith("hf:") or settings[:1] == (("until", "head"),):
        assert all(entry.name for entry in record.outputs)


@pytest.mark.wide
def test_a_backbone_is_left_open_or_has_the_size_of_the_images() -> None:
    needs(importlib.util.find_spec("transformers") is not None, "transformers")
    depth = (*SMALL[:3], ("image_size", 32), ("neck_hidden_sizes", [8] * 4), ("fusion_hidden_size", 8))
    for name, settings, side in (("DPTForDepthEstimation", depth, 32), ("VitPoseForPoseEstimation", (), 256)):
        found = load_model(f"hf:{name}", options=LoadOptions((), settings)).call[1]
        assert found["pixel_values"].shape[2] == side


@pytest.mark.wide
def test_inputs_that_are_asked_for_are_taken_and_not_passed_by() -> None:
    needs(importlib.util.find_spec("timm") is not None, "timm")
    smaller = LoadOptions((input_spec("1,3,32,32"),))
    assert [tuple(given.shape) for given in load_model("timm:test_convnext", options=smaller).call[0]] == [
        (1, 3, 32, 32)
    ]


def test_a_folder_with_a_configuration_is_a_model_and_a_name_without_one_says_what_to_give(tmp_path: Path) -> None:
    needs(importlib.util.find_spec("transformers") is not None, "transformers")
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "num_hidden_layers": 1, **dict(SMALL)}))
    loaded = load_model(f"hf:{folder}")
    assert loaded.call[1]["input_ids"].max() < 99 and model_name(f"hf:{folder}") == "own"
    with pytest.raises(InputError, match="no configuration of 'never/heard-of'") as caught:
        load_model("hf:never/heard-of")
    assert "hf:BertModel" in caught.value.hint
    with pytest.raises(InputError, match="no model 'resnet19'") as caught:
        load_model("torchvision:resnet19")
    assert "resnet" in caught.value.hint


@pytest.mark.wide
@pytest.mark.parametrize(("zoo", "pattern"), [("timm", "mobilenetv4*small"), ("torchvision", "ssd*"), ("hf", "bertm*")])
def test_a_zoo_is_listed(zoo: str, pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    needs(importlib.util.find_spec(public_zoos.ZOOS[zoo]) is not None, public_zoos.ZOOS[zoo])
    assert main(["models", "--zoo", zoo, pattern]) == 0
    listed = capsys.readouterr().out.split()
    assert listed and all(name.startswith(f"{zoo}:") for name in listed)


def test_a_missing_package_is_one_line_that_keeps_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0+cpu")
    for zoo, line in {
        "timm": "pip install timm 'torch==2.13.0' 'torchvision==0.28.*'",
        "torchvision": "pip install 'torch==2.13.0' 'torchvision==0.28.*'",
        "hf": "pip install transformers 'torch==2.13.0'",
    }.items():
        with pytest.raises(SetupError) as caught:
            public_zoos.require(zoo)
        assert caught.value.hint == line


@pytest.mark.parametrize("name", ["hf:../outside", "hf:/etc", "hf:a/../../outside"])
def test_an_assistant_names_no_folder_outside_its_workspace(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="outside the workspace"):
        Workspace(tmp_path).model(name)
    assert Workspace(tmp_path).model("hf:BertModel") == "hf:BertModel"


class Detector(torch.nn.Module):  # type: ignore[misc]
    """Boxes of a head, of which only some are given: how many depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        boxes = self.head(self.body(image)).flatten(2)
        return boxes[:, :, boxes[0, 0] > 0]


def test_a_model_ends_with_what_a_module_of_it_gives(tmp_path: Path) -> None:
    import inspect

    source = f"import torch\n{inspect.getsource(Detector)}\n    example_inputs = (torch.randn(1, 3, 8, 8),)\n"
    (tmp_path / "net.py").write_text(source)
    target, found = str(tmp_path / "net.py"), {}
    for part in ("head", "body"):
        options = LoadOptions((), (("until", part),))
        record = export(ExportRequest("net", tmp_path / part, "fp32", target=target, options=options)).record
        found[part] = record.outputs[0].shape
        assert record.verification is not None and record.verification.verdict == "agrees"
        assert f"--set until={part}" in record.request.command
    assert found == {"head": [1, 4, 6, 6], "body": [1, 8, 6, 6]}
    with pytest.raises(InputError, match="no module 'haed'") as caught:
        load_model(target, options=LoadOptions((), (("until", "haed"),)))
    assert "head" in caught.value.hint


class Several(torch.nn.Module):  # type: ignore[misc]
    """A dict in a tuple, as detectors give it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        found = self.body(x)
        return found, {"boxes": self.head(found), "far": 2 * found}


@pytest.mark.parametrize(
    ("flags", "shapes"),
    [
        (["--outputs", "0"], [[1, 4]]),
        (["--outputs", "[1].far,[1].boxes"], [[1, 4], [1, 2]]),
        (["--until", "head", "--outputs", "0"], [[1, 2]]),
    ],
)
def test_a_model_gives_the_outputs_that_are_chosen(
    flags: list[str], shapes: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import inspect

    source = f"import torch\n{inspect.getsource(Several)}\n    example_inputs = (torch.randn(1, 4),)\n"
    (tmp_path / "net.py").write_text(source)
    # The model keeps the names of its weights.
    torch.save(Several().state_dict(), tmp_path / "weights.pt")
    words = ["export", str(tmp_path / "net.py"), "--checkpoint", str(tmp_path / "weights.pt"), "--dtype", "fp32"]
    assert main([*words, *flags, "--json", "--out", str(tmp_path / "out")]) == 0
    record = json.loads(capsys.readouterr().out)["record"]
    assert [entry["shape"] for entry in record["outputs"]] == shapes
    assert record["verification"]["verdict"] == "agrees"
    assert main([*words, "--outputs", "bixes", "--out", str(tmp_path / "out")]) == 2
    assert "no output 'bixes'" in (said := capsys.readouterr().err) and "[1].boxes" in said


def test_outputs_of_classes_have_their_names(tmp_path: Path) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Answer:
        logits: torch.Tensor
        boxes: list[Any]

    class Net(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            return Answer(y, [y + 1, {"far": y * 2}])

    record = export_module(Net(4, 4), torch.randn(2, 4), tmp_path, dtype="fp32").record
    assert [entry.name for entry in record.outputs] == ["logits", "boxes[0]", "boxes[1].far"]
    assert record.verification is not None and record.verification.verdict == "agrees"
