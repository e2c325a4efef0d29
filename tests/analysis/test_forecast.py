"""Forecasts are of each operator by itself: by its own dtype, by what is shown, and 1.00x where SME2 takes nothing.

Which operators SME2 takes is forged into the kernel trace of a real run; that real ones are so, test_emulator.py holds.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
import torch
from hypothesis import given
from torch import nn

pytest.importorskip("executorch.exir")

from model_profiling.analysis.run.run_forecasts import forecasts
from model_profiling.analysis.sme2.core_prices import I8MM_OVER_DOT
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.target import FP16_OVER_FP32, Target, read_target
from model_profiling.base.errors import InputError
from model_profiling.base.units import shown_ms
from model_profiling.export.in_memory import export_module
from model_profiling.report import markdown, numbers
from model_profiling.report.content import whole as content
from model_profiling.report.words import predicted_factor
from model_profiling.store.run_directory import Manifest
from sme2_kit import open_run
from tests.conftest import kit
from tests.helpers.run_forge import forge_emulated, forge_run


class Partly(nn.Module):  # type: ignore[misc]
    """Layers that may be kept in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.many = nn.Linear(256, 384)
        self.kept = nn.Linear(384, 256)

    def forward(self, x: Any) -> Any:
        return self.kept(torch.relu(self.many(x)))


