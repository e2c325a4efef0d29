"""What a group of experiments has measured so far, on disk: one line for each step, so that the next run goes on there.

A line costs one write, without waiting for the disk. Whatever ends the kit leaves at most one torn line, the last.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from model_profiling.base import files
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
    def sittings(self) -> list[SessionStart]:
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

    def said(self) -> str:
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
    """Return what a machine went through over several sittings; what the way to it cost is of the last one."""
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
