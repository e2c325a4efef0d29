"""Runs one group of experiments, launch after launch, and leaves each one's files in a scratch directory."""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling import etdump, files
from model_profiling.artifacts import KERNEL_TRACE
from model_profiling.errors import KitError, RunError
from model_profiling.pipeline.config import MODES, Experiment
from model_profiling.pipeline.foreign import LaunchedSession
from model_profiling.pipeline.schedule import TURN, Cost, Kind, Lane, Round, first_round, later_rounds, plan
from model_profiling.platforms.base import Platform, Request, Session
from model_profiling.run_directory import RunnerRecord, Samples, Turn, experiment_file
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
    """Launches the group's lanes round by round, lets those that are timed take turns, and ends them all.

    A round is one launch of every lane in it. The first round shows what launches and executions cost; `plan` then says
    how many rounds there are in all, and why.
    """

    def __init__(
        self,
        platform: Platform,
        lanes: Sequence[Lane],
        outcomes: dict[str, Outcome],
        report: Report,
        timeout_s: float,
        seed: int = 0,
        budget_s: float | None = None,
    ) -> None:
        self._platform = platform
        self._timeout_s = timeout_s
        self._lanes = list(lanes)
        self._outcomes = outcomes
        self._report = report
        self._seed = seed
        self._budget_s = budget_s
        self._sessions: dict[str, Session] = {}
        self._dumps: dict[str, list[Path]] = {}
        self._launch_s: dict[str, float] = {}
        self._start = time.monotonic()
        self._done, self._total = 0, 1
        # Who took each turn, in order.
        self.order: list[list[str]] = []
        self.settle_runs: int | None = None
        self.launches = 0
        self.plan = ""

    def run(self) -> None:
        """Take all rounds. A lane that fails takes its experiment with it and leaves the others alone."""
        try:
            first = first_round(self._lanes, self._seed)
            self._total = first.runs
            self._take(first)
            self._lanes, self.plan = plan(self._lanes, self._cost(), self._budget_s)
            rest = later_rounds(self._lanes, first, self._seed)
            self.launches, self._total = 1 + len(rest), first.runs + sum(each.runs for each in rest)
            for each in rest:
                self._take(each)
        finally:
            with contextlib.ExitStack() as stack:
                for session in self._sessions.values():
                    stack.callback(session.close)
        for name, outcome in self._outcomes.items():
            if outcome.failure is None:
                try:
                    if name in self._dumps:
                        _merge(self._dumps[name], outcome.file(".etdump"))
                    files.write_json(outcome.file("_samples.json"), outcome.samples)
                except KitError as error:
                    outcome.failure = error

    def _take(self, each: Round) -> None:
        """One round: timed lanes side by side, then the others one by one, each straight from its warm-up."""
        for index in each.together:
            self._guarded(index, functools.partial(self._open, launch=each.launch))
        if self.settle_runs is None:
            self.settle_runs = self._choose_settle_runs()
        for turn in each.turns:
            self._new_turn(turn)
            for share in turn:
                self._execute(share, each.launch)
        for index in each.together:
            self._guarded(index, self._finish)
        if each.alone:
            self._new_turn(each.alone)
        for share in each.alone:
            self._guarded(share[0], functools.partial(self._open, launch=each.launch))
            self._execute(share, each.launch)
            self._guarded(share[0], self._finish)

    def _new_turn(self, shares: tuple[tuple[int, int], ...]) -> None:
        self.order.append([self._lanes[index].label for index, _ in shares])

    def _execute(self, share: tuple[int, int], launch: int) -> None:
        index, count = share
        self._guarded(index, functools.partial(self._turn, launch=launch, count=count))
        self._done += count
        of = f"/{self.launches}" if self.launches else ""
        self._report(f"launch {launch + 1}{of}, turn {len(self.order)}", self._done, self._total)

    def _guarded(self, index: int, step: Callable[[Lane], None]) -> None:
        lane = self._lanes[index]
        outcome = self._outcomes[lane.experiment.name]
        if outcome.failure is None:
            try:
                step(lane)
            except KitError as error:
                outcome.failure = error
                # What is left of it must not run beside the others.
                for label in [other.label for other in self._lanes if other.experiment is lane.experiment]:
                    if label in self._sessions:
                        self._sessions.pop(label).close()

    def _open(self, lane: Lane, launch: int) -> None:
        experiment, outcome = lane.experiment, self._outcomes[lane.experiment.name]
        if launch == 0:
            self._report(f"loading {experiment.name}", self._done, self._total)
        dump = None
        if lane.kind is not Kind.TIMED:
            dump = outcome.file(f".etdump.launch{launch}")
            self._dumps.setdefault(experiment.name, []).append(dump)
        request = Request(
            runner=outcome.runner,
            model=outcome.program.pte,
            inputs=outcome.program.inputs,
            threads=experiment.num_threads,
            warmup=experiment.warmup,
            disable_features=tuple(experiment.disable_features),
            log=outcome.file(".log"),
            etdump=dump,
            output_base=outcome.file("_output") if launch == 0 and self._keeps_outputs(lane) else None,
            kernel_trace=outcome.file(KERNEL_TRACE) if MODES[experiment.mode] == "trace" else None,
            timeout_s=self._timeout_s,
            launch_prefix=tuple(experiment.launch_prefix),
            affinity=experiment.affinity,
        )
        began = time.monotonic()
        if lane.kind is Kind.LAUNCHED:
            self._sessions[lane.label] = LaunchedSession(self._platform, request)
            return
        session = self._platform.open(request)
        self._sessions[lane.label] = session
        self._launch_s.setdefault(lane.label, time.monotonic() - began)
        if outcome.ready is None:
            outcome.features, outcome.ready = session.features, session.ready

    def _choose_settle_runs(self) -> int:
        if not any(lane.kind is Kind.TIMED for lane in self._lanes):
            return 0
        warm = [min(o.ready.warmup_ns) for o in self._outcomes.values() if o.ready is not None and o.ready.warmup_ns]
        return 1 if not warm or max(warm) < _SETTLE_BELOW_NS else 0

    def _turn(self, lane: Lane, launch: int, count: int) -> None:
        outcome = self._outcomes[lane.experiment.name]
        at_s = round(time.monotonic() - self._start, 6)
        settle = (self.settle_runs or 0) if lane.kind is Kind.TIMED else 0
        session, began = self._sessions[lane.label], time.monotonic()
        times = session.run(settle + count)[settle:]
        if lane.kind is Kind.LAUNCHED:
            # Such a runner is started by its turn: all that was not execution.
            self._launch_s.setdefault(lane.label, max(0.0, time.monotonic() - began - sum(times) / 1e9))
        taken = Turn(len(self.order) - 1, at_s, times, min(session.preempted, count), launch)
        (outcome.timed if lane.kind is Kind.TIMED else outcome.traced).append(taken)

    def _finish(self, lane: Lane) -> None:
        session, began = self._sessions.pop(lane.label), time.monotonic()
        try:
            done = session.finish()
        finally:
            session.close()
        if not self.launches and lane.label in self._launch_s:
            # On a device, ending a process and fetching its files takes time too.
            self._launch_s[lane.label] += time.monotonic() - began
        outcome = self._outcomes[lane.experiment.name]
        if outcome.done is None and self._keeps_outputs(lane):
            outcome.done = done

    def _keeps_outputs(self, lane: Lane) -> bool:
        """Whether this lane's outputs are kept: both lanes of an experiment compute the same."""
        return lane is [other for other in self._lanes if other.experiment is lane.experiment][-1]

    def _cost(self) -> Cost:
        """What the first round took: lanes of every round, and lanes of a few."""
        sums = {Kind.TIMED: [0.0, 0.0], Kind.TRACED: [0.0, 0.0]}
        for lane in self._lanes:
            outcome = self._outcomes[lane.experiment.name]
            turns = outcome.timed if lane.kind is Kind.TIMED else outcome.traced
            if outcome.failure is not None or not turns:
                continue
            one = min(ns for turn in turns for ns in turn.ns) / 1e9
            launch = self._launch_s.get(lane.label, lane.experiment.warmup * one)
            settle = (self.settle_runs or 0) / TURN if lane.kind is Kind.TIMED else 0
            both = sums[Kind.TRACED if lane.kind is Kind.TRACED else Kind.TIMED]
            both[0], both[1] = both[0] + launch, both[1] + one * (1 + settle)
        return Cost(*sums[Kind.TIMED], *sums[Kind.TRACED])


def _merge(dumps: list[Path], target: Path) -> None:
    """One ETDump from those of all launches."""
    try:
        if len(dumps) == 1:
            dumps[0].replace(target)
            return
        files.write_bytes(target, etdump.merged(dumps))
        for dump in dumps:
            dump.unlink()
    except OSError as error:
        raise RunError(f"the ETDump {error.filename} of a launch is gone: {error.strerror}", "Run it again.") from None


def keep(outcome: Outcome, home: Path) -> dict[str, str]:
    """Put the experiment's scratch directory in place of what was there before; returns each file's hash."""
    hashes = {path.name: files.sha256(path) for path in sorted(outcome.scratch.iterdir()) if path.is_file()}
    files.replace_directory(outcome.scratch, home)
    return hashes


def clear_scratch(directory: Path) -> None:
    """Remove what an interrupted run left behind."""
    with contextlib.suppress(FileNotFoundError):
        files.remove_directory(directory)
