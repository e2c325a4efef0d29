"""End whole commands at random moments: `python -m tests.helpers.killing_commands FOLDER KILLS [SECONDS]`.

Each command is ended KILLS times, by SIGKILL, SIGINT and SIGTERM in turn, up to SECONDS after its start. After each, no
process of it is left, what was finished is as it was, and nothing is left in its cache or its temporary directory that
the next command does not remove. In the end each command is carried out, and its run is complete and consistent.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from model_profiling.analysis.run.validation import problems
from model_profiling.base.files import is_file, sha256
from model_profiling.store.artifacts import MANIFEST
from model_profiling.store.run_directory import RunDirectory
from tests.helpers.waiting import LONGEST_S

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(torch.nn.functional.gelu(self.conv(x)).mean((2, 3)))

example_inputs = (torch.randn(1, 3, 16, 16),)
"""
_FEW = ("--launches", "2", "--runs", "2", "--no-html", "--no-lock", "--quiet")
COMMANDS = {
    "build": ("build",),
    "profile": ("profile", "net.py:Net", "--out", "plain", *_FEW),
    "rewrite": ("profile", "net.py:Net", "--rewrite", "auto", "--out", "rewritten", *_FEW),
    "tune": ("profile", "net.py:Net", "--tune", "--out", "tuned", *_FEW),
}
_SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
# A command that is asked to end has this long, and the watcher of one that is killed as long again.
_MARK = "SME2_KIT_TEST_KILLED"


def kill_commands(home: Path, kills: int, most_s: float, names: tuple[str, ...] = tuple(COMMANDS)) -> int:
    """Returns how many commands were ended before they were done."""
    (home / "net.py").write_text(MODEL)
    for folder in ("cache", "tmp"):
        (home / folder).mkdir(exist_ok=True)
    ended, rng = 0, random.Random(7)
    for name in names:
        for kill in range(kills):
            finished = _finished(home)
            process = _start(home, COMMANDS[name])
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, most_s))
            how = _SIGNALS[kill % len(_SIGNALS)]
            ended += process.poll() is None
            process.send_signal(how)
            said = process.communicate(timeout=LONGEST_S)[0].decode(errors="replace")
            assert process.returncode in (0, -how, 128 + how), (name, how, process.returncode, said)
            assert "Traceback" not in said or how == signal.SIGKILL, said
            _await_end(home)
            for path, digest in finished.items():
                assert is_file(path) and sha256(path) == digest, (name, how, path)
        done = _start(home, COMMANDS[name])
        said = done.communicate(timeout=LONGEST_S)[0].decode(errors="replace")
        assert done.returncode == 0, (name, said)
        _await_end(home)
        left = [*home.rglob(".making-*"), *(home / "tmp").glob("sme2*")]
        # A temporary directory goes with the next command of its kind.
        assert all(path.name.endswith(".held") and name != "build" for path in left), left
    for manifest in home.rglob(MANIFEST):
        assert problems(RunDirectory(manifest.parent)) == [], manifest
    return ended


def _start(home: Path, words: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "SME2_KIT_CACHE": str(home / "cache"), "TMPDIR": str(home / "tmp"), _MARK: str(home)}
    environment |= {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "model_profiling", *words]
    out: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=home, env=environment, start_new_session=True, **out)


def _finished(home: Path) -> dict[Path, str]:
    """What a killed command must not have changed: entries of the cache, and programs that were exported."""
    found = [path for path in (home / "cache" / "runner").glob("[0-9a-f]*/*") if path.is_file()]
    return {path: sha256(path) for path in found}


def _await_end(home: Path) -> None:
    until = time.monotonic() + LONGEST_S
    while left := _of(home):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def _of(home: Path) -> list[str]:
    """The processes that a command started, by what it gave all of them."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={home}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(f"{place.name} {(place / 'cmdline').read_bytes().replace(bytes(1), b' ')[:200]!r}")
    return found


if __name__ == "__main__":
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 30.0
    chosen = tuple(sys.argv[4:]) or tuple(COMMANDS)
    sys.stdout.write(f"{kill_commands(Path(sys.argv[1]).resolve(), int(sys.argv[2]), seconds, chosen)}\n")
