"""Processes are started in one place: what cannot be started says so, and none outlives the process that started it."""

import ast
import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_profiling.base import on_progress, programs
from model_profiling.base.errors import KitError
from model_profiling.base.file_locks import folder_held
from model_profiling.base.on_progress import listen_to_notes, long_step
from model_profiling.base.programs import StartError, TimedOutError, run_program, start
from tests.conftest import ROOT, needs
from tests.helpers.waiting import LONGEST_S

# What starts a process, or has another one do so, by the module that it is of.
_STARTS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp", "startfile"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "anyio": {"open_process", "run_process"},
    "pty": {"spawn", "fork"},
    "futures": {"ProcessPoolExecutor"},
}
_WHOLE = ("multiprocessing", "pexpect")
_SUSPECT = (
    r"subprocess|\bos\b.*(fork|exec|spawn|system|popen|startfile)|asyncio|anyio|\bpty\b|futures|multiproc|pexpect"
)
_ALLOWED = {
    "base/programs.py: subprocess.Popen": "the one place",
    "base/code_path.py: os.execv": "becomes the program: nothing is started beside it",
}


def _starts(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    # To parse nine hundred files takes seconds.
    suspect = re.search(_SUSPECT, text)
    for node in ast.walk(ast.parse(text)) if suspect else ():
        if isinstance(node, ast.Attribute):
            module = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in _STARTS.get(module, ()) or (module == "os" and node.attr.startswith(("exec", "spawn"))):
                yield f"{module}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").rpartition(".")[2]
            yield from (f"{module}.{name.name}" for name in node.names if name.name in _STARTS.get(module, ()))
            yield from (name for name in _WHOLE if (node.module or "").split(".")[0] == name)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in _WHOLE)


def test_processes_are_started_in_one_place() -> None:
    found = set()
    for package in (ROOT / "model_profiling", ROOT / "sme2_kit"):
        for path in package.rglob("*.py"):
            # Types of what was started elsewhere are no start, and neither is what is raised.
            found |= {f"{path.relative_to(package).as_posix()}: {call}" for call in _starts(path)}
    assert found == set(_ALLOWED)


def test_locks_are_waited_for_in_one_place() -> None:
    """Whoever waits elsewhere would wait in silence."""
    waits = set()
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "model_profiling").rglob("*.py")}
    for path in [path for path, text in texts.items() if re.search(r"flock|lockf|try_lock", text)]:
        for node in ast.walk(ast.parse(texts[path])):
            call = ast.unparse(node) if isinstance(node, ast.Call) else ""
            if call.startswith(("fcntl.flock(", "fcntl.lockf(", "try_lock(")) and "LOCK_NB" not in call:
                waits.add(path.relative_to(ROOT / "model_profiling").as_posix())
    assert waits == {"base/file_locks.py"}


