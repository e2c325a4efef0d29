"""Runs one group of experiments, launch after launch, and leaves each one's files in a scratch directory.

Every step is noted as it is made (progress.py); a group that was interrupted goes on with the steps that are missing.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.errors import KitError
from model_profiling.pipeline.config import MODES, Experiment
from model_profiling.pipeline.foreign import LaunchedSession, execution_times
from model_profiling.pipeline.progress import ALONE, Ended, Entry, Opened, Planned, Progress, Settled, Taken
from model_profiling.pipeline.resuming import Rest, what_is_left
from model_profiling.pipeline.schedule import TURN, Cost, Kind, Lane, Round, first_round, later_rounds, plan
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
    # The ETDumps of its launches, in order.
    dumps: list[Path] = field(default_factory=list)

    @property
    def samples(self) -> Samples:
        return Samples(self.timed, self.traced)

    def file(self, suffix: str) -> Path:
        name = experiment_file(self.program.stem, self.experiment.name, self.experiment.num_threads, suffix)
        return self.scratch / name

    def dump(self, launch: int) -> Path:
        return self.file(f".etdump.launch{launch}")


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
        progress: Progress | None = None,
    ) -> None:
        self._platform = platform
        self._timeout_s = timeout_s
        self._lanes = list(lanes)
        self._outcomes = outcomes
        self._report = report
        self._seed = seed
        self._budget_s = budget_s
        self._progress = progress or Progress()
        self._sessions: dict[str, Session] = {}
        self._launch_s: dict[str, float] = {}
        self._start = time.monotonic()
        self._done, self._total = 0, 1
        # Who took each turn, in order.
        self.order: list[list[str]] = []
        self.settle_runs: int | None = None
        self.launches = 0
        self.plan = ""

    def run(self, rest: Rest | None = None) -> None:
        """Take all rounds, or those that are left. A lane that fails takes its experiment with it, and no other."""
        rest = rest or self.restore()
        try:
            first = first_round(self._lanes, self._seed)
            self._total = first.runs
            if rest.first is not None:
                self._take(rest.first, rest.shift)
            if not self.plan:
                lanes, reason = plan(self._lanes, self._cost(), self._budget_s)
                self._note(Planned([(lane.runs, lane.launches) for lane in lanes], reason))
                rest = Rest(None, later_rounds(self._lanes, first, self._seed), rest.shift)
            every = later_rounds(self._lanes, first, self._seed)
            self.launches, self._total = 1 + len(every) + rest.shift, first.runs + sum(each.runs for each in every)
            for each in rest.later:
                self._take(each, rest.shift)
        finally:
            with contextlib.ExitStack() as stack:
                for session in self._sessions.values():
                    stack.callback(session.close)

    def restore(self) -> Rest:
        """Take over what an interrupted run has noted; returns what is left to do."""
        kept, rest = what_is_left(self._progress.entries, self._lanes, self._seed, self._readable)
        if self._progress.entries:
            self._progress.keep_only(kept)
        steps: set[tuple[int, int]] = set()
        for entry in kept:
            if isinstance(entry, Taken) and (entry.round, entry.step) not in steps:
                steps.add((entry.round, entry.step))
                self.order.append([])
            if isinstance(entry, Taken):
                self.order[-1].append(entry.lane)
            self._apply(entry)
        sittings = self._progress.sittings
        if sittings:
            last = max((entry.turn.at_s for entry in kept if isinstance(entry, Taken)), default=0.0)
            self._start -= max(last, time.time() - sittings[0].wall_s)
        return rest

    def _readable(self, lane: str, launch: int, runs: int) -> bool:
        """Whether the ETDump of a launch is there, with all its executions: a machine may have gone down with it."""
        experiment = next(each.experiment for each in self._lanes if each.label == lane)
        outcome = self._outcomes[experiment.name]
        try:
            found = len(execution_times(outcome.dump(launch)))
        except KitError:
            return False
        return found == runs + (experiment.warmup if outcome.runner.kind == "foreign" else 0)

    def _note(self, entry: Entry) -> None:
        self._apply(entry)
        self._progress.add(entry)

    def _apply(self, entry: Entry) -> None:
        """What an entry means to this run, whether it has just been made or was found."""
        by_label = {lane.label: lane for lane in self._lanes}
        if isinstance(entry, Opened):
            outcome = self._outcomes[entry.experiment]
            outcome.features, outcome.ready = entry.features, entry.ready
        elif isinstance(entry, Settled):
            self.settle_runs = entry.settle_runs
        elif isinstance(entry, Planned):
            self._lanes = [
                Lane(lane.experiment, lane.kind, runs, launches)
                for lane, (runs, launches) in zip(self._lanes, entry.lanes, strict=True)
            ]
            self.plan = entry.reason
        elif isinstance(entry, Taken):
            lane = by_label[entry.lane]
            outcome = self._outcomes[lane.experiment.name]
            (outcome.timed if lane.kind is Kind.TIMED else outcome.traced).append(entry.turn)
            self._done += len(entry.turn.ns)
        elif isinstance(entry, Ended):
            lane = by_label[entry.lane]
            outcome = self._outcomes[lane.experiment.name]
            outcome.done = outcome.done or entry.done
            if lane.kind is not Kind.TIMED:
                outcome.dumps.append(outcome.dump(entry.launch))
            if entry.launch_s is not None:
                self._launch_s.setdefault(entry.lane, entry.launch_s)

    def _take(self, each: Round, shift: int) -> None:
        """One round: timed lanes side by side, then the others one by one, each straight from its warm-up.

        After an interruption there are `shift` more launches than rounds.
        """
        launch = each.launch + shift
        for index in each.together:
            self._guarded(index, functools.partial(self._open, launch=launch))
        if self.settle_runs is None:
            self._note(Settled(self._choose_settle_runs()))
        for step, turn in enumerate(each.turns, each.taken):
            self._new_turn(turn)
            for share in turn:
                self._execute(share, each.launch, step, launch)
        for index in each.together:
            self._guarded(index, functools.partial(self._finish, number=each.launch, launch=launch))
        if each.alone:
            self._new_turn(each.alone)
        for share in each.alone:
            self._guarded(share[0], functools.partial(self._open, launch=launch))
            self._execute(share, each.launch, ALONE, launch)
            self._guarded(share[0], functools.partial(self._finish, number=each.launch, launch=launch))

    def _new_turn(self, shares: tuple[tuple[int, int], ...]) -> None:
        self.order.append([self._lanes[index].label for index, _ in shares])

    def _execute(self, share: tuple[int, int], number: int, step: int, launch: int) -> None:
        index, count = share
        before = self._done
        self._guarded(index, functools.partial(self._turn, number=number, step=step, launch=launch, count=count))
        self._done = before + count
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
        request = Request(
            runner=outcome.runner,
            model=outcome.program.pte,
            inputs=outcome.program.inputs,
            threads=experiment.num_threads,
            warmup=experiment.warmup,
            disable_features=tuple(experiment.disable_features),
            log=outcome.file(".log"),
            etdump=outcome.dump(launch) if lane.kind is not Kind.TIMED else None,
            output_base=outcome.file("_output") if outcome.done is None and self._keeps_outputs(lane) else None,
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
            self._note(Opened(experiment.name, session.features, session.ready))

    def _choose_settle_runs(self) -> int:
        if not any(lane.kind is Kind.TIMED for lane in self._lanes):
            return 0
        warm = [min(o.ready.warmup_ns) for o in self._outcomes.values() if o.ready is not None and o.ready.warmup_ns]
        return 1 if not warm or max(warm) < _SETTLE_BELOW_NS else 0

    def _turn(self, lane: Lane, number: int, step: int, launch: int, count: int) -> None:
        at_s = round(time.monotonic() - self._start, 6)
        settle = (self.settle_runs or 0) if lane.kind is Kind.TIMED else 0
        session, began = self._sessions[lane.label], time.monotonic()
        times = session.run(settle + count)[settle:]
        if lane.kind is Kind.LAUNCHED:
            # Such a runner is started by its turn: all that was not execution.
            self._launch_s.setdefault(lane.label, max(0.0, time.monotonic() - began - sum(times) / 1e9))
        taken = Turn(len(self.order) - 1, at_s, times, min(session.preempted, count), launch)
        self._note(Taken(number, step, lane.label, taken))

    def _finish(self, lane: Lane, number: int, launch: int) -> None:
        session, began = self._sessions.pop(lane.label), time.monotonic()
        try:
            done = session.finish()
        finally:
            session.close()
        if not self.launches and lane.label in self._launch_s:
            # On a device, ending a process and fetching its files takes time too.
            self._launch_s[lane.label] += time.monotonic() - began
        outcome = self._outcomes[lane.experiment.name]
        first = outcome.done is None and self._keeps_outputs(lane)
        self._note(Ended(number, lane.label, launch, self._launch_s.get(lane.label), done if first else None))

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
