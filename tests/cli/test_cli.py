"""The command line: quick to start, kind when things go wrong, plain in a pipe."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from model_profiling.cli.main import COMMANDS
from tests.conftest import ROOT, kit
from tests.helpers.kit_here import kit_here

pytestmark = pytest.mark.fast


def test_what_does_not_export_imports_nothing_heavy() -> None:
    """One process for all of them: what one imports, it has imported after that one."""
    calls = [["models"], ["--help"], *([command, "--help"] for command in COMMANDS)]
    code = f"""
import contextlib, sys
from model_profiling.cli.main import main
for arguments in {calls!r}:
    with contextlib.suppress(SystemExit):
        main(arguments)
    heavy = {{"torch", "numpy", "pandas"}} & set(sys.modules)
    assert not heavy, (arguments, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_help_is_the_same_whatever_argparse_would_paint() -> None:
    plain, painted = (kit_here("run", "--help", env={"FORCE_COLOR": value}) for value in ("", "1"))
    assert plain.returncode == painted.returncode == 0 and plain.stdout.startswith("sme2-kit run [MODEL.pte]")
    assert painted.stdout == plain.stdout and "\x1b" not in plain.stdout


# What an analysis of a dump must not load: each costs a part of its time, and it needs none of them.
NOT_FOR_A_DUMP = (
    "asyncio", "csv", "dataclasses", "difflib", "hashlib", "http", "jinja2", "json", "multiprocessing",
    "numpy.ma", "random", "secrets", "shutil", "ssl", "statistics", "subprocess", "tempfile",
    "threading", "zipfile", "torch", "executorch", "pandas", "scipy", "vl_convert",
    "model_profiling.formats.etrecord", "model_profiling.export", "model_profiling.pipeline",
    "model_profiling.platforms", "model_profiling.formats.pte", "model_profiling.report.charts",
    "model_profiling.report.html",
    "model_profiling.runner.build", "model_profiling.runner.session",
)  # fmt: skip


@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["text", "json"])
def test_analysing_a_dump_loads_only_what_that_takes(extra: list[str]) -> None:
    dump = ROOT / "tests" / "data" / "etdump" / "two_methods.etdump"
    code = f"""
import sys
import argparse, ctypes, msgspec
argparse.ArgumentParser()  # in Python 3.10 msgspec loads some of these, in 3.14 argparse and numpy's ctypes
from model_profiling.cli.main import main
before = set(sys.modules)
assert main({["analyze", str(dump), *extra]!r}) == 0
loaded = set(sys.modules) - before
print("loaded", sorted(set({NOT_FOR_A_DUMP!r}) & loaded))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.splitlines()[-1:] == ["loaded []"], (done.stdout[-300:], done.stderr)


def test_numpy_starts_without_threads_and_leaves_no_trace_of_that() -> None:
    code = """
import os
from model_profiling.cli.run_argument import start_numpy
os.environ.pop("OPENBLAS_NUM_THREADS", None)
start_numpy()
assert "OPENBLAS_NUM_THREADS" not in os.environ
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_reading_a_run_needs_neither_torch_nor_executorch(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["torch"] = sys.modules["executorch"] = None
import model_profiling.analysis.compare.metrics, model_profiling.analysis.run.validation
import model_profiling.report.files.artifact_files
import model_profiling.formats.etdump, model_profiling.pipeline.pipeline, model_profiling.platforms.process_platform
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_failures_are_two_lines_and_an_exit_code_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.pte").write_bytes(b"junk that is no program")
    cases: list[tuple[list[object], int, str]] = [
        (["run"], 2, "give a .pte or --config"),
        (["run", tmp_path / "none.pte"], 2, "does not exist"),
        (["run", tmp_path / "a.pte", "--output-root", tmp_path / "out"], 2, "is not a .pte"),
        (["run", "--config", tmp_path / "none.json"], 2, "does not exist"),
        (["export", "--model", "toy_cnm"], 2, "toy_cnn"),
        (["build", "--target", "vax"], 2, "unknown runner target"),
        (["analyze", tmp_path / "none"], 2, "there is no run directory or .etdump at"),
    ]
    for arguments, code, words in cases:
        done = kit_here(*arguments, cwd=tmp_path)
        assert (done.returncode, words in done.stderr) == (code, True), (arguments, done)
        assert "Traceback" not in done.stderr
        assert "\n  fix: " in done.stderr
        assert "Traceback" in kit_here(*arguments, "--debug", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("arguments", "said", "fix"),
    [
        (["rnu"], "there is no command 'rnu'", "Did you mean `sme2-kit run`?"),
        (["zzzz"], "there is no command 'zzzz'", "`sme2-kit --help` lists them."),
        (["run", "a.pte", "--bogus"], "unknown arguments: --bogus", "See `sme2-kit run --help`."),
        (["graph"], "the following arguments are required: RUN", "See `sme2-kit graph --help`."),
    ],
)
def test_wrong_use_is_two_lines_and_names_the_nearest(arguments: list[str], said: str, fix: str) -> None:
    done = kit_here(*arguments)
    assert (done.returncode, done.stderr) == (2, f"error: {said}\n  fix: {fix}\n")


def test_doctor_says_what_is_there_and_what_is_missing() -> None:
    done = kit_here("doctor", "--json")
    checks = {check["what"]: check for check in json.loads(done.stdout)}
    missing = [check for check in checks.values() if check["essential"] and not check["ok"]]
    assert done.returncode == (3 if missing else 0), done.stderr  # without torch nothing is exported
    assert checks["CPU features"]["ok"]
    assert "on/off switches" in checks["CPU features"]["found"]
    for check in checks.values():
        assert check["ok"] or check["fix"], check


def test_no_compiler_is_an_environment_error_with_its_fix(tmp_path: Path) -> None:
    done = kit("build", env={"PATH": str(tmp_path), "SME2_KIT_CACHE": str(tmp_path)})
    assert done.returncode == 3
    assert "no C++ compiler found" in done.stderr


def test_output_to_a_pipe_has_no_escape_codes() -> None:
    for arguments in (["doctor"], ["models"], ["--help"]):
        assert "\033" not in kit_here(*arguments).stdout


def test_the_doors_of_the_learning_path_open() -> None:
    for door in ("linux_pipeline", "mac_pipeline", "run_quick_test", "validate_results"):
        script = ROOT / "model_profiling" / "scripts" / f"{door}.py"
        # From elsewhere and without the package installed: only its dependencies are there.
        done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("sme2-kit ")
