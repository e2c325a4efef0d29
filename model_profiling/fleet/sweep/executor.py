"""What carries jobs out: the small protocol that this machine and a Ray cluster have in common."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from model_profiling.base import files
from model_profiling.fleet.sweep.jobs import Job

# What a job waits for that needs no words: other jobs of its own sweep.
OWN = "other jobs of this sweep"
# That a job took, or since 1970: numbers of other machines and of files, with which one can count.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
# What a job says of a target that somebody measures on (`TakenError` in platforms/locks.py).
_TAKEN = " is being measured"


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended. Without a `failure` it did what it should; `lost` says that nobody knows how far it came."""

    seconds: float
    failure: str = ""
    hint: str = ""
    lost: bool = False
    # Where it ran, if that is not this machine, and where its result has come to; it is still to be put in place.
    node: str = ""
    incoming: Path | None = None

    @property
    def busy(self) -> bool:
        """Whether somebody measures on the target from another machine: one waits for it as for any other lock."""
        return _TAKEN in self.failure


@dataclass(frozen=True)
class FinishedJob:
    job: Job
    outcome: JobOutcome


class Executor(Protocol):
    # Whether measurements on this machine wait until there is no other work: they stop it.
    host_comes_last: bool

    def lane(self, job: Job) -> str:
        """Return the lane of a job: jobs of one lane need the same thing, and wait where the first of them waits."""

    def start(self, job: Job, words: tuple[str, ...]) -> str:
        """Start a job if what it needs is free; else say what it waits for, in words."""

    def ended(self, timeout_s: float) -> list[FinishedJob]:
        """Return the jobs that have ended since the last call; waits for one, but not longer than this."""

    def doing(self, job: Job) -> str:
        """Return what a running job says it does; '' if it says nothing."""

    def close(self) -> None:
        """End all that runs, and leave nothing behind."""


def failure_of(log: str, code: int) -> tuple[str, str]:
    """Return what went wrong and what to do, as a command said it last."""
    _, found, error = f"\n{log.strip()}".rpartition("\nerror: ")
    message, _, hint = error.partition("\n  fix: ")
    if found:
        return " ".join(message.split()), " ".join(hint.split())
    last = log.strip().rpartition("\n")[2]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the command {how}" + (f"; it said last: {last[:300]}" if last else ""), "See its log."


def last_line(path: Path) -> str:
    """Return what a command said last, from the end of its log."""
    lines = files.tail(path, 400).strip().splitlines()
    return lines[-1] if lines else ""
