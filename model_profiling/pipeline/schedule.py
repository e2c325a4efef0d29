"""Who runs when: launches of all experiments alternate, and processes that are timed take short turns side by side.

One process is one sample of where its memory happens to lie, which shifts all its executions alike. So every experiment
is launched several times, and the count follows from what a launch and an execution cost and from a time budget.
"""

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args

from model_profiling.base.errors import InputError
from model_profiling.pipeline.axes import alike, checked_threads
from model_profiling.pipeline.config import MODES, compare_pairs
from model_profiling.pipeline.config_types import MOST_LAUNCHES, Config, Experiment, PageCache

# The time that the executions of one group of experiments may take unless the user says otherwise, and the variable
# that changes it for all commands.
BUDGET_S = 30.0
BUDGET_VARIABLE = "SME2_KIT_BUDGET_S"
# Fewer launches bound no ratio at 95 % (analysis/timing/intervals.py); more than ENOUGH_LAUNCHES tell hardly more.
LEAST_LAUNCHES = 6
ENOUGH_LAUNCHES = 100
# Enough for an interval of every operator's time, and each operator's median needs no more executions than these.
TRACED_LAUNCHES = 8
TRACED_RUNS = 50
# The part of the budget that executions with a tracer may take, and that launches may take which only start.
TRACED_SHARE = 1 / 3
STARTUP_SHARE = 1 / 4
STARTUP_LAUNCHES = 10
# Executions in a turn: the shorter, the better drift cancels; but an uncounted run comes before each.
TURN = 3
MOST_RUNS_A_LAUNCH = 20


@dataclass(frozen=True)
class Counts:
    """Timed executions of each program, launches of it, and seconds for all; what is None is chosen to fit the rest.

    `startup_launches` are those that only start, with the .pte in the page cache or not.
    """

    runs: int | None = None
    launches: int | None = None
    budget_s: float | None = None
    startup_launches: int | None = None
    page_cache: PageCache = "warm"

    @property
    def of_experiment(self) -> dict[str, Any]:
        """The keys of an experiment that ask for it."""
        of_each = {key: getattr(self, key) for key in ("launches", "startup_launches", "page_cache")}
        return {"num_runs": self.runs, **of_each}


CHOSEN = Counts()


class LaneKind(Enum):
    """What a lane's executions are good for."""

    TIMED = "timed"
    TRACED = "traced"
    # Started, executed once and ended, with nothing else alive: to see how it starts.
    STARTUP = "startup"
    # A foreign runner cannot be paced: it is started for so many executions, with a tracer, and ends.
    LAUNCHED = "launched"


