"""What a group of experiments has measured so far, on disk: one line for each step, so that the next run goes on there.

A line costs one write, without waiting for the disk. Whatever ends the kit leaves at most one torn line, the last.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.pipeline.schedule import Lane, LaneKind, Round, first_round, later_rounds
from model_profiling.runner.protocol import Done, Features, Ready
from model_profiling.store.run_directory import Conditions, Process, Turn


class SessionStart(msgspec.Struct, frozen=True, tag="sitting"):
    """A process of the kit took over: the first one, or one that goes on. `wall_s` is the time of day."""

    session: str
    experiments: list[str]
    started: str
    wall_s: float
    load: float
    boot: str
    environment: dict[str, object]
    # What it found there.
    launches: int = 0
    turns: int = 0


class ExperimentStart(msgspec.Struct, frozen=True, tag="opened"):
    """What the first process of an experiment said of itself."""

    experiment: str
    features: Features
    ready: Ready


class SettleRecord(msgspec.Struct, frozen=True, tag="settled"):
    settle_runs: int


class TurnRecord(msgspec.Struct, frozen=True, tag="taken"):
    """One lane's part of a turn. `step` is which turn of the round; lanes without turns have ALONE."""

    round: int
    step: int
    lane: str
    turn: Turn


class ProcessEnd(msgspec.Struct, frozen=True, tag="ended"):
    """A process ended in order: its files are complete. `done` is given once for each experiment; `process` if it
    had no tracer."""

    round: int
    lane: str
    launch: int
    launch_s: float | None
    done: Done | None = None
    process: Process | None = None


class PlanRecord(msgspec.Struct, frozen=True, tag="planned"):
    """What was chosen after the first round: runs and launches of each lane, and why."""

    lanes: list[tuple[int | None, int | None]]
    reason: str


class ConditionsRecord(msgspec.Struct, frozen=True, tag="conditions"):
    """What the machine went through in a sitting that was interrupted in order."""

    conditions: Conditions


Entry = SessionStart | ExperimentStart | SettleRecord | TurnRecord | ProcessEnd | PlanRecord | ConditionsRecord
ALONE = -1
_decoder = msgspec.json.Decoder(Entry)


