"""Which kernels each operator called: the shim's trace laid beside the ETDump of the same run.

The shim told XNNPACK every time it asked for (see `runner/kernel_trace.py`), so an operator's duration in the dump
leads from the read at which it began to the one at which it ended. What does not fit in this way is not assigned.
"""

from collections.abc import Iterable

import msgspec

from model_profiling.analysis.timing.categories import CategoryTable
from model_profiling.base.records import sum_by_key
from model_profiling.formats import etdump
from model_profiling.runner.trace_file import Calls, Invocation, Mark, Trace
from model_profiling.upstream.libraries import CLOCK_READS, MATRIX_KERNEL
from model_profiling.upstream.names_in_files import DELEGATE_CALL
from model_profiling.upstream.reliance import why_not

ELIGIBLE = ("CONV", "GEMM")


class KernelCalls(msgspec.Struct, frozen=True):
    """One kernel and how often it was called; None where nothing was counted: it is known from a table."""

    kernel: str
    calls: int | None


class OperatorKernels(msgspec.Struct, frozen=True):
    """The kernels of one delegated operator of one execution, in the order of its ETDump."""

    name: str
    instruction: int
    kernels: list[KernelCalls]
    execution: int = 0


class KernelEvidence(msgspec.Struct, frozen=True):
    """All kernels of a run: those called while the model was loaded (packing weights), and those of each operator.

    `unassigned` are those outside the dump's operators: of executions before the dump's, or between two delegates.
    Where trace and dump do not fit together, `unknown` says why, `operators` is empty and `unassigned` has the kernels.
    """

    at_load: list[KernelCalls]
    operators: list[OperatorKernels]
    unassigned: list[KernelCalls]
    unknown: str = ""


class _Invocation(msgspec.Struct):
    """What the trace saw of one run of a delegate: `calls[n]` came after n of the reads of its clock."""

    told_ns: list[int] = []
    calls: list[list[Calls]] = msgspec.field(default_factory=lambda: [[]])


class _Delegate(msgspec.Struct, frozen=True):
    """What the dump says of one run of a delegate: the names of its operators and what they took."""

    execution: int
    instruction: int
    operators: list[tuple[str, int]] = []


class _MismatchError(Exception):
    """Trace and dump do not fit together; the text says where."""


def assign_kernels(trace: Trace, dump: etdump.Etdump) -> KernelEvidence:
    """Give each operator the calls between the reads of the clock at which it began and ended."""
    at_load, invocations = _invocations(trace)
    operators: list[OperatorKernels] = []
    outside: list[Calls] = []
    try:
        if problem := why_not(CLOCK_READS):
            raise _MismatchError(problem)
        delegates = _delegates(dump)
        # Runs before those of the dump, such as warm-up: the dump has the last ones.
        earlier = len(invocations) - len(delegates)
        if earlier < 0:
            traced = len(invocations)
            raise _MismatchError(f"the kernel trace has {traced} delegate calls, the ETDump {len(delegates)}")
        for delegate, invocation in zip(delegates, invocations[earlier:], strict=True):
            found, rest = _assigned(delegate, invocation)
            operators += found
            outside += rest
        _verify_places(operators, outside)
    except _MismatchError as problem:
        return KernelEvidence(_merged(at_load), [], _merged(_calls(invocations)), str(problem))
    return KernelEvidence(_merged(at_load), operators, _merged([*_calls(invocations[:earlier]), *outside]))


def _invocations(trace: Trace) -> tuple[list[Calls], list[_Invocation]]:
    """Return the calls before the first delegate ran, and what there was of each that ran."""
    found: list[_Invocation] = [_Invocation()]
    for entry in trace:
        match entry:
            case Invocation():
                found.append(_Invocation())
            case Mark(told_ns):
                found[-1].told_ns.append(told_ns)
                found[-1].calls.append([])
            case Calls():
                found[-1].calls[-1].append(entry)
    return list(_calls(found[:1])), found[1:]


def _delegates(dump: etdump.Etdump) -> list[_Delegate]:
    """Return every delegate call of the dump with its operators, both in the order in which they ran."""
    nesting, events = etdump.nest(dump), dump.events
    durations = events.duration
    code = dump.code(DELEGATE_CALL)
    calls: dict[int, _Delegate] = {}
    for index in range(len(events)):
        parent = index if events.name[index] == code else int(nesting.call[index])
        if nesting.execution[index] < 0 or parent < 0 or not (events.delegated[index] or parent == index):
            continue
        where = _Delegate(int(nesting.execution[parent]), int(events.instruction[parent]))
        delegate = calls.setdefault(parent, where)
        if parent != index:
            delegate.operators.append((dump.strings[events.delegate[index]], int(durations[index])))
    return [calls[call] for call in sorted(calls)]


def _assigned(delegate: _Delegate, invocation: _Invocation) -> tuple[list[OperatorKernels], list[Calls]]:
    """Return the kernels of each operator of a delegate, and the calls before the first and after the last."""
    reads = {told_ns: number for number, told_ns in enumerate(invocation.told_ns)}
    at, found = 0, []
    if not reads:
        raise _MismatchError(
            f"the kernel trace has no clock mark in the delegate at instruction {delegate.instruction}"
        )
    for name, duration in delegate.operators:
        end = reads.get(invocation.told_ns[at] + duration, -1)
        if end <= at:
            raise _MismatchError(
                f"the kernel trace has no clock mark where the ETDump ends {name} (instruction {delegate.instruction})"
            )
        kernels = _merged(call for calls in invocation.calls[at + 1 : end + 1] for call in calls)
        found.append(OperatorKernels(name, delegate.instruction, kernels, delegate.execution))
        at = end
    return found, [call for calls in (*invocation.calls[:1], *invocation.calls[at + 1 :]) for call in calls]


def _verify_places(operators: list[OperatorKernels], outside: list[Calls]) -> None:
    """Raise if a matrix kernel lies where none can be: the fit was then no more than chance."""
    table = CategoryTable()
    for operator in operators:
        kernel = next((x.kernel for x in operator.kernels if x.kernel.startswith(MATRIX_KERNEL)), "")
        kind = table.classify(operator.name, True)
        if kernel and kind.known and kind.category not in ELIGIBLE:
            raise _MismatchError(f"{kernel} would belong to {operator.name}, which is not a matrix operator")
    stray = next((call.kernel for call in outside if call.kernel.startswith(MATRIX_KERNEL)), "")
    if stray:
        raise _MismatchError(f"{stray} is outside all operators of the ETDump")


def _calls(invocations: list[_Invocation]) -> Iterable[Calls]:
    return (call for invocation in invocations for calls in invocation.calls for call in calls)


def _merged(calls: Iterable[Calls]) -> list[KernelCalls]:
    counts = sum_by_key((entry.kernel, entry.count) for entry in calls)
    return [KernelCalls(kernel, count) for kernel, count in counts.items()]