class Weightless(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.sigmoid(x) * 2


MODELS: dict[str, tuple[nn.Module, dict[str, Any]]] = {
    "fp32": (Partly(), {}),
    "mixed": (Partly(), {"dtype": "fp16", "keep_fp32": ("kept",)}),
    "int8": (Partly(), {"dtype": "int8"}),
    "portable": (Partly(), {"backend": "portable"}),
    "weightless": (Weightless(), {}),
}
Measured = Callable[[str], Path]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A short real run of each model, whose operators take as long as this says, as an Arm CPU would have made it."""
    home, made = tmp_path_factory.mktemp("forecasts"), {}

    def get(name: str) -> Path:
        if name not in made:
            torch.manual_seed(0)
            module, options = MODELS[name]
            pte = export_module(module, torch.randn(64, 256), home / name, **{"dtype": "fp32", **options}).paths.pte
            done = kit("run", pte, "--output-root", home / f"{name}_run", "--runs", 4, "--startup-launches", 0)
            assert done.returncode == 0, done.stderr
            places = home / f"{name}_run", home / f"{name}_stated"
            times = lambda _, operator, __: 50_000 if operator else 2_000  # noqa: E731
            made[name] = forge_run(*places, change=with_arch("aarch64"), launches=6, times=times)
        return made[name]

    return get


def with_arch(arch: str) -> Callable[[Manifest], None]:
    def change(manifest: Manifest) -> None:
        manifest.environment["arch"] = arch
        for name, record in manifest.experiments.items():
            assert record.features is not None
            features = msgspec.structs.replace(record.features, arch=arch)
            manifest.experiments[name] = msgspec.structs.replace(record, features=features)

    return change


def is_linear(name: str) -> bool:
    return name.startswith("Fully Connected")


def forecast(run: Path, home: Path, takes: Callable[[str], bool], **more: Any) -> Forecast:
    return forecasts(open_run(run), open_run(forge_emulated(run, home / "seen", takes)), **more)[0]


@pytest.mark.parametrize(
    "name", [*(pytest.param(dtype, marks=pytest.mark.wide) for dtype in ("fp32", "int8")), "portable", "weightless"]
)
def test_where_sme2_takes_nothing_nothing_becomes_faster(name: str, measured: Measured, tmp_path: Path) -> None:
    run = measured(name)
    found = forecast(run, tmp_path, lambda _: False)
    assert (found.on_sme2, found.speedups, found.speedup_range, found.operators) == (0, [1.0], (1.0, 1.0), [])
    assert forecast(run, tmp_path / "b", lambda _: False, speedups=(8.0,)).speedups == [1.0]
    assert predicted_factor(found)[1].startswith("no gain, predicted")
    slower = msgspec.structs.replace(found, ratio=0.2, ratio_low=0.1, ratio_high=0.25)
    assert predicted_factor(slower)[0] == "5.0x"
    assert predicted_factor(slower)[1].startswith("slower, predicted (4.0 to 10.0")
    if name == "fp32":
        said = kit("forecast", run, tmp_path / "seen")
        assert said.returncode == 0 and "1.0x no gain, predicted" in said.stdout, said.stderr
        told = kit("forecast", run, tmp_path / "seen", "--json")
        assert json.loads(told.stdout)[0]["on_sme2"] == 0
    # A target that does not know the dtype has nothing to refuse.
    assert forecast(run, tmp_path / "c", lambda _: False, target="arm_phone").speedups == [1.0]
    report = markdown.render(content.report(open_run(run, emulated=tmp_path / "seen")), {})
    assert "nothing becomes faster by SME2" in report


def test_a_run_that_had_no_sme2_is_no_evidence(measured: Measured, tmp_path: Path) -> None:
    seen = forge_emulated(measured("fp32"), tmp_path / "seen", lambda _: False, features=("dot",))
    with pytest.raises(InputError, match="had SME2") as refused:
        forecasts(open_run(measured("fp32")), open_run(seen))
    assert "sme2-kit kernels" in refused.value.hint


def test_each_operator_counts_by_its_own_dtype(measured: Measured, tmp_path: Path) -> None:
    """Of an fp16 program with a layer in fp32, that layer gains what fp32 does, and fp16 is not assumed of it."""
    run = open_run(measured("mixed"))
    assert run.manifest.model.dtypes == {"fp16": 0.5, "fp32": 0.5}
    found = forecast(measured("mixed"), tmp_path, is_linear)
    assert found.on_sme2 == len(found.operators) == 2
    works = {x.name: x.work for x in run.summary.experiments[found.experiment].breakdown.instances}
    target = read_target("apple_m4")
    assert isinstance(target, Target)
    narrow = {work.program_element or work.element for name, work in works.items() if is_linear(name) and work}
    assert narrow == {"fp32", "fp16"}
    for entry in found.operators:
        work = works[entry.name]
        assert work is not None
        own = "fp16" if work.program_element else work.element
        assert re.search(rf"\b{own}: {target.sme2[own].value / target.neon[own].value:.1f} times", entry.why)
        assert ("without SME2, by fp16" in entry.why) == bool(work.program_element)
    if all(not work.program_element for work in works.values() if work):
        assert found.without is None


@pytest.mark.parametrize("name", ["fp32", "mixed", "int8"])
def test_faster_is_the_quotient_of_the_times_beside_it(name: str, measured: Measured, tmp_path: Path) -> None:
    run = measured(name)
    found = forecast(run, tmp_path, is_linear)
    assert found.operators
    for entry in found.operators:
        assert entry.times == pytest.approx(entry.ms / entry.predicted_ms)
        step = {"fp16": FP16_OVER_FP32, "i8mm": I8MM_OVER_DOT}.get(entry.why.partition("without SME2, by ")[2][:4], 1.0)
        assert (f"{step:g}x of it without SME2" in entry.why) == (step != 1)
    shown = [kit("forecast", run, tmp_path / "seen", "--verbose").stdout] if name == "mixed" else []
    report = markdown.render(content.report(open_run(run, emulated=tmp_path / "seen")), {})
    time, cell = r"([0-9.]+) (ms|us)", r"\s+\|?\s*"
    for text in (*shown, report):
        rows = re.findall(rf"Fully Connected[^|\n]*?{cell}{time}{cell}{time}{cell}([0-9.]+)x", text)
        assert len(rows) == len(found.operators), text
        for before, one, after, other, faster in rows:
            scale = {"ms": 1.0, "us": 0.001}
            assert float(faster) == pytest.approx(
                float(before) * scale[one] / (float(after) * scale[other]), abs=0.0051
            )


@pytest.mark.parametrize("name", ["fp32", "mixed", "int8"])
def test_another_cpus_times_are_in_no_forecast(name: str, measured: Measured, tmp_path: Path) -> None:
    """However long operators take on a CPU that is not Arm: what is predicted is the same, and in no milliseconds."""
    found = []
    for place, factor in enumerate((1, 7)):
        times = lambda _, operator, ns, by=factor: ns * by * (3 if is_linear(operator) else 1)  # noqa: E731
        home = tmp_path / str(place)
        run = forge_run(measured(name), home / "run", change=with_arch("x86_64"), launches=6, times=times)
        found.append(forecast(run, home, is_linear))
        shown = [kit("forecast", run, home / "seen", "--verbose").stdout] if name == "mixed" else []
        report = markdown.render(content.report(open_run(run, emulated=home / "seen")), {})
        for text in (*shown, report.partition("With SME2 (predicted)")[2]):
            assert "modelled from the program" in " ".join(text.split())
            assert not re.search(r"[0-9] (ms|us)\b", text.partition("The costliest operators that SME2 does not")[0])
    assert found[0] == found[1] and found[0].basis == "modelled" and found[0].core == "Arm Neoverse-N1"
    arm = forecast(measured(name), tmp_path / "arm", is_linear)
    assert (arm.basis, arm.core) == ("measured", "")
    assert forecast(measured(name), tmp_path / "arm2", is_linear, speedups=(4.0,)).ratio > 1


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3))
def test_a_quotient_is_that_of_the_digits_shown(before: float, after: float) -> None:
    said = numbers.times_faster(before, after)
    texts = [shown_ms(before), shown_ms(after)]
    if any(text.startswith("<") or float(text.split()[0]) == 0 for text in texts):
        assert said == "-"
        return
    one, other = (float(text.split()[0]) * (0.001 if text.endswith("us") else 1.0) for text in texts)
    assert said == f"{one / other:.2f}x" or abs(float(said[:-1]) - one / other) < 0.0051
