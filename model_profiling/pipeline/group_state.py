"""What is known of a group of experiments so far: taken turn by turn, or found where an interrupted run left it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.base.errors import KitError
from model_profiling.formats.pte.sequence import SequenceProgram
from model_profiling.pipeline import progress_log
from model_profiling.pipeline.config_types import Experiment
from model_profiling.pipeline.foreign_runner import execution_times
from model_profiling.pipeline.schedule import TURN, Cost, Lane, LaneKind, Round, first_round, later_rounds
from model_profiling.runner.protocol import Done, Features, Ready
from model_profiling.store.made_by import RunnerRecord
from model_profiling.store.run_directory import Process, Samples, Turn, experiment_file

# Other runtimes are large processes, after whose turn a short model takes longer for many executions, and so it does on
# a processor that was idle: all of a group with one run for so long before a turn counts, so often at most.
_SETTLE_NS, _MOST_SETTLING = 20_000_000, 2000


@dataclass(frozen=True)
class MeasuredProgram:
    """What is executed: a .pte, what its files are called after, and its inputs (none: the runner feeds ones).

    Another runtime may take another file instead of the .pte.

    A language model has the tokens that its phases read, instead.
    """

    pte: Path
    stem: str
    inputs: tuple[Path, ...]
    sequence: SequenceProgram | None = None
    tokens: Path | None = None


@dataclass
class ExperimentOutcome:
    """What came of one experiment: its samples and last words, or why it failed."""

    program: MeasuredProgram
    experiment: Experiment
    runner: RunnerRecord
    scratch: Path
    timed: list[Turn] = field(default_factory=list)
    traced: list[Turn] = field(default_factory=list)
    features: Features | None = None
    ready: Ready | None = None
    done: Done | None = None
    failure: KitError | None = None
    # The executions before those in a profile, which another runtime's holds, too.
    traced_warmup: int = 0
    # The ETDumps of its launches, in order.
    dumps: list[Path] = field(default_factory=list)
    # Extra launches that measure start-up, and processes of timed executions.
    starts: list[Process] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    @property
    def samples(self) -> Samples:
        return Samples(self.timed, self.traced, starts=self.starts, processes=self.processes)

    def file(self, suffix: str) -> Path:
        name = experiment_file(self.program.stem, self.experiment.name, self.experiment.num_threads, suffix)
        return self.scratch / name

    def dump(self, launch: int) -> Path:
        return self.file(f".etdump.launch{launch}")


class GroupState:
    """The steps of a group and what they mean; each is noted as it is made, so that all of it can be found again."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        outcomes: dict[str, ExperimentOutcome],
        seed: int = 0,
        progress: progress_log.ProgressLog | None = None,
    ) -> None:
        self.lanes = list(lanes)
        self.outcomes = outcomes
        self.seed = seed
        self.progress = progress or progress_log.ProgressLog()
        # Seconds that starting and ending a process took, by lane; executions so far; when all began.
        self.launch_s: dict[str, float] = {}
        self.done = 0
        self.start = time.monotonic()
        # Who took each turn, in order.
        self.order: list[list[str]] = []
        self.settle_runs: int | None = None
        self.plan = ""
        self.launches = 0
        # What was asked for decides the first round; what was chosen after it, the later ones.
        self.first = first_round(self.lanes, seed)

    @property
    def foreign(self) -> bool:
        """Whether a runner is not the kit's."""
        return any(outcome.runner.kind == "foreign" for outcome in self.outcomes.values())

    @property
    def later(self) -> list[Round]:
        return later_rounds(self.lanes, self.first, self.seed)

    def restore(self) -> progress_log.RemainingRounds:
        """Take over what an interrupted run has noted; returns what is left to do."""
        kept, rest = progress_log.remaining_rounds(self.progress.entries, self.lanes, self.seed, self._readable)
        self.progress.entries = kept
        for entry in kept:
            if isinstance(entry, progress_log.TurnRecord):
                self.order += [[] for _ in range(entry.turn.turn + 1 - len(self.order))]
                self.order[entry.turn.turn].append(entry.lane)
            self._apply(entry)
        attempts = self.progress.attempts
        if attempts:
            last = max((entry.turn.at_s for entry in kept if isinstance(entry, progress_log.TurnRecord)), default=0.0)
            self.start -= max(last, time.time() - attempts[0].wall_s)
        return rest

    def _readable(self, lane: str, launch: int, runs: int) -> bool:
        """Return whether a launch left its ETDump with all executions: a machine may have gone down with it."""
        found_lane = next(each for each in self.lanes if each.label == lane)
        if found_lane.kind is LaneKind.STARTUP:
            return True
        experiment = found_lane.experiment
        outcome = self.outcomes[experiment.name]
        try:
            found = len(execution_times(outcome.dump(launch)))
        except KitError:
            return False
        return found == runs + (experiment.warmup if outcome.runner.kind == "foreign" else 0)

    def note(self, entry: progress_log.Entry) -> None:
        self._apply(entry)
        self.progress.add(entry)

    def _apply(self, entry: progress_log.Entry) -> None:
        """Apply an entry to this run, whether it has just been made or was found."""
        by_label = {lane.label: lane for lane in self.lanes}
        if isinstance(entry, progress_log.ExperimentStart):
            outcome = self.outcomes[entry.experiment]
            outcome.features, outcome.ready = entry.features, entry.ready
        elif isinstance(entry, progress_log.SettleRecord):
            self.settle_runs = entry.settle_runs
        elif isinstance(entry, progress_log.PlanRecord):
            self.lanes = [
                Lane(lane.experiment, lane.kind, runs, launches)
                for lane, (runs, launches) in zip(self.lanes, entry.lanes, strict=True)
            ]
            self.plan = entry.reason
        elif isinstance(entry, progress_log.TurnRecord):
            lane = by_label[entry.lane]
            outcome = self.outcomes[lane.experiment.name]
            if lane.kind is not LaneKind.STARTUP:
                (outcome.timed if lane.kind is LaneKind.TIMED else outcome.traced).append(entry.turn)
            self.done += len(entry.turn.ns)
        elif isinstance(entry, progress_log.ProcessEnd):
            lane = by_label[entry.lane]
            outcome = self.outcomes[lane.experiment.name]
            outcome.done = outcome.done or entry.done
            if lane.kind in (LaneKind.TRACED, LaneKind.LAUNCHED):
                outcome.dumps.append(outcome.dump(entry.launch))
            if entry.process is not None:
                (outcome.starts if lane.kind is LaneKind.STARTUP else outcome.processes).append(entry.process)
            if entry.launch_s is not None:
                self.launch_s.setdefault(entry.lane, entry.launch_s)

    def keeps_outputs(self, lane: Lane) -> bool:
        """Return whether this lane's outputs are kept: all lanes of an experiment compute the same."""
        mine = [each for each in self.lanes if each.experiment is lane.experiment and each.kind is not LaneKind.STARTUP]
        return lane is mine[-1]

    def uncounted(self, lane: Lane) -> int:
        """Return how many executions each turn of a lane begins with that do not count."""
        return (self.settle_runs or 0) if lane.kind is LaneKind.TIMED else 0

    def settles(self, lane: Lane) -> int:
        """Return how many executions come before each turn of a lane, of which nothing is said."""
        return self._settle_count(lane) if lane.kind is LaneKind.TIMED else 0

    def warmup(self, lane: Lane) -> int:
        """Return how many executions a process begins with: one that is traced has a single turn, and settles here."""
        own = lane.experiment.warmup
        return max(own, self._settle_count(lane)) if lane.kind is LaneKind.TRACED else own

    def _settle_count(self, lane: Lane) -> int:
        ready = self.outcomes[lane.experiment.name].ready
        beside = any(outcome.runner.kind == "runtime" for outcome in self.outcomes.values())
        if not beside or ready is None or not ready.warmup_ns:
            return 0
        return min(_SETTLE_NS // max(1, min(ready.warmup_ns)), _MOST_SETTLING)

    def cost(self) -> Cost:
        """Return what the first round took: lanes of every round, and lanes of a few."""
        sums = {LaneKind.TIMED: [0.0, 0.0], LaneKind.TRACED: [0.0, 0.0]}
        startup_s = 0.0
        for lane in self.lanes:
            outcome = self.outcomes[lane.experiment.name]
            if lane.kind is LaneKind.STARTUP:
                startup_s += self.launch_s.get(lane.label, 0.0)
                continue
            turns = outcome.timed if lane.kind is LaneKind.TIMED else outcome.traced
            if outcome.failure is not None or not turns:
                continue
            one = min(ns for turn in turns for ns in turn.ns) / 1e9
            launch = self.launch_s.get(lane.label, lane.experiment.warmup * one)
            settle = (self.uncounted(lane) + self.settles(lane)) / TURN
            both = sums[LaneKind.TRACED if lane.kind is LaneKind.TRACED else LaneKind.TIMED]
            both[0], both[1] = both[0] + launch, both[1] + one * (1 + settle)
        (launch_s, run_s), (traced_launch_s, traced_run_s) = sums[LaneKind.TIMED], sums[LaneKind.TRACED]
        return Cost(launch_s, run_s, traced_launch_s, traced_run_s, startup_s)
