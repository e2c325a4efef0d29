"""The workflows for GitHub: well formed, their shell parses, and what they name exists. Gates run the users' one."""

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.helpers import durations

pytestmark = pytest.mark.fast

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def _content(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text())
    return content


def _scripts(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the shell of every step, GitHub's own expressions filled in."""
    for job in _content(path)["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield step["name"], re.sub(r"\$\{\{.*?\}\}", "x", step["run"])


def test_there_is_one_for_the_project_and_one_to_copy() -> None:
    assert [path.name for path in WORKFLOWS] == ["performance.yml", "tests.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_valid_and_its_shell_parses(path: Path) -> None:
    workflow = _content(path)
    # YAML reads the key `on` as true.
    assert {"name", True, "jobs", "permissions"} <= set(workflow)
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["steps"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "run" in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
        used = set(re.findall(r"matrix\.(\w+)", str(job)))
        assert used == set(job.get("strategy", {}).get("matrix", {}))
    for _, script in _scripts(path):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_calls_exists(path: Path) -> None:
    for name, script in _scripts(path):
        for line in script.splitlines():
            for target in re.findall(r"\bmake (?:-C \S+ )?([\w-]+)", line):
                # A dry run: make knows the target and everything it needs.
                done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
                assert done.returncode == 0, (name, done.stderr)
        first = shlex.split(script)[0]
        if first.startswith("."):
            assert os.access(ROOT / first, os.X_OK), name


def test_the_projects_own_covers_every_python_and_machine_that_the_package_claims() -> None:
    jobs = _content(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    described = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r'Python :: (3\.\d+)"', described) == VERSIONS
    assert 'requires-python = ">=3.10,<3.15"' in described
    for job in ("linux", "macos"):
        assert jobs[job]["strategy"]["matrix"]["python"] == VERSIONS
    assert jobs["linux"]["strategy"]["matrix"]["machine"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert jobs["macos"]["runs-on"].startswith("macos")


def test_the_step_that_trusts_the_checkout_works(tmp_path: Path) -> None:
    scripts = dict(_scripts(ROOT / ".github" / "workflows" / "tests.yml"))
    environment = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["bash", "-ec", scripts["Trust the checkout"]], cwd=tmp_path, env=environment, check=True)
    assert str(tmp_path) in (tmp_path / ".gitconfig").read_text()


def _selected(*goals: str) -> list[str]:
    """The marks that `make goals…` asks pytest for."""
    # By themselves: make hands what it was called with to all that it starts.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "AGAIN")
    }
    command = ["make", "-n", *goals]
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return re.findall(r'pytest -m "([^"]+)"', said)


def test_ci_runs_every_kind_of_test() -> None:
    """What `make test` leaves out by its mark is run by another target, once; CI leaves out only what repeats."""
    ci = (ROOT / ".ci" / "run").read_text()
    assert "make lint\n" in ci and "make test test-wide\n" in ci and "make test-models " in ci
    assert "make test-measurements\n" in ci
    assert _selected("test-models") == ["models"]
    measured = _selected("test-measurements")
    for tests in (_selected("test", "test-wide"), [*_selected("test"), *_selected("test-wide")]):
        sessions = [*tests, *measured]
        for wide, measures in itertools.product((False, True), repeat=2):
            marks = {"wide": wide, "measures": measures, "models": False, "again": False}
            assert sum(eval(session, {}, marks) for session in sessions) == 1, (marks, sessions)
    for again, wide in itertools.product((False, True), repeat=2):
        marks = {"wide": wide, "measures": False, "models": False, "again": again}
        assert any(eval(session, {}, marks) for session in _selected("test", "test-wide")) is not again
        assert any(eval(session, {}, marks) for session in _selected("test", "test-wide", "AGAIN=yes"))
    large = {"wide": False, "measures": False, "models": True}
    assert not any(eval(session, {}, large) for session in _selected("test"))


def test_no_test_has_a_second_chance() -> None:
    """What fails beside others and passes alone is a bug, and is not to be hidden."""
    for path in ("Makefile", ".ci/run", "pyproject.toml", ".github/workflows/tests.yml"):
        assert not re.search(r"last-failed|--lf\b|reruns?\b|flaky", (ROOT / path).read_text()), path


def test_a_check_before_a_commit_takes_what_is_marked_fast() -> None:
    (chosen,) = _selected("check")
    marks = {"fast": True, "builds": False, "wide": False, "measures": False}
    assert eval(chosen, {}, marks)
    for mark in marks:
        assert not eval(chosen, {}, {**marks, mark: not marks[mark]}), mark


def test_a_session_begins_with_the_files_that_take_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.json")
    durations.FILE.write_text('{"tests/gone.py": 9, "tests/b.py": 3}')
    took = {"tests/a.py::one": 4.0, "tests/a.py::two": 3.4, "tests/b.py::one": 0.2, "tests/c.py::one": 2.6}
    durations.record(
        [pytest.TestReport(n, ("", 0, ""), {}, "passed", None, "call", duration=s) for n, s in took.items()]
    )
    assert durations.recorded() == {"tests/gone.py": 9, "tests/a.py": 7, "tests/c.py": 3}
    items: Any = [SimpleNamespace(nodeid=f"tests/{name}.py::test") for name in "bcda"]
    durations.longest_first(items)
    assert [item.nodeid[6] for item in items] == ["a", "c", "b", "d"]
