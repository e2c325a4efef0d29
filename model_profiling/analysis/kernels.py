"""Which kernels each operator called: the shim's trace laid beside the ETDump of the same run."""

import msgspec

from model_profiling import etdump
from model_profiling.runner.kernel_trace import Calls, Mark, Trace


class KernelCalls(msgspec.Struct, frozen=True):
    """One kernel and how often an operator called it."""

    kernel: str
    calls: int


class OperatorKernels(msgspec.Struct, frozen=True):
    """The kernels of one delegated operator of one execution, in the order of its ETDump."""

    name: str
    instruction: int
    kernels: list[KernelCalls]


class KernelEvidence(msgspec.Struct, frozen=True):
    """All kernels of a run: those called while the model was loaded (packing weights), and those of each operator.

    Where trace and dump do not fit together, `operators` is empty, `unassigned` has the kernels, and `note` says why.
    """

    at_load: list[KernelCalls]
    operators: list[OperatorKernels]
    unassigned: list[KernelCalls]
    note: str = ""


def assign_kernels(trace: Trace, dump: etdump.Etdump) -> KernelEvidence:
    """Give each operator the calls between its two marks: a delegate makes one when it starts and one per operator."""
    segments = _segments(trace)
    delegates = _delegates(dump)
    marks = len(segments) - 1
    expected = sum(1 + len(names) for _, names in delegates)
    if marks != expected:
        note = (
            f"the trace has {marks} marks where the ETDump asks for {expected}; kernels are not assigned to operators"
        )
        return KernelEvidence(_merged(segments[0]), [], _merged([c for s in segments[1:] for c in s]), note)
    operators, between, at = [], [], 0
    for instruction, names in delegates:
        between += segments[at] if at else []
        for number, name in enumerate(names):
            operators.append(OperatorKernels(name, instruction, _merged(segments[at + 1 + number])))
        at += 1 + len(names)
    between += segments[at] if at else []
    return KernelEvidence(_merged(segments[0]), operators, _merged(between))


def _segments(trace: Trace) -> list[list[Calls]]:
    """The calls before the first mark, between each two, and after the last."""
    segments: list[list[Calls]] = [[]]
    for entry in trace:
        if isinstance(entry, Mark):
            segments.append([])
        else:
            segments[-1].append(entry)
    return segments


def _delegates(dump: etdump.Etdump) -> list[tuple[int, list[str]]]:
    """The operators of each delegate call in the order they ran, over all executions of the dump."""
    nesting, events = etdump.nest(dump), dump.events
    calls: dict[int, list[str]] = {}
    code = dump.code("DELEGATE_CALL")
    for index in range(len(events)):
        if events.name[index] == code and nesting.execution[index] >= 0:
            calls.setdefault(index, [])
        elif events.delegated[index] and nesting.call[index] >= 0:
            calls.setdefault(int(nesting.call[index]), []).append(dump.strings[events.delegate[index]])
    return [(int(events.instruction[call]), calls[call]) for call in sorted(calls)]


def _merged(calls: list[Calls]) -> list[KernelCalls]:
    counts: dict[str, int] = {}
    for entry in calls:
        counts[entry.kernel] = counts.get(entry.kernel, 0) + entry.count
    return [KernelCalls(kernel, count) for kernel, count in counts.items()]
