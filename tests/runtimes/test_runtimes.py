"""Other runtimes: each process speaks the runner's protocol, and what goes wrong with one is lost of no other."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from model_profiling import api
from model_profiling.analysis.accuracy.agreement import read_outputs
from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
from model_profiling.api.runtime_comparing import RuntimesRequest, measure_runtimes, program_source, runtime_choices
from model_profiling.base.errors import InputError, RunError, SetupError
from model_profiling.base.on_progress import no_progress
from model_profiling.cli.main import main
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.base import LaunchRequest
from model_profiling.platforms.process_platform import LocalPlatform, ProcessPlatform
from model_profiling.runner.protocol import Exit
from model_profiling.runner.session import HINTS
from model_profiling.runtimes.program import LaunchOptions, ProcessError, WantedInput, arranged_inputs
from model_profiling.runtimes.runtime_table import RUNTIMES, optimized_file
from model_profiling.store.artifacts import RUNTIMES as RUNTIMES_FILE
from model_profiling.store.artifacts import ExportPaths
from tests.conftest import ROOT, kit, needs
from tests.helpers.foreign_models import spoil_onnx, write_onnx, write_tflite
from tests.helpers.misbehaving_net import VARIABLE

pytestmark = pytest.mark.wide
COUNTS: dict[str, Any] = {"runs": 6, "launches": 2, "lock": False}
NET = f"{ROOT / 'tests' / 'helpers' / 'misbehaving_net.py'}:Net"


def needs_packages(*names: str) -> None:
    for name in names:
        needs(importlib.util.find_spec(name) is not None, name)


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in fp32, exported once for all tests."""
    made = api.export(NET, out=tmp_path_factory.mktemp("net"), dtype="fp32", input_shapes=["2,8"])
    return Path(made.paths.pte)


@pytest.fixture(scope="module")
def platform() -> LocalPlatform:
    return LocalPlatform(no_lock=True)


def request(runtime: str, model: Path, home: Path, inputs: tuple[Path, ...] = (), **more: Any) -> LaunchRequest:
    return LaunchRequest(RUNTIMES[runtime].record, model, inputs, 1, 2, (), home / "log", **more)


def by_name(found: RuntimeComparison) -> dict[str, RuntimeRow]:
    return {row.name: row for row in found.rows}


