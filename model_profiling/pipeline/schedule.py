"""Who runs when: experiments that are compared take short turns side by side, in a seeded order."""

import random
from dataclasses import dataclass
from enum import Enum

from model_profiling.pipeline.config import MODES, Config, Experiment, compare_pairs

MOST_TURNS = 20
# The first run of a turn finds the caches full of its neighbour's data. Turns without a tracer begin with a run that is
# not counted; turns with one cannot, so they are fewer and longer.
LEAST_TRACED_TURN = 5
MOST_LAUNCHES = 5


class Kind(Enum):
    """What a lane's executions are good for."""

    TIMED = "timed"
    TRACED = "traced"
    # A foreign runner cannot be paced: each of its turns is a launch of its own, with a tracer.
    LAUNCHED = "launched"


@dataclass(frozen=True)
class Lane:
    """One process of one experiment and how many runs it makes in each turn."""

    experiment: Experiment
    kind: Kind
    runs_by_turn: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"{self.experiment.name}:{self.kind.value}"


@dataclass(frozen=True)
class Schedule:
    """The turns of one group; `order[turn]` is the order in which its lanes run."""

    lanes: tuple[Lane, ...]
    order: tuple[tuple[int, ...], ...]

    @property
    def turns(self) -> int:
        return len(self.order)

    @property
    def total_runs(self) -> int:
        return sum(sum(lane.runs_by_turn) for lane in self.lanes)


def groups(config: Config) -> list[list[Experiment]]:
    """Experiments that are compared with each other, directly or through others, together; the rest one by one."""
    home = {experiment.name: {experiment.name} for experiment in config.experiments}
    for first, second in compare_pairs(config):
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


def interleave(
    experiments: list[Experiment], foreign: set[str], seed: int, timed: bool = True, traced: bool = True
) -> Schedule:
    """Spread every lane's runs over the turns and shuffle each turn, so that drift meets all lanes alike.

    Without `timed`, where time means nothing, there are only traced lanes; without `traced` there are none.
    """
    turns = min(MOST_TURNS, max(experiment.num_runs for experiment in experiments))
    lanes = []
    for experiment in experiments:
        runs, with_tracer = experiment.num_runs, experiment.runs_traced
        if experiment.name in foreign:
            lanes.append(Lane(experiment, Kind.LAUNCHED, _spread(runs, min(MOST_LAUNCHES, runs), turns)))
            continue
        if timed and MODES[experiment.mode] == "timing":
            lanes.append(Lane(experiment, Kind.TIMED, _spread(runs, min(runs, turns), turns)))
        if traced:
            used = max(1, with_tracer // LEAST_TRACED_TURN)
            lanes.append(Lane(experiment, Kind.TRACED, _spread(with_tracer, used, turns)))
    shuffler = random.Random(seed)
    order = []
    for _ in range(turns):
        indices = list(range(len(lanes)))
        shuffler.shuffle(indices)
        order.append(tuple(indices))
    return Schedule(tuple(lanes), tuple(order))


def _spread(runs: int, used: int, turns: int) -> tuple[int, ...]:
    """`runs` in at most `used` of `turns` turns, evenly and spaced over all of them."""
    used = min(used, turns)
    by_turn = [0] * turns
    for part in range(used):
        by_turn[part * turns // used] = runs * (part + 1) // used - runs * part // used
    return tuple(by_turn)
