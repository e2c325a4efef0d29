"""With --json a failure is JSON, too: one object on standard output, from every command, whatever went wrong."""

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from model_profiling.base.errors import InputError, KitError, RunError
from model_profiling.cli.main import COMMANDS, make_parser
from model_profiling.platforms.platform_table import local_name
from tests.helpers.kit_here import kit_here

# What makes each command fail by itself, before it does anything.
FAILING: dict[str, list[str]] = {
    "profile": ["no_such_model"],
    "check": ["no_such_model"],
    "export": ["no_such_model"],
    "run": ["none.pte"],
    "runs": ["nowhere"],
    "history": ["list", "--root", "nowhere"],
    "kernels": ["none.pte"],
    "analyze": ["nowhere"],
    "compare": ["nowhere", "elsewhere"],
    "forecast": ["nowhere", "elsewhere"],
    "validate-forecast": ["--models", "no_such_model"],
    "graph": ["nowhere"],
    "tune": ["no_such_model"],
    "sweep": ["nowhere.json"],
    "numerics": ["no_such_model"],
    "validate": ["--results", "nowhere@label", "--no-such-flag"],
    "models": ["--no-such-flag"],
    "doctor": ["--no-such-flag"],
    "build": ["--target", "vax"],
    "validate-skill": ["no_such_skill"],
    "roofs": ["show", "Unheard Of"],
    "targets": ["unheard_of"],
}
COUNTING = ("--runs", "--threads", "--launches", "--budget")


(_PARSERS,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))


def having(flag: str) -> list[str]:
    """The commands that take a flag."""
    return [name for name, below in _PARSERS.choices.items() if flag in below._option_string_actions]


def failed(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = kit_here(*arguments)
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", FAILING)
def test_every_command_with_json_says_in_json_why_it_failed(command: str, here: Path) -> None:
    for arguments in (FAILING[command], ["--no-such-flag"]):
        code, said, lines = failed(command, *arguments, "--json")
        error = said["error"]
        assert set(said) == {"error"} and set(error) == {"message", "hint", "exit_code"}
        assert code == error["exit_code"] == 2
        # The same for who reads along.
        assert lines.startswith(f"error: {error['message']}\n  fix: {error['hint']}\n")
    assert kit_here(command, *FAILING[command]).returncode == 2
    assert not list(here.iterdir())


@pytest.mark.parametrize("platform", [local_name(), "emulator", "android", "ssh"])
@pytest.mark.parametrize("command", [name for name in having("--platform") if name in having("--json")])
def test_what_is_wrong_with_the_input_is_said_before_what_the_machine_lacks(
    command: str, platform: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No compiler, no emulator, no adb and no ssh, and a cache in which no runner can be."""
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.setenv("SME2_KIT_CACHE", str(here / "cache"))
    given = ["none.pte", "neither.pte"] if command == "compare" else FAILING[command]
    host = ["--host", "nowhere"] if platform == "ssh" else []
    code, said, _ = failed(command, *given, "--platform", platform, *host, "--json")
    assert (code, said["error"]["exit_code"]) == (2, 2), said
    assert not list(here.iterdir())


def test_a_command_that_does_not_exist_and_an_abbreviated_flag_fail_as_json() -> None:
    assert failed("anlyze", "--json")[1]["error"]["hint"] == "Did you mean `sme2-kit analyze`?"
    assert failed("analyze", "nowhere", "--js")[0] == 2
    assert failed("graph", "--json")[1]["error"]["message"].endswith("required: RUN")
    assert failed("kernels", "--json")[1]["error"]["message"] == "give a MODEL.pte, or --make-table"


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (RunError("the run failed", "Try again."), 4),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 3),
        (OSError(28, "No space left on device", "/here"), 3),
        (ModuleNotFoundError("no", name="torch"), 3),
        (ZeroDivisionError("by zero"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_whatever_goes_wrong_inside_a_command_is_one_object(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(importlib.import_module("model_profiling.cli.models"), "run", run)
    found, said, _ = failed("models", "--json")
    assert found == said["error"]["exit_code"] == code
    if isinstance(raised, KitError):
        assert said["error"]["message"] == raised.message and said["error"]["hint"] == raised.hint


def test_a_failure_after_the_result_leaves_the_result_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    from model_profiling.base.printing import say_json

    def run(args: argparse.Namespace) -> int:
        say_json({"result": 1})
        raise InputError("a gate failed", "Look at it.")

    monkeypatch.setattr(importlib.import_module("model_profiling.cli.models"), "run", run)
    code, said, lines = failed("models", "--json")
    assert (code, said) == (2, {"result": 1}) and "error: a gate failed" in lines


def test_all_of_them_are_covered() -> None:
    assert sorted(FAILING) == sorted([*having("--json"), "runs", "validate-skill"])
    assert set(having("--json")) < set(COMMANDS)


@pytest.mark.parametrize("command", having("--runs"))
def test_every_command_that_counts_refuses_less_than_one(command: str, here: Path) -> None:
    for name in ("a.pte", "b.pte"):
        (here / name).write_bytes(b"\0\0\0\0ET12")
    given = {"compare": ["a.pte", "b.pte"], "run": ["a.pte"], "roofs": [], "history": ["top"]}.get(command, ["toy_cnn"])
    for flag in (flag for flag in COUNTING if command in having(flag)):
        for value in ("0", "-1"):
            done = kit_here(command, *given, f"{flag}={value}")
            assert done.returncode == 2 and done.stderr.startswith(f"error: {flag} must be "), done
    # Nothing was begun.
    assert {path.name for path in here.iterdir()} == {"a.pte", "b.pte"}


@pytest.mark.parametrize("name", ["runs", "threads", "launches", "budget_s"])
def test_the_api_refuses_them_before_it_exports(name: str) -> None:
    import sme2_kit

    measuring = (
        lambda given: sme2_kit.profile("toy_cnn", **given),
        lambda given: sme2_kit.tune("toy_cnn", **given),
        lambda given: sme2_kit.run("a.pte", **given),
        lambda given: sme2_kit.compare("a.pte", "b.pte", **given),
    )
    for call in measuring:
        with pytest.raises(InputError, match=r"must be (at least 1|a number of seconds above 0), not 0"):
            call({name: 0})