@pytest.mark.parametrize(
    "runtime", ["eager", pytest.param("compile", marks=pytest.mark.again), "onnxruntime", "litert"]
)
def test_each_process_keeps_the_protocol(
    runtime: str, pte: Path, platform: ProcessPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a library prints is none of the runner's words.
    monkeypatch.setenv(VARIABLE, "print")
    needs_packages({"eager": "torch", "compile": "torch", "litert": "ai_edge_litert"}.get(runtime, runtime))
    inputs: tuple[Path, ...] = ()
    model, expected = pte, np.load(ExportPaths(pte).expected / "output_0.npy")
    if RUNTIMES[runtime].suffix == ".pte":
        inputs = (ExportPaths(pte).inputs / "input_0.npy",)
    else:
        inputs = (tmp_path / "x.npy",)
        values = np.arange(4, dtype=np.float32)[None]
        np.save(inputs[0], values)
        write, expected = (write_onnx, values + 2) if runtime == "onnxruntime" else (write_tflite, values + 2)
        model = write(tmp_path / f"model{RUNTIMES[runtime].suffix}", 2.0)
    base = tmp_path / "output"
    session = platform.open(request(runtime, model, tmp_path, inputs, output_base=base))
    assert (session.ready.threads, len(session.ready.warmup_ns)) == (1, 2)
    assert session.ready.first_result_ns > session.ready.before_load_ns > 0 and session.ready.settings
    assert 0 < session.ready.resident_before <= session.ready.resident_warm
    # Of executions that settle it nothing is said; they are counted as made.
    assert len(session.run(3)) == 3 and len(session.run(1, settle=2)) == 1
    done = session.finish()
    assert done.runs == 6 and done.peak >= done.resident > 0
    assert np.allclose(read_outputs(base, done.outputs)[0], expected, atol=1e-6)
    once = platform.open(request(runtime, model, tmp_path, inputs, once=True, cold=True))
    assert once.finish().runs == 0 and once.life_ns > 0


def test_onnx_runtime_writes_its_profile_where_an_etdump_would_be(platform: ProcessPlatform, tmp_path: Path) -> None:
    needs_packages("onnx", "onnxruntime")
    model = write_onnx(tmp_path / "model.onnx", 1.0)
    session = platform.open(request("onnxruntime", model, tmp_path, etdump=tmp_path / "profile.json"))
    session.run(2)
    session.finish()
    events = json.loads((tmp_path / "profile.json").read_text())
    assert [event["name"] for event in events if event.get("args", {}).get("op_name") == "Add"]
    # With what its optimizer made of the model, and nothing else.
    made = tmp_path / "profile.json"
    assert {*tmp_path.glob("profile*")} == {made, optimized_file(made)}


def test_a_malformed_file_is_an_error_of_its_runtime(platform: ProcessPlatform, tmp_path: Path) -> None:
    needs_packages("onnxruntime", "ai_edge_litert")
    # A header that is right, and nothing behind it: LiteRT may say so, or crash.
    header = b"\x1c\0\0\0TFL3" + b"\xff" * 60
    for runtime, content, error in (
        ("onnxruntime", b"hello" * 40, InputError),
        ("litert", b"", InputError),
        ("litert", header, (InputError, RunError)),
    ):
        model = tmp_path / f"bad{RUNTIMES[runtime].suffix}"
        model.write_bytes(content)
        with pytest.raises(error) as caught:
            platform.open(request(runtime, model, tmp_path))
        assert caught.value.runner_exit in (Exit.MODEL_INVALID, -6, -11)


@pytest.mark.parametrize(
    ("fault", "said", "todo"),
    [
        ("cut", "Protobuf parsing failed", "cut short"),
        ("empty", "cannot load", ""),
        ("opset", "till opset", "operators and opset"),
        ("operator", "No Op registered for Frobnicate", "operators and opset"),
        ("weights", "does not exist", "Files of weights have to lie beside"),
    ],
)
def test_an_onnx_that_is_refused_says_why_and_what_to_do(fault: str, said: str, todo: str, tmp_path: Path) -> None:
    """As the process of the runtime hears it; of a model that is cut short, the hint comes with the exit code."""
    needs_packages("onnx", "onnxruntime")
    from model_profiling.runtimes.onnx_runtime import load

    model = write_onnx(tmp_path / "my net\n1.onnx", 1.0)
    if fault == "empty":
        model.write_bytes(b"")
    else:
        model = spoil_onnx(model, fault)
    with pytest.raises(ProcessError, match=said) as caught:
        load(LaunchOptions(model, (), 1))
    told = str(caught.value)
    assert "/onnxruntime_src" not in told and "ONNXRuntimeError" not in told
    assert caught.value.code in (Exit.MODEL_INVALID, Exit.OPERATOR_MISSING)
    assert todo in (caught.value.hint or HINTS[caught.value.code])


def test_a_file_with_open_sizes_and_integers_takes_inputs_of_the_users(tmp_path: Path) -> None:
    needs_packages("onnx", "onnxruntime")
    model = write_onnx(tmp_path / "MY\nnet.ONNX", 1, shape=["batch", 4], dtype="INT64")
    with pytest.raises(InputError, match="no fixed shape") as caught:
        api.compare_runtimes(model, runtimes=[], **COUNTS)
    assert "--input" in caught.value.hint
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.int64))
    found = api.compare_runtimes(model, runtimes=[model], inputs=[tmp_path / "x.npy"], **COUNTS)
    assert [row.ranked for row in found.rows] == [True, True]
    assert sorted(row.label.partition("(")[2] for row in found.rows) == ["MY net.ONNX)", "MY net.ONNX, #2)"]


def test_inputs_of_another_shape_and_a_missing_file_are_named(platform: ProcessPlatform, tmp_path: Path) -> None:
    needs_packages("onnx", "onnxruntime")
    np.save(tmp_path / "x.npy", np.ones((3, 5), np.float32))
    model = write_onnx(tmp_path / "model.onnx", 1.0)
    with pytest.raises(InputError, match=r"input 0 \(x\) is float32 \[3, 5\], and the model takes float32 \[1, 4\]"):
        platform.open(request("onnxruntime", model, tmp_path, (tmp_path / "x.npy",)))
    with pytest.raises(InputError, match="cannot read"):
        platform.open(request("onnxruntime", tmp_path / "none.onnx", tmp_path))


