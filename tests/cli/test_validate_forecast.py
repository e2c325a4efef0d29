"""`sme2-kit validate-forecast` for real: roofs, a model on and off, a page and a JSON file that name nobody."""

import contextlib
import getpass
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sme2_kit
from model_profiling.analysis.sme2.forecast_validation import ValidatedModel, check_prediction, read_validation
from model_profiling.analysis.sme2.target import MeasuredTarget, read_target
from model_profiling.api import forecast_validating, measuring, roof_measuring
from model_profiling.api.measuring import MeasuredRun, RunRequest
from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.errors import InputError, RunError
from model_profiling.base.on_progress import no_notes, no_progress
from model_profiling.pipeline.axes import accelerator
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.emulator import EmulatorPlatform
from model_profiling.platforms.process_platform import LocalPlatform
from tests.analysis.test_target import measured_roofs
from tests.conftest import needs_emulator
from tests.helpers.contract_check import check_printed
from tests.helpers.kit_here import kit_here


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2_KIT_ROOFS", str(tmp_path / "roofs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dtype() -> str:
    """One in which this CPU has something to switch; every CPU that the kit runs on has one."""
    return next(each for each in ARITHMETICS if accelerator(LocalPlatform(), each) is not None)


def test_a_real_run_is_held_against_its_forecast_and_shared_without_names(
    cache: Path, dtype: str, toy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roof_measuring, "_probe", lambda dtype, home, on_progress: toy(dtype))
    broken = cache / "broken.pte"
    broken.write_bytes(toy(dtype).read_bytes())
    measure = measuring.measure

    def failing(asked: RunRequest, *rest: Any) -> MeasuredRun:
        if asked.model == broken:
            raise RunError(f"{broken} ended by itself", f"See {cache}/log.")
        return measure(asked, *rest)

    monkeypatch.setattr(forecast_validating, "measure", failing)
    words = ["validate-forecast", "--models", str(broken), str(toy(dtype)), "--dtypes", dtype, "--budget", "0.5"]
    said = kit_here(*words, "--json")
    check_printed("forecast_validation", json.loads(said.stdout))
    home = cache / "out_forecast_validation"
    found = read_validation(home / "forecast_validation.json")
    (held,), (failed,) = found.models, found.failed
    assert failed.model == "broken" and failed.why == "broken.pte ended by itself"
    assert f"note: broken {dtype}: {broken} ended by itself\n" in said.stderr
    assert held.dtype == dtype and held.switched == [accelerator(LocalPlatform(), dtype)] and held.time.off_ms > 0
    # The probes were the model itself: each operator is predicted by what it gained a moment before.
    assert held.operators and all("as a probe of" in each.why for each in held.operators)
    assert found.environment.sme2 == ("sme2" in found.environment.features) and found.environment.cores
    assert held.traced or "kernel" in held.not_traced
    page = (home / "forecast_validation.html").read_text()
    assert ("SME2 itself was not tested" in page) == (not found.environment.sme2)
    for text in ((home / "forecast_validation.json").read_text(), page):
        names = {socket.gethostname(), getpass.getuser(), Path.home().name} - {"root", "sme2", ""}
        assert not [name for name in (*names, str(cache), "/home/", "/root", "/tmp/", "/Users/") if name in text]

    said = kit_here(*words)
    assert "uses the roofs of" in said.stderr and "launch" not in said.stderr, "nothing is measured twice"
    assert "The forecast" in said.stdout and "forecast_validation.html" in said.stdout
    if not found.environment.sme2:
        run = next((home / f"{toy(dtype).stem}-{dtype}" / "runs").iterdir())
        assert kit_here("forecast", run, run, "--target", home / "forecast_validation.json").returncode == 2


NET = """
import torch


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
"""


@pytest.mark.wide
def test_where_sme2_is_switched_a_target_and_the_table_are_held_against_what_ran(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the emulator, as if its times were measured: the kernels are real, and no number is judged."""
    needs_emulator()
    (cache / "net.py").write_text(NET)
    pte = sme2_kit.export("net.py:Net", dtype="fp32", input_shapes=["8,64"], out=cache / "net").paths.pte
    monkeypatch.setattr(roof_measuring, "_probe", lambda dtype, home, on_progress: pte)
    asked = forecast_validating.ValidationRequest(cache / "out", [str(pte)], ("fp32",), 0.1, Counts(2, 1))
    with contextlib.closing(EmulatorPlatform()) as platform:
        platform.timing = "measured"
        found = forecast_validating.validate_forecast(asked, platform, no_progress, no_notes)
    (held,) = found.models
    assert found.environment.sme2 and held.switched == ["sme", "sme2"] and not held.not_traced
    # Without SME2 alone, kernels of SME would run: what SME2 gains is told against NEON.
    assert all("sme2" in each.active or "sme" not in each.active for each in found.roofs.measurements)
    assert held.gain is not None and held.gain.target == "apple_m4" and held.gain.predicted_low <= held.gain.predicted
    # Two layers on a CPU with NEON, with SME and with SME2.
    assert held.traced == 6 and all(each.state in ("differs", "unknown") for each in held.differences)
    assert isinstance(read_target(cache / "out" / "forecast_validation.json"), MeasuredTarget)
    assert "What SME2 gains" in (cache / "out" / "forecast_validation.html").read_text()


def test_what_is_finished_stays_when_it_is_interrupted(
    cache: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[str] = []

    def measured(asked: Any, cell: Any, *rest: object) -> ValidatedModel:
        if finished:
            raise KeyboardInterrupt
        finished.append(cell.name)
        return ValidatedModel(cell.name, cell.dtype, ["dot"], 1, check_prediction(2.0, 1.0, 1.1, 1.7, 1.9), [], 0)

    monkeypatch.setattr(forecast_validating, "_roofs", lambda *_: measured_roofs(2.0))
    monkeypatch.setattr(forecast_validating, "_hold", measured)
    done = kit_here("validate-forecast", "--models", "toy_cnn", "resnet8", "--dtypes", dtype, "--outdir", "out")
    assert done.returncode == 130 and "Finished work is kept" in done.stderr
    assert [each.model for each in read_validation(Path("out/forecast_validation.json")).models] == ["toy_cnn"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "no_such_model"], "there is no model called 'no_such_model'"),
        (["--models", "none.pte"], "model none.pte does not exist"),
        (["--budget", "0"], "--budget must be a number of seconds above 0"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(cache: Path, words: list[str], said: str) -> None:
    done = kit_here("validate-forecast", *words)
    assert done.returncode == 2 and said in done.stderr and not list(cache.iterdir())


def test_a_cpu_with_nothing_to_switch_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_validating, "accelerator", lambda platform, dtype: None)
    asked = forecast_validating.ValidationRequest(cache / "out")
    with pytest.raises(InputError, match="nothing can be switched in fp32, fp16, int8"):
        forecast_validating.validate_forecast(asked, LocalPlatform(), lambda *_: None, lambda _: None)
    assert not (cache / "out").exists()
