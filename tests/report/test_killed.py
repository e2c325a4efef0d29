"""Whatever instant kills a command, what it writes is as it was or as it is to be, and the next one is content."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from model_profiling.analysis.run.validation import problems
from model_profiling.base import files
from model_profiling.store import transaction
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import InterruptedRun, resolve
from sme2_kit import Run
from tests.conftest import ROOT, SAMPLED, kit
from tests.helpers.killing import COMMANDS

KNOWN_GOOD = ROOT / "tests" / "data" / "known_good_run"
# Its work is one file and the record; the others are killed at up to hundreds of instants.
_SHORT, _LONG = ("tool",), ("run",)
EACH = 3 if SAMPLED else 1


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KNOWN_GOOD, tmp_path / "run"))


@pytest.mark.parametrize(
    "command",
    [
        *_SHORT,
        *(pytest.param(c, marks=pytest.mark.wide) for c in _LONG),
        *(pytest.param(c, marks=[pytest.mark.wide, pytest.mark.again]) for c in COMMANDS if c not in (*_SHORT, *_LONG)),
    ],
)
def test_a_command_killed_between_any_two_calls_leaves_the_old_state_or_the_new_one(
    command: str, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "tests.helpers.killing", command, str(KNOWN_GOOD), str(tmp_path), str(EACH)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15


@pytest.mark.wide
@pytest.mark.again
def test_a_report_killed_at_any_time_is_followed_by_a_valid_directory_and_the_same_report(run: Path) -> None:
    words = [sys.executable, "-m", "model_profiling", "report", "--html", str(run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    assert subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0
    took = time.monotonic() - began
    wanted = (run / "report.html").read_bytes()
    for seed in range(4):
        child = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(took * random.Random(seed).random())
        child.send_signal(signal.SIGKILL)
        child.wait()
        valid = kit("validate", "--results", run)
        assert valid.returncode == 0, valid.stdout
    again = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0 and again.stderr == ""
    assert (run / "report.html").read_bytes() == wanted
    assert not list(run.glob(".change-*"))


def test_a_run_that_nobody_has_analysed_yet_is_valid_and_a_damaged_measurement_is_not(run: Path) -> None:
    """As a kill leaves it between measuring and analysing."""
    derived = ("*.csv", "*_robust_stats.json")
    for path in [*run.iterdir(), *(path for form in derived for path in run.glob(f"*/{form}"))]:
        if path.is_file() and path.name != "manifest.json":
            path.unlink()
    done = kit("validate", "--results", run)
    assert done.returncode == 0 and f"sme2-kit analyze {run}" in done.stdout, done.stdout
    dump = next(run.glob("*/*.etdump"))
    dump.write_bytes(dump.read_bytes()[:-1] + b"?")
    damaged = kit("validate", "--results", run)
    assert damaged.returncode == 1 and f"{dump.name} has changed since the run" in damaged.stdout


def test_a_first_run_that_was_interrupted_is_not_called_damaged(run: Path) -> None:
    manifest = RunDirectory(run).manifest()
    files.write_json(run / ".partial" / "0123456789ab" / "run.json", InterruptedRun(manifest, {}, {}, [1]))
    (run / "manifest.json").unlink()
    (problem,) = problems(RunDirectory(run))
    assert "the same command resumes it" in problem


def test_results_that_were_there_and_are_gone_are_a_problem(run: Path) -> None:
    Run.open(run).save()
    (run / "metrics.json").unlink()
    assert problems(RunDirectory(run)) == [f"metrics {run}/metrics.json does not exist"]


def test_what_a_living_writer_has_begun_stays_and_what_a_dead_one_left_goes(run: Path) -> None:
    ours, other, foreign = transaction.begin(run), transaction.begin(run), run / ".change-0123456789abcdef"
    assert ours is not None and other is not None
    ours.write("a.txt", b"a")
    other.write("b.txt", b"half")
    ended = other._end.detach()  # as a kill does
    assert ended is not None
    os.close(ended[2][1])
    foreign.mkdir()
    (foreign / "0").write_bytes(b"theirs")
    resolve(run)
    assert other.folder.exists()
    resolve(run, writes=True)
    assert not other.folder.exists() and (foreign / "0").exists() and not (run / "a.txt").exists()
    shutil.rmtree(foreign)
    with ours.committing():
        pass
    assert (run / "a.txt").read_bytes() == b"a" and not list(run.glob(".change-*"))


def test_a_change_that_is_given_up_leaves_nothing(run: Path) -> None:
    change = transaction.begin(run)
    assert change is not None
    change.write("a.txt", b"a")
    del change
    assert not (run / "a.txt").exists() and not list(run.glob(".change-*"))


def test_a_note_of_a_change_from_anywhere_writes_and_removes_nothing_elsewhere(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "x"
    outside.write_text("precious")
    (run / "link").symlink_to(tmp_path)
    for number, name in enumerate(("", ".", "..", "../x", str(outside), "a\0", "a" * 300, "link/x")):
        for kind in ("removed", "placed", "from"):
            folder = run / f".change-{kind}{number}"
            folder.mkdir()
            (folder / "0").write_text("theirs")
            placed = {"placed": {name: f"{folder.name}/0"}, "from": {"x.txt": name}}.get(kind, {})
            note = transaction._Note([name] if kind == "removed" else [], placed)
            # Even if it is this user's own.
            proof = transaction._proof_of(run, folder, note) if "\0" not in name else ""
            files.write_json(folder / "change.json", msgspec.structs.replace(note, proof=proof))
    assert resolve(run, writes=True) == run
    Run.open(run).save()
    assert outside.read_text() == "precious" and problems(RunDirectory(run)) == []
