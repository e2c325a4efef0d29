"""Every model has a card and says what it is; weights and settings come from the user, whole or not at all."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import argparse
import functools
import importlib
import importlib.util
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode

from model_profiling.base.dtypes import NAMES as DTYPES
from model_profiling.base.errors import InputError
from model_profiling.cli import models as models_command
from model_profiling.export.exporter import ExportRequest, export
from model_profiling.export.prepare.quantization import quantized_weights
from model_profiling.models import registered_models
from model_profiling.models.loading import LoadOptions, load_model
from model_profiling.models.torch_companions import watch_imports
from tests.conftest import ROOT, needs
from tests.helpers.in_process import verify

FOLDERS = sorted(path.parent for path in (ROOT / "model_profiling" / "models").glob("*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_every_model_has_a_card_with_source_licence_inputs_and_what_it_shows(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    for word in ("| source |", "| licence |", "| inputs |", "| weights |", "What it shows:"):
        assert word in card


def test_the_list_says_size_extra_and_dtypes(capsys: pytest.CaptureFixture[str]) -> None:
    models_command.run(argparse.Namespace(json=True, zoo=None))
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mobilenet_v3_small"]["extra"] == "vision"
    for name in registered_models():
        assert rows[name]["parameters"] and set(rows[name]["dtypes"]) <= set(DTYPES), name
    models_command.run(argparse.Namespace(json=False, zoo=None))
    assert "69 k parameters; fp32, fp16, int8, int8-dynamic, int4" in capsys.readouterr().out


def unsettled(name: str, **settings: int) -> tuple[Any, tuple[Any, ...]]:
    """A model and its inputs without the pass that settles its norms: nothing is computed."""
    watch_imports()
    module, _, attribute = str(registered_models()[name].target).partition(":")
    model = getattr(importlib.import_module(module), attribute)(**settings)
    return model.get_eager_model().eval(), model.get_example_inputs()


@pytest.mark.parametrize(
    "name",
    ["toy_cnn", "resnet8", "llm_block_decode", "squeeze_sam", pytest.param("mobile_sam", marks=pytest.mark.wide)],
)
def test_the_size_is_what_the_list_says(name: str) -> None:
    needs(not registered_models()[name].requires or importlib.util.find_spec("timm") is not None, "timm")
    module, _ = unsettled(name)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert registered_models()[name].parameters == (f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} k")


def test_prefill_and_decode_are_the_same_model_in_two_shapes() -> None:
    """The last token of a prefill is what decode gives after the tokens before it."""
    prefill = load_model("llm_block_prefill", options=LoadOptions(settings=(("tokens", 8), ("width", 256))))
    decode = load_model("llm_block_decode", options=LoadOptions(settings=(("tokens", 8), ("width", 256))))
    decode.module.load_state_dict(prefill.module.state_dict())
    (hidden,) = prefill.call[0]
    with torch.no_grad():
        whole, keys, values = prefill.module(hidden)
        last, _, _ = decode.module(hidden[:, -1:], keys[:, :, :-1], values[:, :, :-1])
    torch.testing.assert_close(last, whole[:, -1:], atol=1e-5, rtol=1e-4)


@pytest.mark.wide
@pytest.mark.again
@pytest.mark.parametrize("dtype", ["int8-dynamic", "int4"])
def test_language_model_dtypes_shrink_linear_layers_and_keep_their_answer(dtype: str, tmp_path: Path) -> None:
    options = LoadOptions(settings=(("tokens", 4), ("width", 128)))
    result = export(ExportRequest("llm_block_decode", tmp_path, dtype, options=options))
    agreement = verify(result)
    assert agreement.sqnr_db is not None and agreement.sqnr_db > 20
    weights = sum(p.numel() for p in load_model("llm_block_decode", options=options).module.parameters())
    assert result.paths.pte.stat().st_size < weights * (2 if dtype == "int8-dynamic" else 1)
    cost = result.record.dtype_cost
    assert cost is not None and cost.sqnr_db is not None and abs(agreement.sqnr_db - cost.sqnr_db) < 6


def test_int4_refuses_a_model_it_would_not_change() -> None:
    with pytest.raises(InputError, match="int4 quantizes linear layers"):
        quantized_weights(torch.nn.Linear(7, 7), "int4")


def test_a_setting_reaches_the_model_and_an_unknown_one_is_refused() -> None:
    loaded = load_model("llm_block_prefill", options=LoadOptions(settings=(("tokens", 4),)))
    assert loaded.call[0][0].shape == (1, 4, 768)
    with pytest.raises(InputError, match="has no setting called 'tokns'") as caught:
        load_model("llm_block_prefill", options=LoadOptions(settings=(("tokns", 4),)))
    assert "tokens, width" in caught.value.hint


def work(module: Any, inputs: tuple[Any, ...]) -> tuple[int, Any]:
    """Multiply-accumulates and outputs, of which only the shapes are true."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        outputs = module.to("meta")(*(tensor.to("meta") for tensor in inputs))
    return counter.get_total_flops() // 2, outputs