@dataclass(frozen=True)
class Lane:
    """One experiment with or without a tracer: launched so often, for so many executions in all.

    None is chosen when the first launch has shown what launches and executions cost.
    """

    experiment: Experiment
    kind: LaneKind
    runs: int | None
    launches: int | None

    @property
    def label(self) -> str:
        return f"{self.experiment.name}:{self.kind.value}"

    @property
    def first_runs(self) -> int:
        """The executions of the first launch, before anything has been chosen."""
        if self.kind is LaneKind.STARTUP:
            return 1
        if self.launches == 1:
            return self.runs or MOST_RUNS_A_LAUNCH
        if self.runs is None:
            return TURN
        return -(-self.runs // self.launches) if self.launches else max(1, min(TURN, self.runs // LEAST_LAUNCHES))


@dataclass(frozen=True)
class Cost:
    """What one launch (loading and warming up) and one execution took, in seconds, of all lanes that give latency
    together and of all lanes with a tracer together; and one launch of all lanes together that only start."""

    launch_s: float
    run_s: float
    traced_launch_s: float = 0.0
    traced_run_s: float = 0.0
    startup_s: float = 0.0


@dataclass(frozen=True)
class Round:
    """One launch of several lanes: those in `turns` side by side, then those `alone` one after the other.

    `turns[n]` is the order in which lanes take turn n and how often each executes in it; so is `alone`. Of a round that
    was interrupted it is what is left: `taken` turns came before.
    """

    launch: int
    turns: tuple[tuple[tuple[int, int], ...], ...]
    alone: tuple[tuple[int, int], ...]
    taken: int = 0

    @property
    def together(self) -> tuple[int, ...]:
        """The lanes whose processes are alive at the same time, in the order of their first turn."""
        return tuple(dict.fromkeys(lane for turn in self.turns for lane, _ in turn))

    @property
    def runs(self) -> int:
        return sum(runs for turn in (*self.turns, self.alone) for _, runs in turn)


def groups(config: Config) -> list[list[Experiment]]:
    """Return experiments that are compared with each other, directly or through others, together; the rest one by one.

    Those that differ only in their threads are compared, too, unless they only show which kernels run.
    """
    home = {experiment.name: {experiment.name} for experiment in config.experiments}
    for first, second in [*compare_pairs(config), *_of_other_threads(config)]:
        merged = home[first] | home[second]
        for name in merged:
            home[name] = merged
    result: list[list[Experiment]] = []
    seen: set[str] = set()
    for experiment in config.experiments:
        if experiment.name not in seen:
            seen |= home[experiment.name]
            result.append([other for other in config.experiments if other.name in home[experiment.name]])
    return result


def _of_other_threads(config: Config) -> list[tuple[str, str]]:
    """Return each timed experiment with the first of those that differ from it only in their threads, if some do."""
    timed = [experiment for experiment in config.experiments if MODES[experiment.mode] == "timing"]
    found = alike(timed, "num_threads", "startup_launches")
    swept = [members for members in found if len({member.num_threads for member in members}) > 1]
    return [(members[0].name, member.name) for members in swept for member in members[1:]]


def lanes_of(
    experiments: Sequence[Experiment], foreign: set[str], timed: bool = True, traced: bool = True, startups: bool = True
) -> list[Lane]:
    """Return each experiment's lanes. Without `timed`, where time means nothing, only traced ones; without `traced`
    none of those; without `startups` none that only start."""
    lanes = []
    for experiment in experiments:
        runs, launches = experiment.num_runs, experiment.launches
        if runs is not None and launches is not None:
            launches = min(launches, runs)
        evidence_only = not timed or MODES[experiment.mode] == "trace"
        if experiment.name in foreign:
            if evidence_only:
                runs, launches = runs or 1, 1
            lanes.append(Lane(experiment, LaneKind.LAUNCHED, runs, launches))
            continue
        if not evidence_only:
            lanes.append(Lane(experiment, LaneKind.TIMED, runs, launches))
        if traced:
            count = experiment.traced_runs or (min(runs, TRACED_RUNS) if runs is not None else None)
            if evidence_only:
                # Which kernels run needs no repetition.
                lanes.append(Lane(experiment, LaneKind.TRACED, count or 1, 1))
            else:
                asked = min(TRACED_LAUNCHES, launches, count or launches) if launches is not None else None
                lanes.append(Lane(experiment, LaneKind.TRACED, count, asked))
        if startups and not evidence_only and experiment.startup_launches != 0:
            lanes.append(Lane(experiment, LaneKind.STARTUP, experiment.startup_launches, experiment.startup_launches))
    return lanes


def first_round(lanes: Sequence[Lane], seed: int) -> Round:
    """Return a launch of every lane, which also shows what launches and executions cost."""
    return _round(lanes, 0, [lane.first_runs for lane in lanes], random.Random(f"{seed}/0"))


def plan(lanes: Sequence[Lane], cost: Cost, budget_s: float | None) -> tuple[list[Lane], str]:
    """Settle what was left open, for a budget in seconds; and say in words what was decided and why.

    With the default budget no run has fewer launches than an interval takes. How many executions a launch is worth
    follows the rule for sampling in two stages: the square root of what a launch costs in executions.
    """
    budget = default_budget_s() if budget_s is None else budget_s
    least = LEAST_LAUNCHES if budget_s is None else 1
    traced, traced_runs = _traced(cost, budget, least)
    a_launch = min(MOST_RUNS_A_LAUNCH, max(TURN, math.ceil(math.sqrt(cost.launch_s / max(cost.run_s, 1e-9)))))
    startups = max(least, min(STARTUP_LAUNCHES, int(budget * STARTUP_SHARE / max(cost.startup_s, 1e-9))))
    left_s = budget - traced * (cost.traced_launch_s + traced_runs * cost.traced_run_s) - startups * cost.startup_s
    fits = int(left_s / max(cost.launch_s + a_launch * cost.run_s, 1e-9))
    launches = max(least, min(ENOUGH_LAUNCHES, fits))
    asked = [lane.runs for lane in lanes if _gives_latency(lane) and lane.launches is None and lane.runs is not None]
    if asked:
        launches = min(launches, max(LEAST_LAUNCHES, max(asked) // TURN))
    chosen_counts = {LaneKind.TRACED: (traced, traced_runs), LaneKind.STARTUP: (startups, 1)}
    settled = [_settled(lane, *chosen_counts.get(lane.kind, (launches, a_launch))) for lane in lanes]
    chosen = any(_gives_latency(lane) and lane.launches is None for lane in lanes)
    return settled, _reason(launches, fits, budget, bool(asked)) if chosen else "as requested"


def default_budget_s() -> float:
    text = os.environ.get(BUDGET_VARIABLE, "")
    try:
        seconds = float(text) if text else BUDGET_S
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 1e6:
        raise InputError(
            f"{BUDGET_VARIABLE} is {text!r}, not a number of seconds above 0", "Unset it, or set it to 30."
        )
    return seconds


def _gives_latency(lane: Lane) -> bool:
    return lane.kind in (LaneKind.TIMED, LaneKind.LAUNCHED)


def _traced(cost: Cost, budget_s: float, least: int) -> tuple[int, int]:
    part_s, run_s = budget_s * TRACED_SHARE, max(cost.traced_run_s, 1e-9)
    launches = max(least, min(TRACED_LAUNCHES, int(part_s / (cost.traced_launch_s + TURN * run_s))))
    runs = int((part_s / launches - cost.traced_launch_s) / run_s)
    return launches, max(TURN, min(-(-TRACED_RUNS // TRACED_LAUNCHES), runs))


def _settled(lane: Lane, launches: int, a_launch: int) -> Lane:
    launches = launches if lane.launches is None else lane.launches
    if launches == 1 and (lane.launches == 1 or lane.runs is None):
        return Lane(lane.experiment, lane.kind, lane.first_runs, 1)
    runs = launches * a_launch if lane.runs is None else lane.runs
    # What the first launch has not made needs a second one.
    launches = max(launches, 2) if runs > lane.first_runs else launches
    return Lane(lane.experiment, lane.kind, max(runs, lane.first_runs), min(launches, runs))


def _reason(launches: int, fits: int, budget_s: float, asked: bool) -> str:
    if launches > max(fits, 1):
        return f"an interval needs {launches}; a budget of {budget_s:g} s is too short for them"
    if launches >= fits:
        return f"as many as fit a budget of {budget_s:g} s"
    return "enough for the requested runs" if asked else f"within a budget of {budget_s:g} s"


def later_rounds(lanes: Sequence[Lane], first: Round, seed: int) -> list[Round]:
    """Return the launches after the first, with what each lane has left spread over them, each shuffled."""
    taken = [
        sum(runs for turn in (*first.turns, first.alone) for i, runs in turn if i == at) for at in range(len(lanes))
    ]
    settled = [(lane.runs or 0, lane.launches or 1) for lane in lanes]
    total = max(launches for _, launches in settled)
    by_lane = []
    for done, (runs, launches) in zip(taken, settled, strict=True):
        rest, by_launch = runs - done, [0] * total
        for part in range(1, launches):
            share = rest * part // (launches - 1) - rest * (part - 1) // (launches - 1)
            by_launch[part * total // launches] = share
        by_lane.append(by_launch)
    return [
        _round(lanes, launch, [by_launch[launch] for by_launch in by_lane], random.Random(f"{seed}/{launch}"))
        for launch in range(1, total)
    ]


def _round(lanes: Sequence[Lane], launch: int, runs: Sequence[int], shuffler: random.Random) -> Round:
    """Cut timed executions into turns and draw the order of each; a process with a tracer takes all at once."""
    timed = [i for i, lane in enumerate(lanes) if lane.kind is LaneKind.TIMED and runs[i]]
    alone = [i for i, lane in enumerate(lanes) if lane.kind is not LaneKind.TIMED and runs[i]]
    count = max((-(-runs[i] // TURN) for i in timed), default=0)
    turns = []
    for turn in range(count):
        parts = [(i, runs[i] * (turn + 1) // count - runs[i] * turn // count) for i in timed]
        shuffler.shuffle(parts)
        turns.append(tuple(part for part in parts if part[1]))
    shuffler.shuffle(alone)
    return Round(launch, tuple(turns), tuple((i, runs[i]) for i in alone))


def checked_counts(
    runs: int | None,
    launches: int | None,
    budget_s: float | None,
    threads: int | Sequence[int] | None,
    spelled: Callable[[str], str] = lambda name: name,
    startup_launches: int | None = None,
    page_cache: PageCache = "warm",
) -> Counts:
    """Return what was asked for, if it can be had; `spelled` is how the user wrote each name."""
    for name, value in (("runs", runs), ("launches", launches)):
        if value is not None and value < 1:
            raise InputError(f"{spelled(name)} must be at least 1, not {value}", "Leave it out for the default.")
    if threads is not None:
        checked_threads([threads] if isinstance(threads, int) else list(threads), spelled("threads"))
    if launches is not None and launches > MOST_LAUNCHES:
        raise InputError(f"{spelled('launches')} must be at most {MOST_LAUNCHES}", "Leave it out for the default.")
    if budget_s is not None and not 0 < budget_s <= 1e6:
        raise InputError(
            f"{spelled('budget')} must be a number of seconds above 0, not {budget_s:g}", "For example 60."
        )
    if startup_launches is not None and not 0 <= startup_launches <= MOST_LAUNCHES:
        what = f"{spelled('startup_launches')} must be from 0 to {MOST_LAUNCHES}, not {startup_launches}"
        raise InputError(what, "Leave it out for the default; 0 measures no start-up.")
    if page_cache not in get_args(PageCache):
        raise InputError(f"{spelled('page_cache')} is {page_cache!r}", f"Use {' or '.join(get_args(PageCache))}.")
    return Counts(runs, launches, budget_s, startup_launches, page_cache)
