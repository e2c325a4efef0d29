"""Ctrl-C and SIGTERM, at any moment: two lines, the exit code that shells have for it, and nobody is left behind."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import QUICK, ROOT, TORCH, needs, processes_naming
from tests.helpers.waiting import LONGEST_S, until

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def start(home: Path, *words: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), **QUICK, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(process: "subprocess.Popen[str]", number: signal.Signals, times: int = 1) -> str:
    """What it says of its end, which must be in order."""
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.02 * (times - 1))
    _, said = process.communicate(timeout=LONGEST_S)
    assert process.returncode == CODES[number], said
    assert "Traceback" not in said and "KeyboardInterrupt" not in said
    assert said.count("error: interrupted") == 1, said
    return said


# A command whose import is the moment: at the import of the module that is named, it waits to be interrupted.
_AT = """import sys, time
class Waiting:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.stdout.write("here\\n")
            sys.stdout.flush()
            # A signal between the last look at signals and a sleep would be seen after the sleep.
            for _ in range(6000):
                time.sleep(0.01)
sys.meta_path.insert(0, Waiting())
sys.argv = ["sme2-kit", *{words!r}]
from model_profiling.cli.process import enter
enter()
"""
MOMENTS = {
    "before the command line is read": "model_profiling.cli.main",
    "while the command is loaded": "model_profiling.cli.analyze",
    "while a library is loaded": "numpy",
    "inside a library": "numpy.linalg",
    "while it works": "model_profiling.report.terminal",
}


@pytest.mark.parametrize(
    ("moment", "number"), [*((moment, signal.SIGINT) for moment in MOMENTS), ("while it works", signal.SIGTERM)]
)
def test_an_interruption_is_two_lines_at_every_moment(moment: str, number: signal.Signals, tmp_path: Path) -> None:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    process = start(tmp_path, "-c", _AT.format(module=MOMENTS[moment], words=["analyze", "run"]))
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    assert len(interrupted(process, number).splitlines()) <= 2


_IN = """import os, signal, sys, time
from model_profiling.cli import main
from model_profiling.cli.process import enter

class Ending:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

def command(words):
    def run():
        ending = Ending()
        del ending
        time.sleep(60)
    return main.guarded(run, words)

main.main = command
enter()
"""


def test_an_interruption_that_python_drops_comes_again(tmp_path: Path) -> None:
    process = start(tmp_path, "-c", _IN)
    _, said = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, said.count("error: interrupted"), "Traceback" in said) == (130, 1, False), said


def test_who_is_impatient_gets_no_traceback(tmp_path: Path) -> None:
    shutil.copytree(KNOWN_GOOD, tmp_path / "run")
    process = start(tmp_path, "-c", _AT.format(module="numpy", words=["analyze", "run"]))
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    interrupted(process, signal.SIGINT, times=4)


_STUCK = """import time
from model_profiling.cli.process import listen, interrupt
from model_profiling.models.user_file import contained
listen(interrupt)
with contained():
    {loop}
"""
# What it says comes from within the loop: no Python code that could hear a signal runs after it.
_C_LOOP = r"import itertools, os; sum(itertools.chain(map(os.write, [1], [b'here\n']), iter(int, 1)))"
_CAUGHT = """while True:
        try:
            print("here", flush=True)
            time.sleep(0.5)
        except BaseException:
            pass"""


@pytest.mark.parametrize(
    ("loop", "code"),
    [(_C_LOOP, -signal.SIGINT), (_CAUGHT, 130)],
    ids=["C", "caught"],
)
def test_a_second_ctrl_c_ends_a_model_that_does_not_hear_the_first(loop: str, code: int, tmp_path: Path) -> None:
    """A loop in C never looks at signals: the system ends it, which shells report as 130, too."""
    needs(TORCH, "torch")
    process = start(tmp_path, "-c", _STUCK.format(loop=loop))
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    for _ in range(2):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(1.1)
    assert process.wait(timeout=LONGEST_S) == code


def test_pictures_that_are_being_drawn_leave_nobody_behind(tmp_path: Path) -> None:
    home = tmp_path / "drawing-is-interrupted"
    shutil.copytree(KNOWN_GOOD, home / "run")
    # The processes that draw have it in their path.
    process = start(home, "-m", "model_profiling", "report", "run", PYTHONPATH=f"{ROOT}{os.pathsep}{home}/mark")
    until(lambda: len(processes_naming(f"{home}/mark")) > 0 or process.poll() is not None)
    interrupted(process, signal.SIGTERM)
    until(lambda: not processes_naming(f"{home}/mark"))


@pytest.mark.parametrize("number", CODES)
def test_a_compiler_ends_with_all_that_it_started(number: signal.Signals, tmp_path: Path) -> None:
    from model_profiling.base.errors import KitError
    from model_profiling.runner.sdk import installed_sdk

    try:
        installed_sdk()
    except KitError:
        needs(False, "executorch")
    compiler = tmp_path / "slow-c++"
    compiler.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo slow 1.0 && exit\nsh -c 'sleep 300; : {tmp_path}/part-of-it'\n"
    )
    compiler.chmod(0o755)
    cache = {"CXX": shlex.quote(str(compiler)), "SME2_KIT_CACHE": str(tmp_path / "cache")}
    process = start(tmp_path, "-m", "model_profiling", "build", **cache)
    until(lambda: processes_naming(f"{tmp_path}/part-of-it") or process.poll() is not None)
    interrupted(process, number)
    until(lambda: not processes_naming(f"{tmp_path}/part-of-it"))


def test_a_server_for_assistants_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    import importlib.util

    needs(importlib.util.find_spec("mcp") is not None, "mcp")
    process = start(tmp_path, "-c", _AT.format(module="mcp.server", words=["mcp"]))
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    interrupted(process, signal.SIGTERM)
