"""The layer that loses the accuracy is named first, in networks of several kinds; healthy networks raise no alarm."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

import sme2_kit
from model_profiling.analysis.accuracy.numerics import Numerics, gain_db, side
from model_profiling.base.files import read_json
from model_profiling.platforms.process_platform import LocalPlatform
from tests.conftest import kit, needs_emulator
from tests.helpers.contract_check import check_printed
from tests.helpers.lossy_networks import network, spoil

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.c = torch.nn.Linear(8, 4)
        with torch.no_grad():
            self.b.weight *= 1e6

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.relu(self.a(x)))))

    def get_example_inputs(self):
        return (torch.ones(2, 8) + torch.arange(8),)
"""


def looked_at(net: Any, x: Any, dtype: str, out: Path, **settings: Any) -> Numerics:
    return sme2_kit.numerics(net, x, dtype=dtype, out=out, **settings)


@pytest.mark.wide
def test_a_layer_whose_values_do_not_fit_into_fp16_is_named_first(tmp_path: Path) -> None:
    net, x = network("convolutions", seed=1)
    name = spoil(net, 1, 1e6)
    found = looked_at(net, x, "fp16", tmp_path)
    assert [alarm.layer.place for alarm in found.alarms][:1] == [name]
    # A CPU without fp16 arithmetic computes it in fp32, where a ReLU makes 0 of what is not a number.
    in_fp16 = bool({"fp16arith", "avx512fp16"} & set(LocalPlatform().features().present))
    assert found.alarms[0].kind in (("not finite",) if in_fp16 else ("not finite", "bad"))
    assert found.worst[0].place == name
    own = side(found, found.worst[0])
    assert own.finite_inputs and (own.infinite + own.nan > 0 or not in_fp16)
    before = [layer for layer in found.layers if layer.index < found.worst[0].index]
    assert before and all(side(found, layer).finite for layer in before)
    # The values do not fit for who reads them either, until a layer makes them small again.
    keep = found.worst[0].keep
    assert keep[0] == name and len(keep) > 1
    # What is recommended was tried.
    assert (found.variants[0].outputs.sqnr_db or 0) < 1
    assert found.trials is not None and found.trials[0].helps and set(keep) <= set(found.trials[0].keep)
    assert (found.trials[0].outputs[found.main].sqnr_db or 0) > 20


@pytest.mark.wide
@pytest.mark.again
def test_a_layer_alone_is_the_same_whatever_other_layers_do(tmp_path: Path) -> None:
    net, x = network("perceptron", seed=4)
    spoil(net, 0, 600.0, undone=True)
    found = looked_at(net, x, "int8", tmp_path, trial=False)
    name = found.alarms[0].layer.keep
    kept = looked_at(net, x, "int8", tmp_path / "kept", keep_fp32=name, trial=False)
    assert kept.trials is None and found.not_apart == kept.not_apart == 0
    alone = [
        {layer.place: side(numerics, layer).alone for layer in numerics.worst if layer.index > 3}
        for numerics in (found, kept)
    ]
    assert len(alone[0]) > 2
    for place, gap in alone[0].items():
        other = alone[1].get(place)
        assert gap is not None and other is not None
        assert gap.sqnr_db == pytest.approx(other.sqnr_db, abs=1.5)


@pytest.mark.wide
def test_a_wide_range_in_int8_is_named_first_and_mended_by_what_is_advised(tmp_path: Path) -> None:
    net, x = network("convolutions", seed=3)
    name = spoil(net, 0, 800.0, undone=True)
    found = looked_at(net, x, "int8", tmp_path)
    assert found.alarms and found.alarms[0].layer.place == name
    kept = looked_at(net, x, "int8", tmp_path / "kept", keep_fp32=found.alarms[0].layer.keep, trial=False)
    assert name not in [alarm.layer.place for alarm in kept.alarms]
    before, after = found.variants[0].outputs.sqnr_db, kept.variants[0].outputs.sqnr_db
    assert before is not None and after is not None and after > before + 6
    predicted = gain_db(found, found.alarms[0].layer)
    assert predicted is not None and predicted == pytest.approx(after - before, abs=4)
    assert found.trials and found.trials[0].outputs[found.main].sqnr_db == pytest.approx(after, abs=0.01)


