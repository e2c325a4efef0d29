"""Finds what the order of events implies: which execution and which call each profiling event belongs to."""

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.formats.etdump.columns import Etdump
from model_profiling.upstream.event_names import CALLS, EXECUTE

Indices = npt.NDArray[np.int64]


class Nesting(msgspec.Struct, frozen=True, eq=False):
    """Executions in order, and for each profiling event the one it is in and the call around it (-1: none)."""

    # The event `Method::execute` of each execution.
    executions: Indices
    execution: Indices
    # The event of the call around each event: a DELEGATE_CALL for a delegated operator. A call has none itself.
    call: Indices

    def __len__(self) -> int:
        return len(self.executions)


def nest(dump: Etdump) -> Nesting:
    """Attach each event to the next `Method::execute` and the next call of its block, since parents end last."""
    events = dump.events
    is_execute = (events.name == dump.code(EXECUTE)) & ~events.delegated
    codes = [code for code in map(dump.code, CALLS) if code >= 0]
    is_call = np.isin(events.name, codes) & ~events.delegated
    # Loading has chain -1. Times would not do as a test: a delegate may count with a clock of its own.
    in_method = events.chain >= 0
    execute = _next(is_execute, events.block)
    execute[~(in_method | is_execute)] = -1
    executions = np.flatnonzero(is_execute)
    execution = np.where(execute < 0, -1, np.searchsorted(executions, execute))
    call = _next(is_call, events.block)
    if len(call):
        same_instruction = events.instruction == events.instruction[call]
        call[is_call | ~in_method | ~same_instruction | (events.chain != events.chain[call])] = -1
    return Nesting(executions, execution, call)


def _next(marked: npt.NDArray[np.bool_], block: npt.NDArray[np.int32]) -> Indices:
    """Return, for each event, the first marked one at or after it in its block, or -1."""
    markers = np.append(np.flatnonzero(marked), -1)
    following = markers[np.cumsum(marked) - marked]
    following[block != block[following]] = -1
    return following
