"""What carries jobs out: the small protocol that this machine and a Ray cluster have in common, and jobs as child
processes of this machine: work side by side on spare CPUs, measurements with their target alone."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from model_profiling.base import files
from model_profiling.base.child_watcher import GRACE_S
from model_profiling.base.code_path import python_command
from model_profiling.base.programs import ChildProcess, start
from model_profiling.base.records import record_of
from model_profiling.fleet.sweep.jobs import Job, SweepFolder
from model_profiling.fleet.sweep.result import JobRecord, JobState
from model_profiling.fleet.sweep.sweep_file import SweepTarget
from model_profiling.platforms.locks import GIVEN, Busy, Claims, job_lock

# What a job waits for that needs no words: other jobs of its own sweep.
OWN = "other jobs of this sweep"
# That a job took, or since 1970: numbers of other machines and of files, with which one can count.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
# What a job says of a target that somebody measures on (`TakenError` in platforms/locks.py).
_TAKEN = " is being measured"


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended. Without a `failure` it did what it should; `lost` says that nobody knows how far it came."""

    seconds: float
    failure: str = ""
    hint: str = ""
    lost: bool = False
    # Where it ran, if that is not this machine, and where its result has come to; it is still to be put in place.
    node: str = ""
    incoming: Path | None = None

    @property
    def busy(self) -> bool:
        """Whether somebody measures on the target from another machine: one waits for it as for any other lock."""
        return _TAKEN in self.failure


@dataclass(frozen=True)
class FinishedJob:
    job: Job
    outcome: JobOutcome


class Executor(Protocol):
    # Whether measurements on this machine wait until there is no other work: they stop it.
    host_comes_last: bool

    def lane(self, job: Job) -> str:
        """Return the lane of a job: jobs of one lane need the same thing, and wait where the first of them waits."""

    def start(self, job: Job, words: tuple[str, ...]) -> str:
        """Start a job if what it needs is free; else say what it waits for, in words."""

    def ended(self, timeout_s: float) -> list[FinishedJob]:
        """Return the jobs that have ended since the last call; waits for one, but not longer than this."""

    def doing(self, job: Job) -> str:
        """Return what a running job says it does; '' if it says nothing."""

    def close(self) -> None:
        """End all that runs, and leave nothing behind."""


def failure_of(log: str, code: int) -> tuple[str, str]:
    """Return what went wrong and what to do, as a command said it last."""
    _, found, error = f"\n{log.strip()}".rpartition("\nerror: ")
    message, _, hint = error.partition("\n  fix: ")
    if found:
        return " ".join(message.split()), " ".join(hint.split())
    last = log.strip().rpartition("\n")[2]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the command {how}" + (f"; it said last: {last[:300]}" if last else ""), "See its log."


_OPEN: tuple[JobState, ...] = ("waiting", "running")
# What is carried out side by side.
WORK = "work"


def lane_of(job: Job) -> str:
    """Return what a job has to wait for: the target that it measures on, or a CPU."""
    return job.measures.label if job.measures is not None else WORK


def _kind(job: Job) -> str:
    """Return jobs that take about as long as each other."""
    emulated = job.kind == "run" and job.measures is None
    return "emulated run" if emulated else job.kind


class Ledger:
    """`seconds` is how long jobs took when they were last carried out, `side_by_side` how many work at once."""

    def __init__(self, jobs: Iterable[Job], seconds: dict[str, float], side_by_side: int) -> None:
        self.records: dict[str, JobRecord] = {}
        self._seconds = seconds
        self._share = max(1, side_by_side)
        self._states: Counter[JobState] = Counter()
        # How many are open, by lane and kind; the seconds of each kind; when those that run began.
        self._open: Counter[tuple[str, str]] = Counter()
        self._known: dict[str, list[float]] = {}
        self._began: dict[str, tuple[Job, float]] = {}
        for job in jobs:
            if job.name in seconds:
                self._add_known(job, seconds[job.name])

    def set(
        self, job: Job, state: JobState, outcome: JobOutcome | None = None, failure: str = "", log: str = ""
    ) -> None:
        """Note the state of a job; `failure` is for one that was not begun."""
        before = self.records.get(job.name)
        if before is not None:
            self._count(job, before.state, -1)
        self._count(job, state, 1)
        self._began.pop(job.name, None)
        if state == "running":
            self._began[job.name] = job, time.monotonic()
        if state == "finished" and outcome is not None:
            self._seconds[job.name] = outcome.seconds
            self._add_known(job, outcome.seconds)
        seconds = outcome.seconds if outcome is not None else self._seconds.get(job.name)
        said: dict[str, Any] = {"failure": failure} if outcome is None else {}
        said |= {"state": state, "seconds": None if seconds is None else round(seconds, 3), "log": log}
        self.records[job.name] = record_of(JobRecord, job, outcome, **said)

    def state(self, name: str) -> JobState:
        return self.records[name].state

    def counted(self, *states: JobState) -> int:
        return sum(self._states[state] for state in states)

    def left(self) -> float:
        """Return seconds that the rest will take, from the jobs of each kind that have ended: work side by side, each
        target one after another. 0 while nobody knows."""
        lanes: dict[str, float] = {}
        for (lane, kind), count in self._open.items():
            if count and kind not in self._known:
                return 0.0
            if count:
                total, number = self._known[kind]
                share = self._share if lane == WORK else 1
                lanes[lane] = lanes.get(lane, 0.0) + count * total / number / share
        for job, began in self._began.values():
            total, number = self._known[_kind(job)]
            share = self._share if lane_of(job) == WORK else 1
            lanes[lane_of(job)] -= min(time.monotonic() - began, total / number) / share
        return max(lanes.values(), default=0.0)

    def _count(self, job: Job, state: JobState, number: int) -> None:
        self._states[state] += number
        if state in _OPEN:
            self._open[lane_of(job), _kind(job)] += number

    def _add_known(self, job: Job, seconds: float) -> None:
        total, number = self._known.get(_kind(job), [0.0, 0])
        self._known[_kind(job)] = [total + seconds, number + 1]


class Queue:
    """The jobs that are still to be begun, by lane; each is let in when what it comes after is finished."""

    def __init__(self, jobs: list[Job], lane: Callable[[Job], str]) -> None:
        self.lane = lane
        self.ready: dict[str, deque[Job]] = {}
        self._after: dict[str, list[Job]] = {}
        names = {job.name for job in jobs}
        for job in jobs:
            if job.after in names:
                self._after.setdefault(job.after, []).append(job)
            else:
                self._let_in(job)

    def __bool__(self) -> bool:
        return bool(self._after) or any(self.ready.values())

    def finished(self, job: Job) -> None:
        for each in self._after.pop(job.name, []):
            self._let_in(each)

    def failed(self, job: Job) -> list[Job]:
        """Return all that comes after it, which is not begun any more."""
        found = self._after.pop(job.name, [])
        return found + [later for each in found for later in self.failed(each)]

    def again(self, job: Job) -> None:
        self.ready.setdefault(self.lane(job), deque()).appendleft(job)

    def _let_in(self, job: Job) -> None:
        self.ready.setdefault(self.lane(job), deque()).append(job)


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
        said = files.tail(running.log, 400).strip() if running is not None else ""
        return said.splitlines()[-1] if said else ""

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
