"""What is known of every job of a sweep: its state, how long it took, and so how long the rest will take."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

from model_profiling.fleet.sweep.executor import JobOutcome
from model_profiling.fleet.sweep.jobs import Job
from model_profiling.fleet.sweep.result import JobRecord, JobState

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
        self.records[job.name] = JobRecord(
            job.name,
            job.kind,
            state,
            None if seconds is None else round(seconds, 3),
            outcome.failure if outcome is not None else failure,
            outcome.hint if outcome is not None else "",
            log,
            outcome.node if outcome is not None else "",
        )

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