def test_squeeze_sam_has_the_size_that_its_authors_published() -> None:
    """26 G multiply-accumulates, and 8 M parameters in the U-Net."""
    module, inputs = unsettled("squeeze_sam")
    unet = sum(p.numel() for part in (module.patches, module.down, module.up) for p in part.parameters())
    assert 7.5e6 < unet < 8.5e6
    count, (masks, quality) = work(module, inputs)
    assert 25.5e9 < count < 26.5e9
    assert inputs[0].shape == (1, 5, 512, 512) and masks.shape == (1, 3, 256, 256) and quality.shape == (1, 3)


@pytest.mark.parametrize(("resolution", "levels"), [(16, 4), (94, 5), (700, 8)])
def test_squeeze_sam_takes_every_even_size_that_its_levels_can_halve(resolution: int, levels: int) -> None:
    _, (masks, _) = work(*unsettled("squeeze_sam", resolution=resolution, levels=levels))
    assert masks.shape == (1, 3, resolution // 2, resolution // 2)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("squeeze_sam", (("resolution", 65),)),
        ("squeeze_sam", (("resolution", 128),)),
        ("squeeze_sam", (("levels", 9),)),
        ("squeeze_sam", (("levels", 1),)),
        ("mobile_sam", (("resolution", 100),)),
    ],
)
def test_a_size_that_a_network_cannot_have_is_refused(name: str, settings: tuple[tuple[str, int], ...]) -> None:
    needs(not registered_models()[name].requires or importlib.util.find_spec("timm") is not None, "timm")
    with pytest.raises(InputError, match=r"^(resolution|levels) \d+ is not"):
        load_model(name, options=LoadOptions(settings=settings))


def test_mobile_sam_keeps_a_sixteenth_of_the_size() -> None:
    needs(importlib.util.find_spec("timm") is not None, "timm")
    _, encoded = work(*unsettled("mobile_sam"))
    assert encoded.shape == (1, 256, 64, 64)


def test_squeeze_sams_random_weights_answer_the_same_when_rounded_to_fp16() -> None:
    """Else no run in fp16 could show whether its kernels are right."""
    options = LoadOptions(settings=(("resolution", 64), ("levels", 5)))
    loaded = load_model("squeeze_sam", options=options)
    with torch.no_grad():
        exact = loaded.module(*loaded.call[0])
        rounded = loaded.module.half().float()(*loaded.call[0])
    for one, other in zip(exact, rounded, strict=True):
        assert float((one - other).square().sum() / one.square().sum()) < 1e-3


@pytest.mark.parametrize("name", ["resnet8", "mobilenet_v1_025"])
def test_random_weights_answer_differently_to_different_inputs(name: str) -> None:
    loaded = load_model(name)
    with torch.no_grad():
        first, second = (loaded.module(x) for x in (loaded.call[0][0], -loaded.call[0][0]))
    assert float((first - second).abs().max()) > 1e-3