class ProgressLog:
    """The entries of one group. Without a file, nothing outlasts this process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.entries: list[Entry] = list(_read(path)) if path is not None else []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self._path is not None:
            files.append_line(self._path, msgspec.json.encode(entry))

    def save(self) -> None:
        """Write all entries anew: after those that count for nothing are gone, a torn line among them."""
        if self._path is not None:
            files.write_bytes(self._path, b"".join(msgspec.json.encode(entry) + b"\n" for entry in self.entries))

    @property
    def attempts(self) -> list[SessionStart]:
        return [entry for entry in self.entries if isinstance(entry, SessionStart)]

    @property
    def conditions(self) -> list[Conditions]:
        return [entry.conditions for entry in self.entries if isinstance(entry, ConditionsRecord)]

    @property
    def turns(self) -> int:
        return len({entry.turn.turn for entry in self.entries if isinstance(entry, TurnRecord)})

    @property
    def launches(self) -> int:
        """Launches of which at least one turn is there."""
        return len({entry.turn.launch for entry in self.entries if isinstance(entry, TurnRecord)})

    @property
    def planned_launches(self) -> int | None:
        """How many launches there are to be in all; None before that was chosen."""
        plans = [entry for entry in self.entries if isinstance(entry, PlanRecord)]
        return max((launches or 1 for _, launches in plans[-1].lanes), default=1) if plans else None

    def describe_progress(self) -> str:
        """Return how far it is, in words. A launch that was interrupted and its rest are one of those planned."""
        begun = len({entry.round for entry in self.entries if isinstance(entry, TurnRecord)})
        planned = self.planned_launches
        return f"{begun} of {planned} planned launches" if planned else f"{begun} launches, before more were planned"


def _read(path: Path) -> Iterator[Entry]:
    """Yield the entries up to the first line that is none: nothing after a torn line can be trusted."""
    if not path.is_file():
        return
    for line in files.read_bytes(path, "progress").split(b"\n"):
        try:
            yield _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return


def combined(conditions: list[Conditions]) -> Conditions:
    """Return what a machine went through over several attempts; what the way to it cost is of the last one."""
    if not conditions:
        return Conditions()
    last = conditions[-1]
    throttled = dict.fromkeys(each.throttled for each in conditions if each.throttled)
    return Conditions(
        last.power,
        [sample for each in conditions for sample in each.heat],
        "; ".join(throttled),
        round(sum(each.cooled_down_s for each in conditions), 3),
        last.transport,
        last.c_library,
    )


# Whether the ETDump of a lane's launch is there and holds that many executions.
Readable = Callable[[str, int, int], bool]


@dataclass(frozen=True)
class RemainingRounds:
    """The rounds that are left, the first of all apart. Processes that were ended early were launches too: there are
    `shift` more launches than rounds."""

    first: Round | None
    later: list[Round]
    shift: int


def remaining_rounds(
    entries: Sequence[Entry], lanes: Sequence[Lane], seed: int, readable: Readable
) -> tuple[list[Entry], RemainingRounds]:
    """Return the entries that count, and the rounds that are left. A turn counts if every lane took its part of it."""
    first = first_round(lanes, seed)
    planned = next((entry for entry in entries if isinstance(entry, PlanRecord)), None)
    if planned is not None and len(planned.lanes) != len(lanes):
        entries, planned = [], None
    rounds = [first]
    if planned is not None:
        settled = zip(lanes, planned.lanes, strict=True)
        chosen = [Lane(lane.experiment, lane.kind, runs, launches) for lane, (runs, launches) in settled]
        rounds += later_rounds(chosen, first, seed)
    found = _Found(entries, lanes, readable)
    left: list[Round] = []
    for each in rounds:
        # What was done after something that is missing has to be done again in its place.
        rest = found.rest_of(each) if not left else each
        if rest.turns or rest.alone:
            left.append(rest)
    kept = [entry for entry in entries if not isinstance(entry, TurnRecord | ProcessEnd) or id(entry) in found.counted]
    highest = max((entry.turn.launch for entry in kept if isinstance(entry, TurnRecord)), default=-1)
    at = left[0].launch if left else len(rounds)
    # Lanes without turns are of a process each, so they may share the number of the launch they were to follow.
    begun = any(isinstance(entry, TurnRecord) and entry.round == at for entry in kept)
    shift = highest - at if begun and not left[0].turns else highest + 1 - at
    if planned is None:
        return kept, RemainingRounds(left[0] if left else None, [], shift)
    if left and left[0].launch == 0:
        return kept, RemainingRounds(left[0], left[1:], shift)
    return kept, RemainingRounds(None, left, shift)


class _Found:
    """Entries by what they are of; `counted` are the ones that belong to complete steps."""

    def __init__(self, entries: Sequence[Entry], lanes: Sequence[Lane], readable: Readable) -> None:
        self._lanes = lanes
        self._readable = readable
        self._taken = {(e.round, e.step, e.lane): e for e in entries if isinstance(e, TurnRecord)}
        self._ended = {(e.round, e.lane): e for e in entries if isinstance(e, ProcessEnd)}
        self.counted: set[int] = set()

    def rest_of(self, each: Round) -> Round:
        """Return what is left of a round, and what is not is counted."""
        turns = 0
        for step, shares in enumerate(each.turns):
            parts = [self._part(each.launch, step, share) for share in shares]
            if not all(parts):
                break
            turns += 1
            self.counted |= {id(part) for part in parts}
        if turns < len(each.turns):
            return replace(each, turns=each.turns[turns:], taken=turns)
        for index in each.together:
            self.counted.add(id(self._ended.get((each.launch, self._lanes[index].label))))
        return replace(each, turns=(), taken=turns, alone=self._alone_left(each))

    def _alone_left(self, each: Round) -> tuple[tuple[int, int], ...]:
        """Return the lanes without turns: timed ones belong together, kernel traces stand for themselves."""
        complete = {share[0] for share in each.alone if self._alone(each.launch, share)}
        compared = {index for index, _ in each.alone if not self._only_evidence(self._lanes[index])}
        if not compared <= complete:
            complete -= compared
        for index in complete:
            label = self._lanes[index].label
            self.counted |= {id(self._taken[each.launch, ALONE, label]), id(self._ended[each.launch, label])}
        return tuple(share for share in each.alone if share[0] not in complete)

    def _alone(self, number: int, share: tuple[int, int]) -> bool:
        label = self._lanes[share[0]].label
        part, ended = self._part(number, ALONE, share), self._ended.get((number, label))
        return part is not None and ended is not None and self._readable(label, ended.launch, share[1])

    def _part(self, number: int, step: int, share: tuple[int, int]) -> TurnRecord | None:
        part = self._taken.get((number, step, self._lanes[share[0]].label))
        return part if part is not None and len(part.turn.ns) == share[1] else None

    def _only_evidence(self, lane: Lane) -> bool:
        """Return whether nothing of its experiment is timed."""
        others = [other.kind for other in self._lanes if other.experiment.name == lane.experiment.name]
        return others == [LaneKind.TRACED]
