"""Whatever ExecuTorch from 1.5.0 on is installed: models are exported, run, traced and compared.

CI runs this file with the oldest release; with the newest, other tests hold the same in more detail.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_profiling.store.run_directory import RunDirectory
from model_profiling.upstream.reliance import FAILS_VARIABLE
from tests.conftest import QUICK, ROOT, TORCH, kit, needs, needs_emulator

pytestmark = [pytest.mark.wide, pytest.mark.again]
# On one worker, so that their programs are exported once; the others go where there is room (--dist loadgroup).
TOGETHER = pytest.mark.xdist_group("toy")


def done(*arguments: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints that succeeds."""
    ended = kit(*arguments, cwd=cwd, env={**QUICK, **(env or {})})
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with toy_cnn in fp32, fp16 and int8."""
    needs(TORCH, "torch")
    home = tmp_path_factory.mktemp("toy")
    for dtype in ("fp32", "fp16", "int8"):
        assert "agrees with eager" in done("export", "toy_cnn", "--dtype", dtype, cwd=home)
    return home


def program(home: Path, dtype: str) -> Path:
    return home / "out_toy_cnn" / "artifacts" / f"toy_cnn_xnnpack_{dtype}.pte"


@TOGETHER
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_a_program_runs_on_and_off_with_operators_lines_and_a_report(toy: Path, dtype: str) -> None:
    said = done("run", program(toy, dtype), "--output-root", toy / f"runs_{dtype}", "--html", cwd=toy)
    written = (toy / f"runs_{dtype}" / "report.md").read_text()
    assert "toy_cnn/model.py:" in written and "vs eager" in written
    assert (toy / f"runs_{dtype}" / "report.html").is_file()
    experiments = RunDirectory(toy / f"runs_{dtype}").manifest().experiments
    switched = "no accelerator for" not in said  # some CPUs have nothing to switch for fp32
    assert len(experiments) == 1 + switched and all(each.status == "ok" for each in experiments.values())


@TOGETHER
def test_kernels_are_traced_and_each_operator_has_its_own(toy: Path) -> None:
    needs_emulator()
    said = done("kernels", program(toy, "fp32"), "--output-root", toy / "kernels", cwd=toy)
    assert "sme2" in said and "unknown" not in said


@TOGETHER
def test_numerics_finds_layers_and_a_rewrite_is_applied(toy: Path) -> None:
    assert "dB" in done("numerics", "toy_cnn", "--dtype", "int8", cwd=toy)
    rewrites = ("--rewrite", "layout", "--rewrite", "keepdim")
    assert "agrees" in done("export", "toy_cnn", *rewrites, "--dtype", "fp32", "--outdir", toy / "layout", cwd=toy)


def test_a_language_model_is_exported_and_run_in_its_phases(tmp_path: Path) -> None:
    needs(TORCH, "torch")
    model = f"{ROOT / 'tests' / 'helpers' / 'tiny_llm.py'}:TinyLlm"
    done("export", model, "--dtype", "fp32", "--outdir", tmp_path / "llm", cwd=tmp_path)
    (pte,) = (tmp_path / "llm").glob("*.pte")
    said = done("run", pte, "--output-root", tmp_path / "run", "--prefill", 16, "--decode", 4, cwd=tmp_path)
    assert "pp16" in said and "tg4" in said


@TOGETHER
def test_tune_measures_variants(toy: Path) -> None:
    assert "baseline" in done("tune", "toy_cnn", "--dtype", "fp32", "--outdir", toy / "tuned", cwd=toy)


@pytest.fixture
def newer(tmp_path: Path) -> dict[str, str]:
    """An environment in which the installed ExecuTorch says that it is a release of the future."""
    info = tmp_path / "future" / "executorch-9.9.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: executorch\nVersion: 9.9.0\n")
    (info / "RECORD").write_text("")
    return {"PYTHONPATH": f"{info.parent}:{ROOT}"}


def test_a_release_that_nobody_has_tried_works_in_stock_ways_and_says_so(tmp_path: Path, newer: dict[str, str]) -> None:
    needs(TORCH, "torch")
    # Not forked from a process that has asked for the version.
    command = [sys.executable, "-m", "model_profiling", "profile", "toy_cnn", "--dtype", "fp32"]
    environment = {**os.environ, **QUICK, **newer}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (report,) = (tmp_path / "out_toy_cnn" / "runs").rglob("report.html")
    said = report.read_text()
    assert "9.9.0 is not a version that this was proven with" in said and "stock" in said
    assert "vs eager" in said and "model.py:" in said


def test_without_anything_private_export_run_and_report_still_work(tmp_path: Path) -> None:
    needs(TORCH, "torch")
    env = {FAILS_VARIABLE: "all"}
    assert "agrees with eager" in done("export", "toy_cnn", "--dtype", "int8", cwd=tmp_path, env=env)
    said = done("run", program(tmp_path, "int8"), "--html", cwd=tmp_path, env=env)
    assert "features cannot be switched off" in said
    (report,) = (tmp_path / "out_toy_cnn" / "runs").rglob("report.md")
    (operators,) = report.parent.rglob("*_ops_stats.csv")
    assert "mean.out" in operators.read_text() and "model.py:" not in report.read_text()
    assert "vs eager" in report.read_text()
