"""A stranger's model: from a .py file to results in two commands, and to an explanation when it cannot be."""
# ruff: noqa: E402 - without torch these tests are skipped before the imports that need it

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("executorch.exir")
torch = pytest.importorskip("torch")

import numpy as np

from model_profiling.base.errors import InputError, RunError
from model_profiling.base.on_progress import listen_to_notes
from model_profiling.export.cache import cached
from model_profiling.export.exporter import ExportRequest, ExportResult, export
from model_profiling.models.loading import LoadOptions, load_model
from model_profiling.models.lookup import FileTarget, file_target, model_name
from model_profiling.models.options import input_spec
from model_profiling.models.scaffold import scaffold
from model_profiling.store.artifacts import ExportRecord
from model_profiling.store.run_directory import RunDirectory
from tests.conftest import QUICK, ROOT, kit, shared_home
from tests.helpers import warm
from tests.helpers.file_faults import CHANGED, FAULTS, REPLACED

STRANGER = """
import torch
from torch import nn
from parts import double


class StrangeNet(nn.Module):
    example_inputs = (torch.randn(1, 3, 16, 16),)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(double(torch.relu(self.conv(x))).mean((2, 3)))


class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(8, width)

    def forward(self, x):
        return self.linear(x)


def make_wide():
    return Wide(3)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Another test's neighbour of the same name, which this process may have imported.
    monkeypatch.delitem(sys.modules, "parts", raising=False)
    (tmp_path / "parts.py").write_text("def double(x):\n    return x * 2\n")
    path = tmp_path / "strange.py"
    path.write_text(STRANGER)
    return path


def test_example_inputs_by_name_are_taken_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "named.py"
    path.write_text(
        "import torch\n\n\nclass Named(torch.nn.Module):\n    def forward(self, x, mask=None):\n"
        "        return x if mask is None else x * mask\n\n    def get_example_inputs(self):\n"
        "        return {'x': torch.ones(2), 'mask': torch.zeros(2)}\n"
    )
    loaded = load_model(f"{path}:Named")
    assert loaded.call[0] == () and {*loaded.call[1]} == {"x", "mask"}


def test_two_commands_from_a_file_to_a_report(stranger: Path, tmp_path: Path) -> None:
    done = kit("export", "strange.py:StrangeNet", "--dtype", "fp32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pte = tmp_path / "out_strange_net" / "artifacts" / "strange_net_xnnpack_fp32.pte"
    assert str(pte.relative_to(tmp_path)) in done.stdout and "aten.mean.dim" in done.stdout
    done = kit("run", pte, "--runs", 10, "--html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mean" in done.stdout and "report.html" in done.stdout
    runs = next((tmp_path / "out_strange_net" / "runs").iterdir())
    metrics = json.loads((runs / "metrics.json").read_text())
    assert {agreement["verdict"] for agreement in metrics["agreements"]} == {"agrees"}
    assert "strange.py" in (runs / "analysis_summary.json").read_text()
    assert "strange_net" in (runs / "report.html").read_text() and "vs eager" in (runs / "report.md").read_text()


@pytest.mark.wide
def test_any_pte_runs_on_the_inputs_it_is_given(stranger: Path, tmp_path: Path) -> None:
    pte = export(
        ExportRequest("strange_net", tmp_path / "made", target=f"{stranger}:StrangeNet", dtype="fp32")
    ).paths.pte
    foreign = Path(shutil.copy(pte, tmp_path / "from_elsewhere.pte"))
    outputs = []
    for value, file in enumerate((tmp_path / "x.npy", tmp_path / "x.bin")):
        given = np.full((1, 3, 16, 16), value, dtype=np.float32)
        np.save(file, given) if file.suffix == ".npy" else given.tofile(file)
        home = tmp_path / f"run{value}"
        done = kit("run", foreign, "--runs", 4, "--inputs", file, "--output-root", home, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        directory = RunDirectory(home)
        name = next(iter(directory.manifest().experiments))
        outputs.append(next(directory.experiment(name).glob("*_output-0.bin")).read_bytes())
    assert len(set(outputs)) == 2
    (tmp_path / "x.bin").write_bytes(bytes(10))
    done = kit("run", foreign, "--inputs", tmp_path / "x.bin", cwd=tmp_path)
    assert done.returncode != 0 and "x.bin" in done.stderr and "Traceback" not in done.stderr
    done = kit("run", foreign, "--inputs", tmp_path / "nowhere.npy", cwd=tmp_path)
    assert done.returncode == 2 and "nowhere.npy" in done.stderr


def on_disk(request: ExportRequest) -> ExportRecord | None:
    result = cached(request)
    return result.record if result else None


def test_an_export_is_repeated_only_when_something_changed(stranger: Path, tmp_path: Path) -> None:
    request = ExportRequest("strange_net", tmp_path / "made", target=f"{stranger}:StrangeNet", dtype="fp32")
    assert cached(request) is None
    made = export(request)
    assert on_disk(request) == made.record
    helper, before = tmp_path / "parts.py", made.paths.pte.read_bytes()
    for file, changed in ((helper, b"def double(x):\n    return x * 3\n"), (made.paths.pte, before[:-1])):
        content = file.read_bytes()
        file.write_bytes(changed)
        assert cached(request) is None, file
        file.write_bytes(content)
        assert on_disk(request) == made.record
    assert cached(replace(request, seed=1)) is None and cached(replace(request, dtype="fp16")) is None
    done = kit("export", f"{stranger}:StrangeNet", "--dtype", "fp32", "--outdir", tmp_path / "made", cwd=tmp_path)
    assert "reused the existing export" in done.stderr and str(made.paths.pte) in done.stdout


def exported_files(home: Path) -> list[Path]:
    return [path for path in sorted(home.rglob("*")) if path.is_file() and path.name != ".lock"]


def test_an_export_with_a_damaged_file_is_not_reused(stranger: Path, tmp_path: Path) -> None:
    request = ExportRequest("strange_net", tmp_path / "made", target=f"{stranger}:StrangeNet", dtype="fp32")
    made = export(request)
    shutil.copytree(request.outdir, tmp_path / "pristine")
    for path in exported_files(request.outdir):
        for fault, damage in (CHANGED | REPLACED).items():
            damage(path)
            notes: list[str] = []
            listen_to_notes(notes.append)
            found = cached(request)
            # JSON is judged by what it says.
            reusable = path.suffix == ".json" and fault in ("longer", "a flipped bit")
            assert found is None or (reusable and found.record == made.record), (path, fault)
            assert any("has to be exported again" in note for note in notes) == (path.suffix != ".json"), (path, fault)
            shutil.rmtree(request.outdir)
            shutil.copytree(tmp_path / "pristine", request.outdir)
    assert on_disk(request) == made.record


@pytest.mark.wide
@pytest.mark.again
@pytest.mark.parametrize("fault", ["half", next(iter(REPLACED))])
def test_a_damaged_export_is_exported_again(fault: str, stranger: Path, tmp_path: Path) -> None:
    request = ExportRequest(
        "strange_net", tmp_path / "made", target=f"{stranger}:StrangeNet", save_graph=True, dtype="fp32"
    )
    paths = export(request).paths
    expected = {path: path.read_bytes() for path in exported_files(request.outdir) if path.suffix != ".json"}
    for path in exported_files(request.outdir):
        if path.suffix in (".json", ".pte"):
            FAULTS[fault](path)
            assert cached(request) is None
            export(request)
            assert cached(request) is not None
    assert paths.pte.read_bytes() == expected[paths.pte] and set(expected) <= set(exported_files(request.outdir))


def test_a_function_and_shapes_stand_in_for_arguments_and_inputs(stranger: Path) -> None:
    with pytest.raises(InputError, match="cannot be called without arguments") as caught:
        load_model(f"{stranger}:Wide")
    assert "def make()" in caught.value.hint
    with pytest.raises(InputError, match="no example inputs for make_wide") as caught:
        load_model(f"{stranger}:make_wide")
    assert "--input " in caught.value.hint
    loaded = load_model(f"{stranger}:make_wide", options=LoadOptions((input_spec((2, 8)),)))
    assert loaded.call[0][0].shape == (2, 8) and loaded.source == "strange.py:make_wide"


def test_a_file_is_read_before_torch_is_imported_and_its_mistakes_named(stranger: Path, tmp_path: Path) -> None:
    assert model_name(f"{stranger}:StrangeNet") == "strange_net"
    assert file_target("toy_cnn") is None
    with pytest.raises(InputError, match="does not define 'StrangNet'") as caught:
        file_target(f"{stranger}:StrangNet")
    assert "StrangeNet" in caught.value.hint
    with pytest.raises(InputError, match="has 2: StrangeNet, Wide"):
        file_target(str(stranger))
    (tmp_path / "broken.py").write_text("class X(\n")
    with pytest.raises(InputError, match=r"broken\.py, line 1 is not Python"):
        file_target(str(tmp_path / "broken.py"))
    (tmp_path / "deep.py").write_text(f"class X({'.'.join(['a'] * 900)}): pass\nclass Y(a.b.Module): pass\n")
    assert file_target(str(tmp_path / "deep.py")) == FileTarget(tmp_path / "deep.py", "Y")
    with pytest.raises(InputError, match="does not exist"):
        file_target(str(tmp_path / "missing.py:X"))
    done = kit("export", tmp_path / "missing.py:X", "--debug", cwd=tmp_path)
    assert "torch" not in done.stderr


FAILING = """
import torch
from torch import nn

