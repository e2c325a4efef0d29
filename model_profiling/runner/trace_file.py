"""What the shim of the kernel trace writes (see `kernel_trace.py`), read back: marks, and calls of kernels."""

from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError, RunError
from model_profiling.upstream.libraries import INVOKE

_LONGEST_TRACE = 1 << 30


class Invocation(msgspec.Struct, frozen=True):
    """XNNPACK was asked to run a delegate; its first mark follows."""


class Mark(msgspec.Struct, frozen=True):
    """The backend read its clock and was told `told_ns`: a delegate began, or a piece of an operator ended."""

    told_ns: int


class Calls(msgspec.Struct, frozen=True):
    """All calls of one kernel between two marks."""

    kernel: str
    count: int


Trace = list[Invocation | Mark | Calls]


def read_trace(path: Path) -> Trace:
    """Read what the shim wrote; a trace that was cut short is an error, not fewer kernels."""
    try:
        lines = files.content(path, _LONGEST_TRACE).decode(errors="replace").splitlines()
    except OSError as error:
        raise RunError(
            f"the kernel trace {path} cannot be read: {error.strerror}",
            "Look into the runner's log, or trace fewer executions.",
        ) from None
    if not lines or lines[-1] != "end":
        raise RunError(f"the kernel trace {path} is incomplete", "The runner ended before it was written; see its log.")
    trace: Trace = []
    for line in lines[:-1]:
        try:
            name, value = line.split(" ")
            number = int(value)
        except ValueError:
            raise InputError(f"kernel trace {path} is damaged at: {line[:80]!r}", "Run the trace again.") from None
        trace.append(Invocation() if name == INVOKE else Mark(number) if name == "-" else Calls(name, number))
    return trace
