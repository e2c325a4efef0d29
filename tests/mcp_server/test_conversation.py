"""An assistant with tools only goes from a file with a model to a fix."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch.exir")

from tests.conftest import ROOT, needs_emulator
from tests.helpers.mcp_client import Assistant, drive

pytestmark = pytest.mark.wide
NET = """import torch


class Net(torch.nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, width, 3, padding=1)
        self.head = torch.nn.Linear(width, 4)

    def forward(self, image):
        x = torch.relu(self.stem(image))
        pooled = x.mean((2, 3))
        return self.head(pooled)
"""
SLOW_LINE = "net.py:12"
TEMPLATES = ROOT / "model_profiling" / "configs" / "templates"
MODEL: dict[str, Any] = {"model": "net.py:Net", "input_shapes": ["1,3,96,96"]}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A workspace with a model in a file, after the first call; and what that answered."""
    workspace = tmp_path_factory.mktemp("assistant") / "workspace"
    workspace.mkdir()
    (workspace / "net.py").write_text(NET)
    answer: dict[str, Any] = {}

    async def conversation(assistant: Assistant) -> None:
        assert (await assistant.call("doctor"))["exit_code"] == 0
        assert "net.py:Net" in {model["name"] for model in (await assistant.call("models"))["models"]}
        answer.update(await assistant.call("profile", **MODEL, dtype="fp32", runs=20))
        assert any("lower to the backend" in line for line in assistant.said)
        assert any("run: " in line for line in assistant.said)

    drive(workspace, conversation)
    return workspace, answer


def test_a_profile_says_what_was_measured_and_where_its_files_are(profiled: tuple[Path, dict[str, Any]]) -> None:
    workspace, answer = profiled
    paths, summary = answer["paths"], answer["summary"]
    assert (workspace / paths["pte"]).is_file() and summary["timing"] == "measured"
    assert f"{paths['run']}/report.md" in paths["report"] and all((workspace / f).is_file() for f in paths["report"])
    assert summary["metrics"]["experiments"].keys() == summary["experiments"].keys()
    for comparison in summary["metrics"]["comparisons"]:
        assert comparison["high"] is None or comparison["low"] <= comparison["ratio"] <= comparison["high"]


def test_from_a_profile_to_a_fix(profiled: tuple[Path, dict[str, Any]]) -> None:
    workspace, answer = profiled
    made, run_dir, pte = answer["export"], answer["paths"]["run"], answer["paths"]["pte"]

    async def conversation(assistant: Assistant) -> None:
        call = assistant.call
        checked = await call("check", **MODEL, dtype="fp32")
        (portable,) = checked["delegation"]["not_delegated"]
        assert "mean" in portable["op"] and portable["sources"] == [SLOW_LINE] and portable["reason"]
        layout = checked["layout"]
        transposes = sum(entry["count"] for entry in layout["transposes"])
        assert transposes and all(entry["reason"] for entry in layout["transposes"])
        assert layout["removable"] is not None and layout["removable"] <= transposes

        # The advice: which line, why, and what to do about it.
        analysed = await assistant.call_twice("analyze", run_dir=run_dir)
        name, first = next(iter(analysed["experiments"].items()))
        breakdown = first["breakdown"]
        assert sum(each["ms"] for each in breakdown["categories"]) == pytest.approx(breakdown["execute_ms"], rel=1e-3)
        assert SLOW_LINE in {f"{line['file']}:{line['line']}" for line in analysed["lines"][name]}
        (advice,) = [entry for entry in first["advice"] if entry["rewrite"]]
        assert any(SLOW_LINE in line for line in advice["evidence"])
        assert [name for name, lines in made["rewrites"].items() if lines] == [advice["rewrite"]]

        # The fix, beside what it is compared with; and whether it was one, with an interval or the reason why not.
        place = {"outdir": "out_net/fixed", "rewrites": [advice["rewrite"]]}
        fixed = await assistant.call_twice("export", **MODEL, dtype="fp32", **place)
        record = fixed["record"]
        assert record["request"]["rewrites"] == [advice["rewrite"]] and not any((record["rewrites"] or {}).values())
        assert record["delegation"]["portable_nodes"] < made["delegation"]["portable_nodes"]
        sides = {"before": pte, "after": fixed["paths"]["pte"]}
        (compared,) = (await call("compare", **sides, budget_s=1))["comparisons"]
        verdict = compared["latency"]
        unreliable = verdict["contended"] or verdict["high"] is None
        assert unreliable or verdict["verdict"] == "no difference seen" or verdict["low"] > 1

        assert (await call("validate", run_dir=run_dir))["valid"]

    drive(workspace, conversation)


