"""KleidiAI's kernels as the XNNPACK backend calls them, and XNNPACK's clock: what kernel traces are made of."""

from pathlib import Path

from model_profiling.base.elf import MACHINES, Library, read_library
from model_profiling.upstream.libraries import BACKEND, file_of, installed_library
from model_profiling.upstream.reliance import PROVEN, NotCheckable, Reliance, why_not

# What the names of its functions begin with, and of those that multiply matrices.
KERNEL_PREFIX = "kai_run_"
MATRIX_KERNEL = "kai_run_matmul"
# XNNPACK's own entry into a delegate, which ExecuTorch calls in the same way.
INVOKE = "xnn_invoke_runtime"
# What a library exports that has XNNPACK in it.
INITIALIZE_XNNPACK = "xnn_initialize"
_NO_KERNELS = f"{file_of(BACKEND)} calls no {KERNEL_PREFIX}* function in a way that can be seen"


def traceable_kernels(library: Library) -> list[str]:
    """Return the kernels of a backend library that a preloaded library can stand in for, in order."""
    return sorted(name for name in library.bound_late & library.defined.keys() if name.startswith(KERNEL_PREFIX))


def trace_problem(libraries: Path) -> str:
    """Return why kernels cannot be traced with the aarch64 libraries in a folder; '' if they can."""
    if problem := why_not(KERNEL_CALLS):
        return problem
    return "" if traceable_kernels(read_library(libraries / file_of(BACKEND))) else _NO_KERNELS


def _check_calls() -> str:
    backend = installed_library(BACKEND)
    if backend.machine != MACHINES["aarch64"]:
        raise NotCheckable("the backend for this machine has no KleidiAI kernels; checked when one for Arm is used")
    return "" if traceable_kernels(backend) else _NO_KERNELS


def _checked_by_trace() -> str:
    raise NotCheckable("every trace is checked against its ETDump")


KERNEL_CALLS = Reliance(
    "kernel-calls",
    "KleidiAI in XNNPACK",
    f"the aarch64 backend exports its {KERNEL_PREFIX}* functions and calls them through its table of addresses",
    PROVEN,
    "the library's symbols and relocations, whenever a trace library is built",
    _check_calls,
    "kernels are unknown",
)
CLOCK_READS = Reliance(
    "clock-reads",
    "XNNPACK",
    "with profiling on, XNNPACK reads the clock when a delegate starts and after each operator object",
    f"XNNPACK in {PROVEN}",
    "the durations in the ETDump must be those that the trace told; otherwise nothing is assigned",
    _checked_by_trace,
    "which operator ran which kernel is unknown; the kernels of the whole run are listed",
)
RELIANCES = (KERNEL_CALLS, CLOCK_READS)