@functools.cache
def toy_state() -> dict[str, Any]:
    return dict(load_model("toy_cnn").module.state_dict())


def state() -> dict[str, Any]:
    return {name: torch.full_like(tensor, 0.5) for name, tensor in toy_state().items()}


def with_checkpoint(path: Path) -> Any:
    return load_model("toy_cnn", options=LoadOptions(checkpoint=path))


def test_a_checkpoint_replaces_the_weights_however_it_is_wrapped(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    for saved in (state(), {"state_dict": state(), "epoch": 3}, {f"module.{k}": v for k, v in state().items()}):
        torch.save(saved, path)
        loaded = with_checkpoint(path)
        assert bool((loaded.module.stem.weight == 0.5).all())
        assert loaded.weights.startswith("checkpoint weights.pt (sha256 ")


def test_a_checkpoint_in_safetensors_is_taken_and_a_broken_one_refused(tmp_path: Path) -> None:
    needs(importlib.util.find_spec("safetensors") is not None, "safetensors")
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file(state(), str(path))
    loaded = with_checkpoint(path)
    assert bool((loaded.module.stem.weight == 0.5).all()) and "weights.safetensors" in loaded.weights
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot be loaded as plain weights"):
        with_checkpoint(path)


def test_a_checkpoint_that_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    wrong = state()
    wrong["strange"] = wrong.pop("stem.weight")
    torch.save(wrong, path)
    with pytest.raises(InputError, match=r"lacks 1 \(stem.weight\) and has 1 that the model does not know \(strange\)"):
        with_checkpoint(path)
    torch.save({**state(), "stem.weight": torch.ones(2)}, path)
    with pytest.raises(InputError, match=r"stem.weight is float32\[2\], the model's is float32\[32, 3, 3, 3\]"):
        with_checkpoint(path)
    with pytest.raises(InputError, match="does not exist"):
        with_checkpoint(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda weight: {3: weight}, "the key 3 is not text"),
        (lambda weight: {(1, "a"): weight}, r"the key \(1, 'a'\) is not text"),
        (lambda weight: weight.to_sparse(), "a tensor that is sparse_coo"),
        (lambda weight: torch.eye(9).to_sparse_csr(), "a tensor that is sparse_csr"),
        (lambda weight: torch.nested.nested_tensor([weight]), "a tensor that is nested"),
        (lambda weight: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8), "a tensor that is quantized"),
        (lambda weight: weight.expand(9, *weight.shape), r"float32\[9, 32, 3, 3, 3\], the mod"),
        (lambda weight: weight.to(torch.complex64), r"complex64\[32, 3, 3, 3\], the model's is float32"),
        (lambda weight: {"state_dict": 3}, "contains no state dict"),
    ],
    ids=["number", "tuple", "sparse", "CSR", "nested", "quantized", "expanded", "complex", "wrapped"],
)
def test_a_checkpoint_of_other_keys_or_tensors_is_refused_by_its_name(
    change: Callable[[Any], Any], why: str, tmp_path: Path
) -> None:
    path, changed = tmp_path / "weights.pt", change(state()["stem.weight"])
    entries, why = (changed, why) if isinstance(changed, dict) else ({"stem.weight": changed}, f"stem.weight is {why}")
    torch.save({**state(), **entries}, path)
    with pytest.raises(InputError, match=rf"checkpoint {re.escape(str(path))}.*{why}"):
        with_checkpoint(path)


def test_a_checkpoint_that_would_fill_memory_is_refused_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"weights/data/{number}", b"\0" * (16 << 20))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it is unpacked"))
    with pytest.raises(InputError, match=r"weights.pt cannot be .*it would unpack to 134217728 bytes"):
        with_checkpoint(path)


def test_a_checkpoint_that_must_run_code_or_is_garbage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(load_model("toy_cnn").module, path)
    with pytest.raises(InputError, match="cannot be loaded as plain weights") as caught:
        with_checkpoint(path)
    assert "state_dict" in caught.value.hint
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="cannot be loaded as plain weights"):
        with_checkpoint(path)