def test_kernels_and_what_they_forecast(profiled: tuple[Path, dict[str, Any]]) -> None:
    needs_emulator()
    workspace, answer = profiled

    async def conversation(assistant: Assistant) -> None:
        emulated = await assistant.call("kernels", model=answer["paths"]["pte"])
        assert emulated["experiments"]["emulator_sme2"]["coverage"]["on_sme2"] > 0
        sides = {"run_dir": answer["paths"]["run"], "emulated_dir": emulated["run_dir"]}
        found = await assistant.call("forecast", **sides, speedups=[4])
        assert {entry["label"] for entry in found["forecasts"]} == {"prediction"}
        # The same as a config: the template for traces, on the emulator.
        template = json.loads((TEMPLATES / "trace_template.json").read_text())
        (workspace / "trace.json").write_text(
            json.dumps({**template, "model": answer["paths"]["pte"], "output_root": "traced"})
        )
        traced = await assistant.call("run", config="trace.json", platform="emulator")
        assert traced["timing"] == "emulated" and set(traced["experiments"]) == {"trace_sme2_on", "trace_sme2_off"}
        assert (workspace / "traced" / "kernels.json").is_file()

    drive(workspace, conversation)


def test_tune_answers_with_what_export_takes(profiled: tuple[Path, dict[str, Any]]) -> None:
    async def conversation(assistant: Assistant) -> None:
        tuned = await assistant.call("tune", **MODEL, dtype="fp16", runs=4, launches=2)
        taken = set(assistant.tools["export"].input_schema["properties"])
        for entry in tuned["tried"]:
            wanted = {name: entry[name] for name in ("dtype", "memory_format", "io_layout", "rewrites", "delegation")}
            assert set(wanted) <= taken and wanted["dtype"] in ("fp16", "fp32", "int8")
        assert ["auto"] in [entry["rewrites"] for entry in tuned["tried"]]

    drive(profiled[0], conversation)


def test_a_run_takes_a_config_a_label_inputs_and_threads(tmp_path: Path, toy: Callable[[str], Path]) -> None:
    shutil.copytree(toy("fp16").parent, tmp_path / "artifacts")
    model = f"artifacts/{toy('fp16').name}"
    inputs = [str(path.relative_to(tmp_path)) for path in (tmp_path / "artifacts").glob("*_fp16_inputs/*.npy")]
    one = {"name": "one", "num_runs": 4, "traced_runs": 2}
    config = {"model": model, "output_root": "out/config", "experiments": [one]}
    (tmp_path / "config.json").write_text(json.dumps(config))

    async def conversation(assistant: Assistant) -> None:
        call, refused = assistant.call, assistant.refused
        place = {"model": model, "output_root": "out/run", "runs": 8, "launches": 2}
        run = await call("run", **place, inputs=inputs, label="first", threads=2, startup_launches=4)
        assert run["run_dir"] == "out/run" and run["timing"] == "measured"
        measured = next(iter(run["metrics"]["experiments"].values()))
        latency = measured["latency"]
        assert latency["runs"] == 8 and latency["launches"] == 2
        assert measured["startup"]["launches"] == 4 and measured["startup"]["first_result"]["median_ms"] > 0
        assert measured["memory"]["peak_bytes"] > measured["memory"]["after_load_bytes"] > 0
        assert run["metrics"]["program"]["arenas"][0]["bytes"] > 0
        await call("run", **place, label="second")
        found = {entry["label"]: entry["threads"] for entry in (await call("runs", run_dir="out/run"))["runs"]}
        assert found == {"first": [2], "second": [1]}
        gate = {"before": "out/run@first", "after": "out/run", "fail_if_slower": 900, "any_baseline": True}
        compared = await call("compare", **gate)
        assert compared["exit_code"] == 0 and compared["comparisons"]
        assert all(entry["memory"]["percent"] > -50 for entry in compared["comparisons"])
        started = await call("compare", **gate, fail_if_startup_slower=900)
        assert started["exit_code"] == 0 and started["comparisons"][0]["startup"]["first_result"]["ratio"] > 0
        assert "2 processes are too few" in await refused("compare", **gate, fail_if_memory_above=900)

        assert set((await call("run", config="config.json", label="by-config"))["experiments"]) == {"one"}
        assert (await call("runs", run_dir="out/config"))["runs"][0]["label"] == "by-config"
        assert "only with a .pte" in await refused("run", config="config.json", runs=3)
        assert "one of the two" in await refused("run", config="config.json", model=model)
        assert "nothing to run" in await refused("run")
        assert "for Android devices" in await refused("run", model=model, device="0123")

    drive(tmp_path, conversation)