def _failing(monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> list[float]:
    """Let the system refuse so many starts; returns when each was tried."""
    tried: list[float] = []
    real = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def refused(self: object, *args: object) -> None:
        if isinstance(self, programs.ChildProcess):
            tried.append(time.monotonic())
            if len(tried) <= times:
                raise OSError(number, os.strerror(number))
        real(self, *args)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", refused)
    return tried


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY])
def test_a_start_that_fails_for_a_reason_that_passes_is_tried_again(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = _failing(monkeypatch, number, 2)
    assert run_program(["echo", "well"], doing="").stdout == "well\n"
    assert len(tried) == 3 and tried == sorted(tried)


@given(number=st.sampled_from(sorted(errno.errorcode)))
def test_whatever_keeps_a_process_from_being_started_is_an_error_with_what_to_do(number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "_PAUSES_S", (0.0, 0.0))
        tried = _failing(patch, number, 1000)
        with pytest.raises(StartError) as caught:
            start(["echo", "well"])
        assert len(tried) == (3 if number in programs._PASSING else 1)
    assert os.strerror(number) in caught.value.message and "echo" in caught.value.message
    assert caught.value.hint and caught.value.exit_code == 3


def test_what_is_no_program_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("exit 0\n")
    script.chmod(0o755)
    closed = tmp_path / "closed"
    closed.write_text("#!/bin/sh\n")
    for command, hint in (
        ([str(tmp_path / "nothing")], "Install it"),
        ([str(closed)], "chmod +x"),
        ([str(tmp_path)], "chmod +x"),
        ([str(script)], "built for this machine"),
        # By its path: of several folders in PATH, the first that is closed is what the system tells.
        ([str(shutil.which("true")), "x" * (1 << 22)], "shorter arguments"),
        (["tr\0ue"], "Correct its name"),
    ):
        with pytest.raises(StartError) as caught:
            run_program(command, doing="")
        assert hint in caught.value.hint, command
    with pytest.raises(StartError, match=r"in .*gone: No such file"):
        run_program(["true"], tmp_path / "gone", doing="")


def test_a_program_that_does_not_end_in_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    with pytest.raises(TimedOutError, match="did not end within"):
        run_program(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; wait"], timeout_s=1.0, doing="")
    _gone([int((tmp_path / "child").read_text())])


# It starts three processes that start others, and then is killed: a program, a command that is asked to end, and one
# that does not do so when it is asked.
_PARENT = """
import glob, os, signal, sys, time
from model_profiling.base import child_watcher, programs
home = sys.argv[1]
tree = f"sleep 600 & echo $! >> {home}/numbers; echo $$ >> {home}/numbers; wait"
asked = f"trap 'echo ended > {home}/asked; exit' TERM; echo $$ >> {home}/numbers; while :; do sleep 0.05; done"
programs.start(["sh", "-c", tree])
programs.start(["sh", "-c", asked], ends_by=signal.SIGTERM)
programs.run_program(["true"], doing="")
if sys.argv[2] == "watcher killed":
    pipe = os.readlink(f"/proc/self/fd/{programs._watcher._pipe}")
    for place in glob.glob("/proc/[0-9]*"):
        try:
            if os.readlink(f"{place}/fd/0") == pipe and place != f"/proc/{os.getpid()}":
                os.kill(int(place[6:]), signal.SIGKILL)
        except OSError:
            pass
    time.sleep(0.2)
    programs.start(["sh", "-c", tree])
if sys.argv[2] == "forked" and os.fork() == 0:
    time.sleep(600)
while len(open(f"{home}/numbers").read().split()) < (5 if sys.argv[2] == "watcher killed" else 3):
    time.sleep(0.02)
print("ready", flush=True)
if sys.argv[2] == "ends":
    os._exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["killed", "ends", "watcher killed", "forked"])
def test_no_process_outlives_the_one_that_started_it(how: str, tmp_path: Path) -> None:
    needs(sys.platform == "linux" or how != "watcher killed", "Linux")
    (tmp_path / "numbers").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _PARENT, str(tmp_path), how]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
        parent.send_signal(signal.SIGKILL)
    numbers = [int(word) for word in (tmp_path / "numbers").read_text().split()]
    try:
        _gone(numbers)
        assert (tmp_path / "asked").read_text() == "ended\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_what_has_ended_is_nobodys_to_end() -> None:
    """Its number may be another process's by then."""
    with start(["true"]) as process:
        process.wait()
    assert -process.pid not in programs._watcher._alive
    process = start(["true"])
    while process.poll() is None:
        time.sleep(0.01)
    assert -process.pid not in programs._watcher._alive


_ENDS = """
import atexit, threading, time
from model_profiling.cli import process
process._ENDING_S = 0.1
{}
process._end(3)
"""


_SLOW_TO_GO = """
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
class Slow:
    def __del__(self):
        time.sleep(1)
slow = Slow()
"""


@pytest.mark.parametrize(
    "late",
    ["threading.Thread(target=time.sleep, args=(600,)).start()", "atexit.register(time.sleep, 600)", _SLOW_TO_GO],
)
def test_what_a_model_left_to_do_at_the_end_is_not_waited_for(late: str) -> None:
    command = [sys.executable, "-c", _ENDS.format(late)]
    assert subprocess.run(command, cwd=ROOT, timeout=LONGEST_S, check=False).returncode == 3


def _gone(numbers: list[int]) -> None:
    """Wait until none of these processes is there."""
    until = time.monotonic() + LONGEST_S
    while left := [number for number in numbers if _lives(number)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
        # One that has ended, and whose new parent has not looked yet, is gone.
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return sys.platform != "linux"
    except ProcessLookupError:
        return False


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    said: list[str] = []
    monkeypatch.setattr(on_progress, "_SAY_AFTER_S", 0.05)
    listen_to_notes(said.append)
    yield said
    listen_to_notes()


def test_whoever_waits_for_a_lock_says_so(notes: list[str], tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    waits = threading.Thread(target=_hold, args=(tmp_path,))
    waits.start()
    until = time.monotonic() + LONGEST_S
    while not notes and time.monotonic() < until:
        time.sleep(0.01)
    os.close(other)
    waits.join()
    assert notes == [f"waiting for another process that writes in {tmp_path}"]


def _hold(folder: Path) -> None:
    with folder_held(folder):
        pass


def test_whoever_waits_for_a_program_says_so_once_and_for_the_whole(notes: list[str]) -> None:
    run_program(["true"], doing="")
    run_program(["sleep", "0.5"], doing="asking something")
    assert notes == ["asking something"]
    notes.clear()
    with long_step("building all of it"):
        run_program(["sleep", "0.5"], doing="asking something")
    assert notes == ["building all of it"]


def test_what_is_over_at_once_is_not_spoken_of(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_progress, "_SAY_AFTER_S", LONGEST_S)
    with long_step("something short"):
        pass
    assert notes == []


def test_a_wait_without_a_thread_to_speak_of_it_is_silent(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    steps: list[Callable[[], object]] = [lambda: run_program(["true"], doing="asking"), lambda: _hold(ROOT)]
    for step in steps:
        step()
    with pytest.raises(KitError), long_step("failing"):
        raise KitError("it failed")
    assert notes == []
