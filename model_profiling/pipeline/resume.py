"""What an interrupted group of experiments still has to do: which steps are complete, which rounds are left of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from model_profiling.pipeline.progress_log import ALONE, Entry, PlanRecord, ProcessEnd, TurnRecord
from model_profiling.pipeline.schedule import Lane, LaneKind, Round, first_round, later_rounds

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
