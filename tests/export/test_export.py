"""An export is whole, true to the eager model, and says what XNNPACK left out and why."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import errno
import hashlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

from model_profiling import models as registry
from model_profiling.base.errors import InputError, RunError, SetupError
from model_profiling.base.files import locked, read_json
from model_profiling.cli.main import main
from model_profiling.export.exporter import ExportRequest, ExportResult, export
from model_profiling.export.publish import writable
from model_profiling.models.model_base import EagerModelBase
from model_profiling.store.artifacts import ExportMeta
from tests.conftest import shared_home
from tests.helpers import warm
from tests.helpers.in_process import run_program

ROOT = Path(__file__).resolve().parents[2]
DTYPES = ("fp32", "fp16", "int8")


class Tiny(EagerModelBase):
    """Exports in a second. Subclasses replace `forward`."""

    @staticmethod
    def forward(*args: Any) -> Any:
        return args[0] + 1

    def get_eager_model(self) -> Any:
        forward = self.forward

        class Module(torch.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, *args: Any) -> Any:
                return forward(*args)

        return Module()

    def get_example_inputs(self) -> Any:
        return (torch.ones(1, 2, 4, 4),)


class Branching(Tiny):
    @staticmethod
    def forward(*args: Any) -> Any:
        (x,) = args
        if x.sum() > 0:
            return x
        return -x


class NotFinite(Tiny):
    @staticmethod
    def forward(*args: Any) -> Any:
        return args[0] / 0


class Rectified(Tiny):
    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.relu(args[0])


class Nested(Tiny):
    @staticmethod
    def forward(*args: Any) -> Any:
        ids, pair = args
        return {"sum": pair[0] + pair[1], "ids": ids * 2}

    def get_example_inputs(self) -> Any:
        return (torch.arange(3), (torch.ones(3), torch.zeros(3)))


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-4), ("fp16", 5e-3), ("int8", 5e-2)])
def test_an_export_is_whole_and_agrees_with_the_eager_model(
    exported: dict[str, ExportResult], dtype: str, tolerance: float
) -> None:
    from executorch.devtools.etrecord import parse_etrecord

    paths, record = exported[dtype].paths, exported[dtype].record
    assert paths.pte.name == f"toy_cnn_xnnpack_{dtype}.pte"
    expected = np.load(paths.directory / record.outputs[0].file)
    (answer,) = run_program(paths, record)
    assert answer.shape == expected.shape == (1, 10)
    np.testing.assert_allclose(answer.float().numpy(), expected.astype(np.float32), atol=tolerance)
    # Every file is listed with its hash.
    meta = read_json(paths.meta, ExportMeta, "export record")
    assert set(meta.exports) == {f"toy_cnn_xnnpack_{d}" for d in DTYPES} and record == meta.exports[paths.stem]
    assert {paths.pte.name, paths.etrecord.name, f"{paths.stem}_inputs/input_0.npy"} < set(record.files)
    for name, digest in record.files.items():
        assert hashlib.sha256((paths.directory / name).read_bytes()).hexdigest() == digest, name
    assert {"python", "torch", "executorch", "torchao"} <= set(record.versions)
    assert record.stage_seconds["lower to the backend"] > 0
    assert record.weights == "random (seed 0)"
    # One operator stays portable, and the partitioner says why.
    delegation = record.delegation
    assert (delegation.portable_nodes, delegation.delegate_calls) == (1, 2) and delegation.delegated_nodes >= 15
    (left_out,) = delegation.not_delegated
    assert (left_out.op, left_out.count) == ("aten.mean.dim", 1)
    assert left_out.reason == "mean.dim only supports keepdim=True"
    # ExecuTorch's own tools open the ETRecord.
    opened = parse_etrecord(str(paths.etrecord))
    assert opened.edge_dialect_program is not None
    assert opened._debug_handle_map and opened._delegate_map


def test_samples_have_the_dtype_of_the_export_and_say_what_computed_them(exported: dict[str, ExportResult]) -> None:
    seen = {dtype: (result.record.inputs[0].dtype, result.record.reference) for dtype, result in exported.items()}
    assert seen == {
        "fp32": ("float32", "eager PyTorch, fp32"),
        "fp16": ("float16", "eager PyTorch, fp32"),
        "int8": ("float32", "eager PyTorch, fp32"),
    }
    costs = {dtype: result.record.dtype_cost for dtype, result in exported.items()}
    assert costs["fp32"] is None
    assert all(cost and cost.sqnr_db and 15 < cost.sqnr_db < 90 for dtype, cost in costs.items() if dtype != "fp32")
    result = exported["fp16"]
    sample = np.load(result.paths.directory / result.record.inputs[0].file)
    assert sample.dtype == np.float16 and sample.flags.c_contiguous and sample.shape == (1, 3, 96, 96)


def test_the_saved_graph_tells_the_models_lines_and_the_cut(exported: dict[str, ExportResult]) -> None:
    graphs = json.loads(exported["fp16"].paths.graph.read_text())
    nodes = graphs["toy_cnn_xnnpack_fp16"]
    (portable,) = [node for node in nodes if node["delegate"] is None]
    assert portable["op"] == "aten.mean.dim" and portable["shapes"] == [[1, 96]]
    path, _, line = portable["source"].rpartition(":")
    assert "x.mean((2, 3))" in (ROOT / path).read_text().splitlines()[int(line) - 1]
    assert {node["delegate"] for node in nodes} == {0, None, 1}


def test_portable_channels_last_and_nested_inputs(register: Any, tmp_path: Path) -> None:
    register("rectified", Rectified)
    result = export(ExportRequest("rectified", tmp_path, "fp16", backend="portable", memory_format="channels_last"))
    assert result.paths.pte.name == "rectified_portable_fp16.pte"
    assert result.record.delegation.delegated_nodes == 0
    assert "channels-last" in result.record.warnings[0]
    assert "--backend portable" in result.record.delegation.not_delegated[0].reason
    assert np.all(run_program(result.paths, result.record)[0].numpy() == 1)

    register("nested", Nested)
    nested = export(ExportRequest("nested", tmp_path, "fp16")).record
    assert [(entry.dtype, entry.shape) for entry in nested.inputs] == [("int64", [3]), *[("float16", [3])] * 2]
    assert len(nested.outputs) == 2
    assert any("does not know" in left.reason or "dtype" in left.reason for left in nested.delegation.not_delegated)


def test_outputs_that_are_not_finite_are_a_warning(register: Any, tmp_path: Path) -> None:
    register("not_finite", NotFinite)
    record = export(ExportRequest("not_finite", tmp_path, dtype="fp32")).record
    assert record.warnings == ["output 0 of the eager model has 32 of 32 values NaN or infinite"]


def snapshot(directory: Path) -> dict[str, bytes]:
    found = directory.rglob("*")
    return {str(p.relative_to(directory)): p.read_bytes() for p in found if p.is_file() and p.name != ".lock"}


def test_a_failed_capture_names_the_line_and_keeps_the_older_export(register: Any, tmp_path: Path) -> None:
    register("changing", Tiny)
    export(ExportRequest("changing", tmp_path, dtype="fp32"))
    before = snapshot(tmp_path)
    registry._registered.pop("changing")
    register("changing", Branching)
    with pytest.raises(RunError, match=r"while trying to capture the graph .*test_export\.py:\d+\)") as caught:
        export(ExportRequest("changing", tmp_path, dtype="fp32"))
    log = tmp_path / "changing_xnnpack_fp32_export.log"
    assert str(log) in caught.value.hint and "Traceback" in log.read_text()
    after = snapshot(tmp_path)
    after.pop(log.name)
    assert after == before


@pytest.mark.parametrize("fail_at", ["changing_xnnpack_fp32_inputs", "export_meta.json"])
def test_a_failure_while_files_are_put_in_place_rolls_back(
    register: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: str
) -> None:
    register("changing", Tiny)
    export(ExportRequest("changing", tmp_path, dtype="fp32"))
    before = snapshot(tmp_path)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == fail_at and self.parent.parent.name.startswith(".export-"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(SetupError, match=r"could not be written to .*: No space left on device"):
        export(ExportRequest("changing", tmp_path, seed=5, dtype="fp32"))
    assert snapshot(tmp_path) == before


def test_a_limit_of_this_process_is_not_called_a_lack_of_space(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught, writable(tmp_path):
        raise OSError(errno.EFBIG, "File too large")
    assert "ulimit -f" in caught.value.hint


def test_two_exports_into_one_directory_do_not_mix(register: Any, tmp_path: Path) -> None:
    register("tiny", Tiny)
    with locked(tmp_path, "export"), pytest.raises(SetupError, match="another export is writing"):
        export(ExportRequest("tiny", tmp_path, dtype="fp32"))
    assert set(snapshot(tmp_path)) == set()


def test_a_foreign_export_meta_is_not_overwritten(register: Any, tmp_path: Path) -> None:
    register("tiny", Tiny)
    (tmp_path / "export_meta.json").write_text("[]")
    with pytest.raises(InputError, match=r"export_meta\.json is not what the kit writes"):
        export(ExportRequest("tiny", tmp_path, dtype="fp32"))
    assert snapshot(tmp_path) == {"export_meta.json": b"[]"}


def test_the_command_prints_json_and_keeps_stages_on_stderr(
    register: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    register("tiny", Tiny)
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--model", "tiny", "--json"]) == 0
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    assert value["paths"]["pte"] == "out_tiny/artifacts/tiny_xnnpack_fp16.pte"
    assert Path(value["paths"]["etrecord"]).is_file()
    assert value["record"]["model"] == "tiny"
    assert "export: capture the graph\n" in captured.err and "\x1b" not in captured.err
    assert "Warning" not in captured.err


def test_the_script_works_from_a_bare_clone_and_any_directory(tmp_path: Path) -> None:
    script = ROOT / "model_profiling" / "export" / "export_model.py"
    argv = [sys.executable, str(script), "--model", "toy_cn"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert "error: there is no model called 'toy_cn'" in done.stderr and "Did you mean toy_cnn" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_the_stage_is_one_live_line_without_torchs_noise(tmp_path: Path) -> None:
    code = (
        f"from model_profiling.cli.main import main;main(['export', '--model', 'add', '--outdir', {str(tmp_path)!r}])"
    )
    primary, secondary = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [warm.python(shared_home()), "-c", code], stdout=secondary, stderr=secondary, cwd=ROOT, env=environment
    )
    os.close(secondary)
    shown = b""
    while chunk := _read(primary):
        shown += chunk
    assert process.wait() == 0
    # Which stages it is drawn in depends on how long each takes.
    assert b"\x1b[?7lexport: " in shown
    assert b"Warning" not in shown and b"\x1b[3" not in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux reports the closed far end of a terminal as an error
        return b""
