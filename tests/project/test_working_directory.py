"""No code comes from the working directory: neither a module nor a program, in no process that the kit starts."""

import ast
import importlib.util
import inspect
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.base import code_path
from model_profiling.base.code_path import leave_working_directory_out, python_command, safe_path
from model_profiling.report.drawing import drawing_process
from model_profiling.report.drawing.drawing_process import DrawingPool
from tests.conftest import QUICK, ROOT, needs
from tests.helpers.waiting import LONGEST_S

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
PACKAGES = ("model_profiling", "sme2_kit")
PROGRAMS = ("adb", "c++", "g++", "clang++", "cc", "git", "ssh", "qemu-aarch64", "aarch64-linux-gnu-g++")
# What a folder of somebody else's may hold: a module for every name that anything could import.
OPTIONAL = ("pip", "ziglang", "model_explorer", "matplotlib", "ray", "torch", "vl_convert", "pyarrow", "pandas", "yaml")
_INSTALLED = {entry.name.split(".")[0] for folder in site.getsitepackages() for entry in Path(folder).iterdir()}
MODULES = {*sys.stdlib_module_names, *_INSTALLED, *OPTIONAL, "sitecustomize", "usercustomize"}
MODULES -= {"__main__", "__future__", *PACKAGES}
TRAP = "import os\nos.close(os.open({marker!r}, os.O_CREAT | os.O_WRONLY))\n"


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory among traps; what is run of them leaves a file in `sprung` beside it."""
    home = tmp_path_factory.mktemp("traps") / "here"
    shutil.copytree(KNOWN_GOOD, home / "run")
    sprung = home.with_name("sprung")
    sprung.mkdir()
    for name in MODULES:
        trap = TRAP.format(marker=str(sprung / name))
        if name in OPTIONAL:
            (home / name).mkdir()
            for file in ("__init__.py", "__main__.py"):
                (home / name / file).write_text(trap)
        elif name.isidentifier():
            (home / f"{name}.py").write_text(trap)
    for name in (*PROGRAMS, "model-explorer"):
        (home / name).write_text(f"#!/bin/sh\ntouch '{sprung / name}'\n")
        (home / name).chmod(0o755)
    return home


@pytest.fixture
def sprung(trapped: Path) -> Iterator[Path]:
    found = trapped.with_name("sprung")
    yield found
    left = sorted(path.name for path in found.iterdir())
    for path in found.iterdir():
        path.unlink()
    assert left == []


def installed(home: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """`sme2-kit`, as pip installs it."""
    script = home.parent / "bin" / "sme2-kit"
    script.parent.mkdir(exist_ok=True)
    script.write_text("import sys\nfrom model_profiling.cli.process import enter\nsys.exit(enter())\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK, **environment}
    return subprocess.run(
        [sys.executable, str(script), *words],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"],
        ["analyze", "run"],
        ["graph", "run", "--output", "../graph.html"],
        ["report", "run", "--output", "../report.md"],
        # Where it is installed it would show the run until somebody stops it.
        *([] if importlib.util.find_spec("model_explorer") else [["report", "run", "--model-explorer", "--open"]]),
        # It compiles where Zig is installed.
        pytest.param(["build", "--target", "macos-arm64"], marks=pytest.mark.wide),
        ["history", "list", "--root", "."],
        ["export", "no_such_model"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_runs_nothing_of_the_folder_it_is_called_in(words: list[str], trapped: Path, sprung: Path) -> None:
    """Not even where PATH names it."""
    done = installed(trapped, *words, PATH=f".::./:{os.environ['PATH']}:.::./")
    assert done.returncode in (0, 2, 3) and "Traceback" not in done.stderr, done.stderr


def test_a_module_is_run_as_by_python_m_but_not_from_here(trapped: Path, sprung: Path) -> None:
    modules = {"json.tool": "usage: "} | ({"pip": "Usage:"} if importlib.util.find_spec("pip") is not None else {})
    for name, said in modules.items():
        command = python_command(name, "--help")
        done = subprocess.run(command, cwd=trapped, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout.lstrip().startswith(said), done.stderr
    done = subprocess.run(python_command("ziglang_of_nobody"), cwd=trapped, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "No module named" in done.stderr


def test_pictures_are_drawn_without_modules_of_the_folder(
    trapped: Path, sprung: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(importlib.util.find_spec("vl_convert") is not None, "vl_convert")
    monkeypatch.setattr(drawing_process, "_started", inspect.unwrap(drawing_process._started))
    monkeypatch.chdir(trapped)
    # As in a notebook.
    monkeypatch.setattr(sys, "path", [*sys.path, "", str(trapped)])
    spec = {"mark": "bar", "data": {"values": [{"a": 1}]}, "encoding": {"x": {"field": "a"}}}
    with DrawingPool() as artist:
        assert artist.svg(spec).result().startswith("<svg")


def test_python_m_is_the_same_from_the_moment_the_kit_has_a_say(tmp_path: Path) -> None:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    for name in ["argparse", "json", "msgspec", "numpy", "pathlib", "random", "subprocess", "tempfile", "torch"]:
        (tmp_path / f"{name}.py").write_text(TRAP.format(marker=str(tmp_path / f"{name}.sprung")))
    command = [sys.executable, "-m", "model_profiling", "analyze", "run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not list(tmp_path.glob("*.sprung")), done.stderr


def test_a_folder_that_pythonpath_names_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert str(tmp_path) not in safe_path()
    for named in (str(tmp_path), "."):
        monkeypatch.setenv("PYTHONPATH", named)
        assert str(tmp_path) in safe_path()


places = st.lists(st.sampled_from(["", ".", "./", "sub", "/usr/bin", "/here", "..", "~"]), max_size=6)


@settings(max_examples=40)
@given(path=places, programs=places, named=places)
def test_afterwards_no_list_of_places_depends_on_where_a_process_is(
    path: list[str], programs: list[str], named: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(path))
        patch.setenv("PATH", os.pathsep.join(programs))
        patch.setenv("PYTHONPATH", os.pathsep.join(named))
        here = str(Path.cwd())
        leave_working_directory_out()
        for name in ("PATH", "PYTHONPATH"):
            entries = os.environ.get(name, "/").split(os.pathsep)
            assert all(Path(entry).is_absolute() for entry in entries)
        assert here not in os.environ.get("PATH", "").split(os.pathsep)
        assert all(Path(entry).is_absolute() for entry in sys.path)
        assert here not in sys.path or here == code_path._KIT or {".", "./"} & set(named)
        # The kit can be imported, whatever else.
        assert str(ROOT) in sys.path


def test_python_is_started_in_one_place() -> None:
    texts = {path: path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    named = [path for path, text in texts.items() if re.search(r"sys\._?\w*executable|multiprocessing", text)]
    found = [
        path.relative_to(ROOT).as_posix()
        for path in named
        for node in ast.walk(ast.parse(texts[path]))
        if (isinstance(node, ast.Attribute) and "executable" in node.attr)
        or (isinstance(node, ast.Import | ast.ImportFrom) and "multiprocessing" in ast.unparse(node))
    ]
    assert set(found) == {"model_profiling/base/code_path.py"}


def test_scripts_start_python_without_the_folder_they_are_called_in() -> None:
    for path in (ROOT / "model_profiling").rglob("*.sh"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"python3?\}?\"? +-", line):
                assert " -I " in line, (path, line)
