"""What made a measurement: the machine, and the runner with its libraries. A result is reused only by what made it."""

import msgspec

from model_profiling.store.machine import Machine
from model_profiling.store.run_directory import RunnerRecord


class Maker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything beside programs and settings that decides what is measured."""

    machine: Machine
    runner: RunnerRecord

    @property
    def identity(self) -> str:
        """Another one for another machine, another runner, or another byte of any library that it loads."""
        return f"{self.machine.sha256} {self.runner.content}"

    def difference(self, other: "Maker | None") -> str:
        """Return what about `other` is another maker, in words; '' if it is the same."""
        if other is None:
            return "by which machine and libraries they were measured was not recorded"
        return self.machine.difference(other.machine) or self.runner.difference(other.runner)