class Branching(nn.Module):
    example_inputs = torch.ones(1, 4)
    def forward(self, x):
        if x.sum() > 0:                      # data-dependent
            return x
        return -x

class Masked(nn.Module):
    example_inputs = torch.randn(1, 4)
    def forward(self, x):
        return x[:, : int(x.sum().item())]   # shape from data

class Decomposing(nn.Module):
    example_inputs = torch.randn(4, 4)
    def forward(self, x):
        return torch.linalg.svd(x)[1]        # no such operator

class Inverting(nn.Module):
    example_inputs = torch.randn(4, 4)
    def forward(self, x):
        return torch.linalg.inv(x * 2)       # decomposed on the way

class Mixing(nn.Module):
    example_inputs = torch.randn(4, 4)
    def forward(self, x):
        return x @ torch.ones(4, 4)          # fp32 among fp16

@torch.library.custom_op("strange::twist", mutates_args=())
def twist(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0)

@twist.register_fake
def _(x):
    return torch.empty_like(x)

class Twisting(nn.Module):
    example_inputs = torch.randn(4, 4)
    def forward(self, x):
        return twist(x)                      # no kernel
"""


@pytest.mark.parametrize(
    ("cls", "dtype", "kind", "comment", "help_"),
    [
        ("Branching", "fp32", "control flow that depends on data", "data-dependent", "torch.where"),
        ("Masked", "fp32", "a shape that depends on data", "shape from data", "mask"),
        ("Decomposing", "fp32", r"operator aten\._linalg_svd.*outside ExecuTorch's set", "no such operator", "simpler"),
        ("Inverting", "fp32", r"operator aten\.linalg_inv_ex.*outside", "decomposed on the way", "simpler"),
        ("Inverting", "fp16", "an operator that fp16 does not have", "decomposed on the way", "--dtype fp32"),
        ("Mixing", "fp16", "dtypes that do not go together", "fp32 among fp16", "dtype=x.dtype"),
        ("Twisting", "fp32", r"operator strange::twist.*without a kernel", "no kernel", "PyTorch's own operators"),
    ],
)
def test_a_failing_export_names_the_kind_the_line_and_what_helps(
    tmp_path: Path, cls: str, dtype: str, kind: str, comment: str, help_: str
) -> None:
    path = tmp_path / "failing.py"
    path.write_text(FAILING)
    line = next(n for n, text in enumerate(FAILING.splitlines(), 1) if text.endswith(f"# {comment}"))
    with pytest.raises(RunError, match=kind) as caught:
        export(ExportRequest(cls.lower(), tmp_path / "out", dtype, target=f"{path}:{cls}"))
    assert f"failing.py:{line}" in caught.value.message
    assert help_ in caught.value.hint and "_export.log" in caught.value.hint


def test_check_says_what_stays_out_and_where_before_an_export(tmp_path: Path) -> None:
    done = kit("check", "toy_cnn", "--dtype", "fp32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 x aten.mean.dim: mean.dim only supports keepdim=True (at model_profiling/models/toy_cnn/model.py:" in (
        done.stdout
    )
    assert list(tmp_path.iterdir()) == []


def test_a_forecast_is_what_the_export_then_does(exported: dict[str, ExportResult], tmp_path: Path) -> None:
    from model_profiling.export.lower.delegation_preview import preview

    predicted = preview(ExportRequest("toy_cnn", tmp_path, dtype="fp32"), lambda stage: None).delegation
    assert predicted.not_delegated == exported["fp32"].record.delegation.not_delegated


@pytest.mark.wide
def test_a_scaffold_exports_runs_and_passes_its_own_test(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "model_profiling", tmp_path / "model_profiling", ignore=shutil.ignore_patterns("out_*"))
    shutil.copytree(ROOT / "sme2_kit", tmp_path / "sme2_kit")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tests").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), **QUICK}

    def own_kit(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(warm.python(shared_home())), "-m", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    made = own_kit("model_profiling", "new-model", "my_model")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "model_profiling" / "models" / "my_model" / "README.md").is_file()
    again = own_kit("model_profiling", "new-model", "my_model")
    assert again.returncode == 2 and "already" in again.stderr
    for command in made.stdout.splitlines()[-2:]:
        done = own_kit("model_profiling", *command.split()[1:])
        assert done.returncode == 0, done.stderr
    tested = own_kit("pytest", "-q", "tests")
    assert "3 passed" in tested.stdout, tested.stdout


@pytest.mark.parametrize("name", ["Bad", "../x", "class", "9lives", "my-model", "", "toy_cnn", "mv2", "zoo"])
def test_a_scaffold_refuses_names_that_are_taken_or_cannot_be(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # zoo is a file of the kit: taken only there.
    for place in (ROOT,) if name == "zoo" else (tmp_path, ROOT):
        before = sorted([*tmp_path.iterdir(), *(ROOT / "model_profiling" / "models").iterdir()])
        monkeypatch.chdir(place)
        with pytest.raises(InputError):
            scaffold(name)
        assert sorted([*tmp_path.iterdir(), *(ROOT / "model_profiling" / "models").iterdir()]) == before
