"""Runs one group of experiments side by side and leaves each one's files in a scratch directory."""

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling import files
from model_profiling.errors import KitError
from model_profiling.pipeline.config import MODES, Experiment
from model_profiling.pipeline.foreign import LaunchedSession
from model_profiling.pipeline.schedule import Kind, Lane, Schedule
from model_profiling.platforms.base import Platform, Request, Session
from model_profiling.run_directory import KERNEL_TRACE, RunnerRecord, Samples, Turn, experiment_file
from model_profiling.runner.protocol import Done, Features, Ready

# A model slower than this fills the caches by itself: an uncounted run before each turn would only cost time.
_SETTLE_BELOW_NS = 50_000_000

# Told after every turn: what is being done, how much of it is done, how much there is.
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Program:
    """What is executed: a .pte, what its files are called after, and its inputs (none: the runner feeds ones)."""

    pte: Path
    stem: str
    inputs: tuple[Path, ...]


@dataclass
class Outcome:
    """What came of one experiment: its samples and last words, or why it failed."""

    program: Program
    experiment: Experiment
    runner: RunnerRecord
    scratch: Path
    timed: list[Turn] = field(default_factory=list)
    traced: list[Turn] = field(default_factory=list)
    features: Features | None = None
    ready: Ready | None = None
    done: Done | None = None
    failure: KitError | None = None

    @property
    def samples(self) -> Samples:
        return Samples(self.timed, self.traced)

    def file(self, suffix: str) -> Path:
        name = experiment_file(self.program.stem, self.experiment.name, self.experiment.num_threads, suffix)
        return self.scratch / name


class GroupRun:
    """Holds the group's processes open, lets them take turns, and ends them whatever happens."""

    def __init__(
        self, platform: Platform, schedule: Schedule, outcomes: dict[str, Outcome], report: Report, timeout_s: float
    ) -> None:
        self._platform = platform
        self._timeout_s = timeout_s
        self._schedule = schedule
        self._outcomes = outcomes
        self._report = report
        self._sessions: dict[str, Session] = {}
        self.settle_runs = 0

    def run(self) -> None:
        """Open, take all turns, finish. A lane that fails takes its experiment with it and leaves the others alone."""
        try:
            for lane in self._schedule.lanes:
                self._report(f"loading {lane.experiment.name}", 0, self._schedule.total_runs)
                self._guarded(lane, self._open)
            self.settle_runs = self._choose_settle_runs()
            self._take_turns()
            for lane in self._schedule.lanes:
                self._guarded(lane, self._finish)
        finally:
            for session in self._sessions.values():
                session.close()
        for outcome in self._outcomes.values():
            if outcome.failure is None:
                files.write_json(outcome.file("_samples.json"), outcome.samples)

    def _take_turns(self) -> None:
        done, start = 0, time.monotonic()
        for turn, order in enumerate(self._schedule.order):
            for index in order:
                lane = self._schedule.lanes[index]
                count = lane.runs_by_turn[turn]
                if count:
                    self._guarded(lane, functools.partial(self._turn, turn=turn, count=count, start=start))
                    done += count
                    self._report(f"turn {turn + 1}/{self._schedule.turns}", done, self._schedule.total_runs)

    def _guarded(self, lane: Lane, step: Callable[[Lane], None]) -> None:
        outcome = self._outcomes[lane.experiment.name]
        if outcome.failure is None:
            try:
                step(lane)
            except KitError as error:
                outcome.failure = error

    def _open(self, lane: Lane) -> None:
        experiment, outcome = lane.experiment, self._outcomes[lane.experiment.name]
        traced = lane.kind is not Kind.TIMED
        request = Request(
            runner=outcome.runner,
            model=outcome.program.pte,
            inputs=outcome.program.inputs,
            threads=experiment.num_threads,
            warmup=experiment.warmup,
            disable_features=tuple(experiment.disable_features),
            log=outcome.file(".log"),
            etdump=outcome.file(".etdump") if traced else None,
            output_base=outcome.file("_output") if self._is_last(lane) else None,
            kernel_trace=outcome.file(KERNEL_TRACE) if MODES[experiment.mode] == "trace" else None,
            timeout_s=self._timeout_s,
            launch_prefix=tuple(experiment.launch_prefix),
            affinity=experiment.affinity,
        )
        if lane.kind is Kind.LAUNCHED:
            self._sessions[lane.label] = LaunchedSession(self._platform, request)
            return
        session = self._platform.open(request)
        self._sessions[lane.label] = session
        outcome.features, outcome.ready = session.features, session.ready

    def _choose_settle_runs(self) -> int:
        warm = [min(o.ready.warmup_ns) for o in self._outcomes.values() if o.ready is not None and o.ready.warmup_ns]
        return 1 if not warm or max(warm) < _SETTLE_BELOW_NS else 0

    def _turn(self, lane: Lane, turn: int, count: int, start: float) -> None:
        outcome = self._outcomes[lane.experiment.name]
        at_s = round(time.monotonic() - start, 6)
        settle = self.settle_runs if lane.kind is Kind.TIMED else 0
        times = self._sessions[lane.label].run(settle + count)[settle:]
        taken = Turn(turn, at_s, times, min(self._sessions[lane.label].preempted, count))
        (outcome.timed if lane.kind is Kind.TIMED else outcome.traced).append(taken)

    def _finish(self, lane: Lane) -> None:
        done = self._sessions[lane.label].finish()
        if self._is_last(lane):
            self._outcomes[lane.experiment.name].done = done

    def _is_last(self, lane: Lane) -> bool:
        """Whether this lane's outputs are kept: both lanes of an experiment compute the same."""
        return lane is [other for other in self._schedule.lanes if other.experiment is lane.experiment][-1]


def keep(outcome: Outcome, home: Path) -> dict[str, str]:
    """Put the experiment's scratch directory in place of what was there before; returns each file's hash."""
    hashes = {path.name: files.sha256(path) for path in sorted(outcome.scratch.iterdir()) if path.is_file()}
    files.replace_directory(outcome.scratch, home)
    return hashes


def clear_scratch(directory: Path) -> None:
    """Remove what an interrupted run left behind."""
    with contextlib.suppress(FileNotFoundError):
        files.remove_directory(directory)