def test_a_missing_package_says_the_pip_command(
    platform: ProcessPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ModuleNotFoundError('gone', name='onnxruntime')\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(SetupError, match="ONNX Runtime needs onnxruntime, which is not installed") as caught:
        platform.open(request("onnxruntime", tmp_path / "model.onnx", tmp_path))
    assert "pip install" in caught.value.hint and "[onnxruntime]" in caught.value.hint


def test_runtimes_compute_the_same_and_are_held_against_executorch(pte: Path, runner: Path) -> None:
    needs_packages("onnx", "onnxscript", "onnxruntime")
    found = api.compare_runtimes(pte, runtimes=["onnxruntime", "executorch", "eager", "litert"], **COUNTS)
    rows = by_name(found)
    assert found.baseline == "executorch" and found.reference.startswith("eager PyTorch")
    for name in ("executorch", "onnxruntime", "eager"):
        row = rows[name]
        assert row.ranked and row.outputs is not None and row.outputs.verdict == "agrees", name
        assert row.latency is not None and row.startup is not None and row.peak_bytes and row.settings and row.versions
    assert rows["executorch"].comparison is None
    compared = rows["onnxruntime"].comparison
    assert compared is not None and compared.paired and compared.before == "executorch"
    assert rows["litert"].reason == "LiteRT takes a .tflite, which the kit does not make" and rows["litert"].hint
    # The second time the .onnx is there already.
    onnx = ExportPaths(pte).onnx
    made = onnx.stat().st_mtime_ns
    api.compare_runtimes(pte, runtimes=["onnxruntime"], **COUNTS)
    assert onnx.stat().st_mtime_ns == made
    assert not list(pte.parent.glob(".export-*"))
    assert msgspec.json.decode(msgspec.json.encode(found))["kind"] == "runtime_comparison"


def test_profiles_of_operators_come_from_executions_of_their_own(
    pte: Path, platform: LocalPlatform, runner: Path, tmp_path: Path
) -> None:
    needs_packages("onnx", "onnxscript", "onnxruntime")
    choices = runtime_choices(["executorch", "onnxruntime", "eager"])
    asked = RuntimesRequest(choices, Counts(6, 2), home=tmp_path)
    found = by_name(measure_runtimes(asked, program_source(pte), platform, no_progress))
    assert all(row.ranked for row in found.values())
    profiles = [files for name in choices for files in (tmp_path / name.name).glob("*_profile*.json")]
    assert len(profiles) == 2, "one for each traced launch, of ONNX Runtime alone"
    assert any(event.get("cat") == "Node" for event in json.loads(profiles[0].read_text()))
    assert list((tmp_path / "executorch").glob("*.etdump"))
    samples = json.loads(next((tmp_path / "onnxruntime").glob("*_samples.json")).read_text())
    assert samples["timed"] and samples["traced"]


def test_a_runtime_that_hangs_takes_no_other_with_it(
    pte: Path, platform: ProcessPlatform, runner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hang")
    found = api.compare_runtimes(pte, runtimes=["eager", "executorch"], timeout_s=8, **COUNTS)
    rows = by_name(found)
    assert "no output from the runner for 8 s" in rows["eager"].reason
    assert rows["eager"].latency is None and not rows["eager"].ranked
    assert rows["eager"].hint and ".log" not in rows["eager"].hint, "its log goes with the directory that it is in"
    assert rows["executorch"].latency is not None and found.rows[0].name == "executorch"
    # One that crashes or ends is a failure as well.
    for how, reason in (("crash", r"crashed \(SIGSEGV\)"), ("exit", "exit code 0 and no explanation")):
        monkeypatch.setenv(VARIABLE, how)
        with pytest.raises(RunError, match=reason):
            platform.open(request("eager", pte, tmp_path)).run(1)


def test_outputs_that_differ_are_shown_and_not_ranked(pte: Path, runner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "differ")
    rows = by_name(api.compare_runtimes(pte, runtimes=["executorch", "eager"], **COUNTS))
    assert rows["eager"].latency is not None and rows["eager"].outputs is not None
    assert rows["eager"].outputs.verdict == "differs"
    assert not rows["eager"].ranked and rows["eager"].comparison is None and rows["executorch"].ranked


def test_files_of_the_users_are_taken_as_they_are(tmp_path: Path) -> None:
    needs_packages("onnx", "onnxruntime", "ai_edge_litert", "flatbuffers")
    first, second = write_onnx(tmp_path / "a.onnx", 1.0), write_tflite(tmp_path / "b.tflite", 1.0)
    wrong, bad = write_onnx(tmp_path / "wrong.onnx", 3.0), tmp_path / "bad.onnx"
    bad.write_bytes(b"no")
    page, counts = tmp_path / "runtimes.html", ("--runs", 6, "--launches", 2)
    done = kit("compare", first, second, "--runtimes", f"{wrong},{bad}", *counts, "--json", "--html", page)
    assert done.returncode == 0, done.stderr
    rows = {Path(row["file"]).name: row for row in json.loads(done.stdout)["rows"]}
    assert rows["a.onnx"]["ranked"] and rows["b.tflite"]["ranked"] and rows["b.tflite"]["comparison"]
    assert rows["wrong.onnx"]["latency"] and not rows["wrong.onnx"]["ranked"]
    assert "cannot load bad.onnx" in rows["bad.onnx"]["reason"]
    # The page leaves standard output to the JSON.
    text = page.read_text()
    assert "Report " in done.stderr and "Other runtimes" in text and "LiteRT" in text and "<svg" in text
    shown = kit("compare", first, *counts).stdout
    assert "ONNX Runtime" in shown and "the reference" in shown and "a.onnx, 1 thread;" in shown


def test_what_does_not_go_together_is_refused(pte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ([pte, "--runtimes", "tensorrt"], "there is no runtime 'tensorrt'"),
        ([pte, "--runtimes", "eager", "--platform", "emulator"], "other runtimes run on this machine only"),
        ([pte, "--runtimes", "eager", "--fail-if-slower", 3], "--fail-if-slower is not for other runtimes"),
        ([pte, pte, "--dtype", "fp32"], "--dtype is for --runtimes"),
        ([pte, "--runtimes", "eager", "--dtype", "fp32"], "is taken as it is"),
        ([tmp_path / "none.onnx"], "there is no"),
    ):
        assert main(["compare", *map(str, words)]) in (2, 3) and said in capsys.readouterr().err, words


def test_a_model_that_only_eager_pytorch_takes_is_measured_there(tmp_path: Path, runner: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.linalg.svd(x).S\n"
    )
    runtimes = ["executorch", "onnxruntime", "eager"]
    how: dict[str, Any] = {"dtype": "fp32", "input_shapes": ["4,4"], "out": tmp_path / "out"}
    rows = by_name(api.compare_runtimes(f"{tmp_path / 'net.py'}:Net", runtimes=runtimes, **how, **COUNTS))
    assert "aten._linalg_svd" in rows["executorch"].reason and "linalg_svd" in rows["onnxruntime"].reason
    assert rows["eager"].ranked and rows["eager"].latency is not None
    assert not list((tmp_path / "out").glob("*.pte")), "its record is of no program"


def test_int8_of_other_runtimes_is_another_quantization(exported: dict[str, Any], runner: Path) -> None:
    found = api.compare_runtimes(exported["int8"].paths.pte, runtimes=["executorch", "eager"], **COUNTS)
    assert "ExecuTorch's quantization" in by_name(found)["eager"].reason


def test_a_run_keeps_the_runtimes_that_were_measured_beside_it(
    pte: Path, tmp_path: Path, runner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = ["--runs", 6, "--launches", 2, "--startup-launches", 0, "--no-lock", "--out", tmp_path]
    done = kit("profile", pte, "--runtimes", "eager", "--json", *counts)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    home = Path(data["paths"]["run"])
    assert {row["name"] for row in data["runtimes"]["rows"]} == {"executorch", "eager"}
    found = api.open_run(home).runtimes
    assert found is not None and found.baseline == "executorch"
    for name in ("report.md", "report.html"):
        assert "Other runtimes" in (home / name).read_text()
    assert (home / "report_charts" / "runtimes.png").is_file()
    made = (home / RUNTIMES_FILE).stat().st_mtime_ns
    again = kit("profile", pte, "--runtimes", "eager", *counts)
    assert again.returncode == 0, again.stderr
    assert "reused existing results of other runtimes" in again.stderr
    assert (home / RUNTIMES_FILE).stat().st_mtime_ns == made
    alone = ["run", pte, "--runtimes", "eager", "--no-html", *counts[:-1], home]
    assert main([*map(str, alone)]) == 0 and "reused existing results of other runtimes" in capsys.readouterr().err
    words = ["profile", pte, "--runtimes", "eager", "--platform", "emulator", *counts]
    assert main([*map(str, words)]) == 2 and "on this machine only" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(-1, 3), (-7,), (1, 3, 50_000, 50_000), (2**62, 2**62), (0, 2**40, -1)])
def test_an_input_of_no_size_or_of_any_size_is_not_made(shape: tuple[int, ...]) -> None:
    with pytest.raises(ProcessError, match=r"input x has (no fixed|too large a) shape") as caught:
        arranged_inputs([], [WantedInput("x", "float32", shape)])
    assert "--input x.npy" in caught.value.hint
