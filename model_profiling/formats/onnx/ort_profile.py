"""ONNX Runtime's profile (`SessionOptions.enable_profiling`): a JSON list of events in whole microseconds.

An event is written when it ends. One named `<node>_kernel_time` is a node that ran, `model_run` after them is the whole
execution. A node that runs a graph of its own (If, Loop) comes after the nodes of that graph, and its time is counted
without theirs. ONNX Runtime stops writing after a million events; an execution that is not whole is left out.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError

_WHAT = "ONNX Runtime profile"
_KERNEL = "_kernel_time"
# Nodes that run a graph of their own.
_HOLDERS = ("If", "Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")
# Clocks start and end a microsecond apart from each other at most.
_CLOCK_US = 1

_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
_Shape = Annotated[list[_Number], msgspec.Meta(max_length=64)]


class _Args(msgspec.Struct):
    op_name: str = ""
    input_type_shape: list[dict[str, _Shape]] = []
    output_type_shape: list[dict[str, _Shape]] = []


class _Event(msgspec.Struct):
    name: str
    ts: _Number
    dur: _Number
    cat: str = ""
    args: _Args = msgspec.field(default_factory=_Args)


class OrtTensor(msgspec.Struct, frozen=True):
    """A tensor as the profile has it: `float`, `[1, 32, 16, 16]`."""

    dtype: str
    shape: tuple[int, ...]


class OrtNode(msgspec.Struct, frozen=True):
    """A node that ran. Weights that its kernel packed beforehand are not among `inputs`."""

    name: str
    op_type: str
    inputs: tuple[OrtTensor, ...]
    outputs: tuple[OrtTensor, ...]


class OrtExecution(msgspec.Struct, frozen=True):
    """One execution, in microseconds: what each node took without the nodes inside it, and when it began; in the order
    in which nodes ended."""

    nodes: list[OrtNode]
    own_us: list[int]
    start_us: list[int]
    whole_us: int


def read_profile(path: Path) -> list[OrtExecution]:
    """Return the whole executions of a profile, in order."""
    data = files.read_bytes(path, _WHAT)
    try:
        events = msgspec.json.decode(data, type=list[_Event])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"{_WHAT} {path} cannot be read: {error}", _AGAIN) from None
    except RecursionError:
        raise InputError(f"{_WHAT} {path} is nested too deeply", _AGAIN) from None
    found: list[OrtExecution] = []
    nodes: list[_Event] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(_KERNEL):
            nodes.append(event)
        elif event.cat == "Session" and event.name == "model_run":
            found.append(_execution(path, event, nodes))
            nodes = []
    return found


_AGAIN = "It is cut or of another program: measure again."


def _execution(path: Path, run: _Event, events: list[_Event]) -> OrtExecution:
    """Return an execution whose nodes ran one after the other; times of others would not add up to it."""
    own, waiting, end = [event.dur for event in events], list[int](), run.ts
    for place, event in enumerate(events):
        if event.args.op_name in _HOLDERS:
            while waiting and events[waiting[-1]].ts >= event.ts:
                own[place] -= events[waiting.pop()].dur
            end = events[waiting[-1]].ts + events[waiting[-1]].dur if waiting else run.ts
        if event.ts + _CLOCK_US < end or event.ts + event.dur > run.ts + run.dur + _CLOCK_US or own[place] < 0:
            raise InputError(
                f"{_WHAT} {path}: nodes ran at the same time, so that their times do not add up to an execution",
                "Measure one execution at a time, with execution_mode ORT_SEQUENTIAL.",
            )
        end = event.ts + event.dur
        waiting.append(place)
    starts = [max(0, event.ts - run.ts) for event in events]
    return OrtExecution([_node(event) for event in events], own, starts, run.dur)


def _node(event: _Event) -> OrtNode:
    args = event.args
    return OrtNode(
        event.name.removesuffix(_KERNEL),
        args.op_name,
        _tensors(args.input_type_shape),
        _tensors(args.output_type_shape),
    )


def _tensors(shapes: list[dict[str, _Shape]]) -> tuple[OrtTensor, ...]:
    return tuple(OrtTensor(dtype, tuple(shape)) for each in shapes for dtype, shape in each.items())