@pytest.mark.wide
def test_a_healthy_network_raises_no_alarm_and_its_layers_add_up(tmp_path: Path) -> None:
    net, x = network("convolutions", seed=5)
    found = looked_at(net, x, "int8", tmp_path)
    assert found.alarms == [] and found.left_out == {}
    assert [layer.index for layer in found.layers] == list(range(len(found.layers)))
    assert found.looked_at_alone == found.to_look_at == len(found.worst)
    last = found.layers[-1]
    assert [layer.producers for layer in found.layers] == [[], *([index] for index in range(len(found.layers) - 1))]
    for variant in found.variants:
        # The last layer is the output, and the first has nothing to inherit.
        assert last.sides[variant.name].error.sqnr_db == pytest.approx(variant.tapped.sqnr_db, abs=0.1)
        first = found.layers[0].sides[variant.name]
        assert first.error.sqnr_db == pytest.approx(first.added.sqnr_db, abs=0.1)
        # Taps do not change what is computed by much.
        assert variant.outputs.sqnr_db == pytest.approx(variant.tapped.sqnr_db, abs=6)
    alone = [side(found, layer).alone for layer in found.worst]
    noises = [10 ** (-each.sqnr_db / 10) for each in alone if each is not None and each.sqnr_db is not None]
    assert -10 * np.log10(sum(noises)) == pytest.approx(found.variants[0].tapped.sqnr_db, abs=6)
    # A folded batch norm does not make its convolution wrong.
    assert all((side(found, layer).added.sqnr_db or 0) > 20 for layer in found.worst)


@pytest.mark.wide
@pytest.mark.again
def test_large_models_are_looked_at_in_several_programs(tmp_path: Path) -> None:
    from model_profiling.export.in_memory import export_module, loader
    from model_profiling.export.numerics.measuring import measure_numerics
    from model_profiling.export.request import ExportRequest

    net, x = network("perceptron", seed=1)
    made = export_module(net, x, tmp_path, dtype="fp16")
    request = ExportRequest(made.record.model, tmp_path, "fp16")
    told: list[str] = []
    found = measure_numerics(
        request,
        made,
        loader(request.model, net, x, None),
        LocalPlatform(),
        lambda *step: told.append(step[0]),
        most_bytes=1000,
    )
    assert sum("lower with taps" in text for text in told) > 1
    assert found.alarms == [] and len(found.layers) == 9
    assert found.layers[-1].sides[found.main].error.sqnr_db == pytest.approx(found.variants[0].outputs.sqnr_db, abs=3)


@pytest.mark.wide
@pytest.mark.again
def test_a_tap_that_cannot_be_lowered_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_profiling.export.numerics import measuring, taps

    lower, refused = taps.tapped_program, "relu"

    def lower_others(ours: Any, nodes: list[str], lowering: dict[str, Any]) -> bytes:
        if refused in nodes:
            raise RuntimeError("not supported in XNNPACK Delegate")
        return lower(ours, nodes, lowering)

    monkeypatch.setattr(measuring, "tapped_program", lower_others)
    net, x = network("perceptron", seed=1)
    found = looked_at(net, x, "fp16", tmp_path)
    assert found.left_out == {"ExecuTorch cannot lower the program with a tap there": 1}
    assert len(found.layers) == 8 and refused not in [layer.name for layer in found.layers]
    assert found.alarms == []


@pytest.mark.wide
def test_the_command_tells_people_and_programs_and_the_report_has_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    done = kit("numerics", "net.py:Net", "--dtype", "fp16", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    check_printed("numerics", printed)
    artifacts = tmp_path / "out_net" / "artifacts"
    kept = read_json(artifacts / "net_xnnpack_fp16_numerics.json", Numerics, "numerics")
    assert printed["layers"][0]["module"] == kept.layers[0].module == "a"
    assert kept.alarms[0].layer.place == "b"
    assert kept.alarms[0].layer.source.startswith(str(tmp_path / "net.py:"))
    assert (artifacts / "net_xnnpack_fp16_numerics.png").read_bytes().startswith(b"\x89PNG")
    kit("run", artifacts / "net_xnnpack_fp16.pte", "--runs", 4, "--quiet", "--output-root", "run", cwd=tmp_path)
    assert kit("report", "run", "--html", cwd=tmp_path).returncode == 0
    run = tmp_path / "run"
    # A line of the Markdown, and a section of the page.
    assert "\n- Accuracy by layer: " in (run / "report.md").read_text()
    assert "keep b, tanh in fp32 (tried: outputs " in (run / "report.html").read_text()
    assert (run / "numerics.json").is_file()


@pytest.mark.wide
def test_neon_and_sme2_are_compared_under_emulation(tmp_path: Path) -> None:
    needs_emulator()
    net, x = network("perceptron", seed=2)
    found = looked_at(net, x, "fp16", tmp_path, platform="emulator")
    assert [variant.name for variant in found.variants] == ["emulator_sme2", "emulator_neon"]
    assert found.timing == "emulated" and found.alarms == []
    assert all(set(layer.sides) == {"emulator_sme2", "emulator_neon"} for layer in found.layers)
