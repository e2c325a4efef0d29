"""Jobs as child processes of this machine: work side by side on spare CPUs, measurements with their target alone."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.base import files
from model_profiling.base.child_watcher import GRACE_S
from model_profiling.base.code_path import python_command
from model_profiling.base.programs import ChildProcess, start
from model_profiling.fleet.sweep.executor import OWN, FinishedJob, JobOutcome, failure_of, last_line
from model_profiling.fleet.sweep.jobs import Job, SweepFolder
from model_profiling.fleet.sweep.sweep_file import SweepTarget
from model_profiling.platforms.locks import GIVEN, Busy, Claims, job_lock

_LOOK_S = 0.2


@dataclass
class _Running:
    job: Job
    child: ChildProcess
    began: float
    log: Path


class LocalExecutor:
    """An executor that needs nothing but this machine."""

    host_comes_last = True

    def __init__(self, folder: SweepFolder, jobs: list[Job], cpus: int | None = None) -> None:
        self._folder = folder
        self._claims = Claims(f"sweep in {folder.home.resolve()}")
        self._running: dict[str, _Running] = {}
        cpus = cpus or usable_cpus()
        # What talks to a phone or a board needs a CPU in time, or the turns wait for it.
        remote = any(job.measures is not None and not job.measures.is_host for job in jobs)
        self._slots = max(1, cpus - 1 if remote else cpus)

    def lane(self, job: Job) -> str:
        return job.measures.label if job.measures is not None else ""

    def start(self, job: Job, words: tuple[str, ...]) -> str:
        if not self._has_room(job.measures):
            return OWN
        own = job_lock(self._folder.lock(job))
        if own is None:
            return "a process that an earlier sweep started for it, which is still ending"
        claim = self._claims.try_claim(None if job.measures is None else job.measures.lock)
        if isinstance(claim, Busy):
            os.close(own)
            return claim.reason
        claim.handles.append(own)
        try:
            log = self._folder.log(job)
            log.parent.mkdir(parents=True, exist_ok=True)
            child = start_tied(words, log, claim.handles)
            self._running[job.name] = _Running(job, child, time.monotonic(), log)
        finally:
            # From now on the child alone holds them.
            claim.close()
        return ""

    def _has_room(self, target: SweepTarget | None) -> bool:
        """Return whether the jobs that run here leave room for one more, as far as this sweep knows."""
        busy = [running.job.measures for running in self._running.values()]
        if any(other is not None and other.is_host for other in busy):
            return False
        if target is None:
            return busy.count(None) < self._slots
        return not busy if target.is_host else target not in busy

    def ended(self, timeout_s: float) -> list[FinishedJob]:
        wait_for([running.child for running in self._running.values()], timeout_s)
        found = []
        for name, running in list(self._running.items()):
            code = running.child.poll()
            if code is None:
                continue
            del self._running[name]
            # What it started and did not end, if anything, goes with it.
            running.child.end_all()
            found.append(FinishedJob(running.job, outcome_of(code, time.monotonic() - running.began, running.log)))
        return found

    def doing(self, job: Job) -> str:
        running = self._running.get(job.name)
        return last_line(running.log) if running is not None else ""

    def close(self) -> None:
        self._claims.step_back()
        children = list(self._running.values())
        self._running = {}
        for running in children:
            running.child.terminate()
        until = time.monotonic() + GRACE_S
        for running in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.child.wait(max(0.0, until - time.monotonic()))
            running.child.end_all()
            running.child.wait()


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def start_tied(words: tuple[str, ...], log: Path, locks: list[int], home: Path | None = None) -> ChildProcess:
    """Start a command that is asked to end when this process has: it ends its runners, and keeps what is measured.

    It holds the locks while it lives, and is told which these are: it does not wait for them.
    """
    log.unlink(missing_ok=True)
    given = {**os.environ, GIVEN: ",".join(map(str, locks))}
    with files.open_log(log) as output:
        streams: dict[str, Any] = {"stdout": output, "stderr": subprocess.STDOUT}
        command = python_command("model_profiling", *words)
        return start(command, home, signal.SIGTERM, env=given, pass_fds=locks, **streams)


def outcome_of(code: int, seconds: float, log: Path) -> JobOutcome:
    if code == 0:
        return JobOutcome(seconds)
    return JobOutcome(seconds, *failure_of(files.tail(log, 1 << 20), code))


def wait_for(children: list[ChildProcess], timeout_s: float) -> None:
    """Wait until one of them has ended, or so long; asks the kernel, so that a measurement is not disturbed."""
    if sys.platform != "linux":
        time.sleep(min(_LOOK_S, timeout_s))
        return
    with contextlib.ExitStack() as opened:
        handles = [os.pidfd_open(child.pid) for child in children]
        for handle in handles:
            opened.callback(os.close, handle)
        select.select(handles, [], [], timeout_s)
