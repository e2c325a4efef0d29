"""Sweeps: what is finished is kept, whatever kills them; a measurement has its target alone; a failure stops nobody."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model_profiling.fleet.sweep import journal, locks
from model_profiling.fleet.sweep.sweep_file import Target
from model_profiling.run_directory import RunDirectory
from tests.conftest import QUICK, ROOT, kit

FEW = {"runs": 2, "launches": 1, "startup_launches": 0}
LOCAL, PHONE = Target("local"), Target("android", device="one")


def write(home: Path, name: str = "few", **keys: Any) -> Path:
    path = home / f"{name}.json"
    path.write_text(json.dumps(FEW | keys))
    return path


def started(home: Path, *words: object) -> "subprocess.Popen[bytes]":
    """A sweep in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "model_profiling", "sweep", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK, locks.VARIABLE: str(home / "locks")}
    return subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def swept(home: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return kit("sweep", *words, cwd=home, env={locks.VARIABLE: str(home / "locks")})


def children(of: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == of:
                found.append(int(path.parent.name))
        except (OSError, IndexError):
            continue
    return found


def until(holds: Callable[..., Any], *arguments: Any) -> Any:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := holds(*arguments):
            return found
        time.sleep(0.02)
    raise AssertionError("did not happen in time")


# Killed and continued


def test_a_sweep_that_is_killed_at_random_moments_and_continued_runs_no_job_twice_to_its_end(
    toy: Callable[[str], Path], tmp_path: Path
) -> None:
    programs = [str(toy(dtype)) for dtype in ("fp32", "fp16", "int8")]
    file = write(tmp_path, models=programs, threads=[1, 2, 3, 4], reports=False)
    moments = random.Random(22)
    for _ in range(10):
        sweep = started(tmp_path, file)
        # From before its first job to the middle of the third.
        time.sleep(moments.uniform(0.2, 2.5))
        sweep.kill()
        sweep.wait()
    done = swept(tmp_path, file, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "complete" and len(result["jobs"]) == len(result["cells"]) == 12
    entries = journal.read(tmp_path / "out_few" / ".sweep" / "journal.jsonl")
    ended = Counter(entry.job for entry in entries if entry.event == "finished")
    assert set(ended) == {job["name"] for job in result["jobs"]} and set(ended.values()) == {1}
    assert not [entry for entry in entries if entry.event == "failed"]
    for cell in result["cells"]:
        home = tmp_path / "out_few" / cell["run"]
        manifest = RunDirectory(home).manifest()
        assert manifest.status == "complete" and {r.threads for r in manifest.experiments.values()} == {cell["threads"]}
        # Measured once: nothing was replaced, and nothing is left of what was interrupted.
        assert not (home / "earlier").exists() and not (home / ".partial").exists()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}
    assert swept(tmp_path, file).returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}


def test_jobs_end_with_their_sweep_however_it_ends(toy: Callable[[str], Path], tmp_path: Path) -> None:
    file = write(tmp_path, models=[str(toy("fp16"))], runs=100000, reports=False)
    for ending in (signal.SIGKILL, signal.SIGINT):
        sweep = started(tmp_path, file)
        job = until(children, sweep.pid)[0]
        runners = until(children, job)
        sweep.send_signal(ending)
        sweep.wait()
        until(all_ended, [job, *runners])
        assert sweep.returncode == (-ending if ending == signal.SIGKILL else 130)


def all_ended(processes: list[int]) -> bool:
    for process in processes:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
    return True
