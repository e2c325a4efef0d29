"""Reads an .onnx file's nodes and ONNX Runtime's profile of an execution, without onnx or onnxruntime.

The nodes are read from the protobuf itself, a ModelProto, walked through field by field, so that a file of the user's
own is read like one that the kit exported. Weights are skipped, not read. Field numbers are those of onnx.proto3, which
protobuf never changes. `torch.onnx.export(dynamo=True)` leaves in each node's `metadata_props` which modules it stands
in and the stack trace; other exporters leave nothing.

A profile (`SessionOptions.enable_profiling`) is a JSON list of events in whole microseconds, each written when it ends.
`<node>_kernel_time` is a node that ran, `model_run` after them is the whole execution. A node that runs a graph of its
own (If, Loop) comes after the nodes of that graph, and its time is counted without theirs. ONNX Runtime stops writing
after a million events; an execution that is not whole is left out.
"""

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import FormatError, InputError
from model_profiling.formats.etrecord.reader import frame

# ModelProto.graph, GraphProto.node, and the fields of NodeProto.
_GRAPH, _NODE = 7, 1
_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _METADATA = 1, 2, 3, 4, 5, 9
# AttributeProto.g and .graphs, and the nodes that have them: the branches of an If, the body of a Loop.
_SUBGRAPHS, _HOLDERS = (6, 11), ("If", "Loop", "Scan", "SequenceMap")
# Kinds of fields on the wire, and the sizes of those that always have one.
_VARINT, _BYTES, _SIZES = 0, 2, {1: 8, 5: 4}
# A network of twenty thousand nodes has fewer fields than this, nodes and numbers counted as several: nodes have many
# fields, and numbers are rare. A damaged file may have any number of all.
_MOST_FIELDS, _NODE_COUNTS, _NUMBER_COUNTS = 1_000_000, 20, 100
_MOST_DEPTH = 20
# Longer texts are not what an exporter writes; they count as not there.
_MOST_TEXT = 1 << 16

_SCOPES, _TRACE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
# What onnxscript's optimizer put in the place of several nodes has the properties of the last of them.
_REWRITTEN = "pkg.onnxscript.rewriter.rule_name"
_WEIGHT = ".weight"
# An element of a list of texts as Python prints it.
_ITEM = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")


class OnnxError(FormatError):
    """The file is not an ONNX model, or not a whole one."""

    format = "ONNX model"


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node with the line of PyTorch that it is from; what the file does not tell is empty, a line 0."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str = ""
    file: str = ""
    line: int = 0
    code: str = ""

    @property
    def linked(self) -> bool:
        return bool(self.file or self.module)


def read(path: Path) -> tuple[OnnxNode, ...]:
    """Return the nodes of the model's graph in order, those of subgraphs before the node that holds them."""
    with files.opened(path, OnnxError) as file:
        # An empty file cannot be mapped.
        data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if files.size_of(file) else b""
    return tuple(_Walk(path, data).model())


class _Walk:
    """A file while its fields are read; each field counts, so that no file takes for ever."""

    def __init__(self, path: Path, data: Any) -> None:
        self._path, self._data, self._left = path, data, _MOST_FIELDS

    def model(self) -> Iterator[OnnxNode]:
        found = False
        for number, start, end in self._messages(0, len(self._data)):
            if number == _GRAPH:
                found = True
                yield from self._graph(start, end, 0)
        if not found:
            raise OnnxError(self._path, "it has no graph", hint="Check that it is an .onnx, not another kind of file.")

    def _graph(self, start: int, end: int, depth: int) -> Iterator[OnnxNode]:
        if depth > _MOST_DEPTH:
            raise OnnxError(self._path, "its graphs are nested too deeply")
        for number, first, last in self._messages(start, end):
            if number == _NODE:
                yield from self._node(first, last, depth)

    def _node(self, start: int, end: int, depth: int) -> Iterator[OnnxNode]:
        texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _NAME: [], _OP_TYPE: []}
        properties: dict[str, str] = {}
        attributes: list[tuple[int, int]] = []
        self._left -= _NODE_COUNTS
        for number, first, last in self._messages(start, end):
            if number in texts:
                texts[number].append(self._text(first, last))
            elif number == _METADATA:
                entry = {field: self._text(begin, stop) for field, begin, stop in self._messages(first, last)}
                properties[entry.get(1, "")] = entry.get(2, "")
            elif number == _ATTRIBUTE:
                attributes.append((first, last))
        name, op_type = ("".join(texts[field][-1:]) for field in (_NAME, _OP_TYPE))
        for bounds in attributes if op_type in _HOLDERS else ():
            for number, first, last in self._messages(*bounds):
                if number in _SUBGRAPHS:
                    yield from self._graph(first, last, depth + 1)
        inputs = tuple(texts[_INPUT])
        module = _module(properties, inputs)
        yield OnnxNode(name, op_type, inputs, tuple(texts[_OUTPUT]), module, *frame(properties.get(_TRACE, "")))

    def _messages(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the number and the bounds of each field of a message that is bytes, text or another message."""
        at = start
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise OnnxError(self._path, "it has more fields than a model has")
            key, at = self._varint(at, end)
            kind = key & 7
            if kind == _VARINT:
                _, at = self._varint(at, end)
                self._left -= _NUMBER_COUNTS
                continue
            size = _SIZES.get(kind)
            if kind == _BYTES:
                size, at = self._varint(at, end)
            if size is None or size > end - at:
                raise OnnxError(self._path, f"what is at byte {at} is not a field, or is cut off")
            if kind == _BYTES:
                yield key >> 3, at, at + size
            at += size

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place, byte in enumerate(self._data[at : min(at + 10, end)]):
            value |= (byte & 127) << (7 * place)
            if byte < 128:
                return value, at + place + 1
        raise OnnxError(self._path, f"the number at byte {at} is cut off")

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode(errors="replace") if end - start <= _MOST_TEXT else ""


def _module(properties: dict[str, str], inputs: tuple[str, ...]) -> str:
    """Return the innermost module, before the operator's own name; of a convolution that a normalization was folded
    into, the module that has the weights, as in a .pte."""
    scopes = [one or other for one, other in _ITEM.findall(properties.get(_SCOPES, ""))]
    module = scopes[-2] if len(scopes) > 1 else ""
    if scopes and _REWRITTEN in properties:
        return next((name.removesuffix(_WEIGHT) for name in inputs if name.endswith(_WEIGHT)), module)
    return module


_PROFILE = "ONNX Runtime profile"
_KERNEL = "_kernel_time"
# Nodes that run a graph of their own.
_NESTING = ("If", "Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")
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
    data = files.read_bytes(path, _PROFILE)
    try:
        events = msgspec.json.decode(data, type=list[_Event])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"{_PROFILE} {path} cannot be read: {error}", _AGAIN) from None
    except RecursionError:
        raise InputError(f"{_PROFILE} {path} is nested too deeply", _AGAIN) from None
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
        if event.args.op_name in _NESTING:
            while waiting and events[waiting[-1]].ts >= event.ts:
                own[place] -= events[waiting.pop()].dur
            end = events[waiting[-1]].ts + events[waiting[-1]].dur if waiting else run.ts
        if event.ts + _CLOCK_US < end or event.ts + event.dur > run.ts + run.dur + _CLOCK_US or own[place] < 0:
            raise InputError(
                f"{_PROFILE} {path}: nodes ran at the same time, so that their times do not add up to an execution",
                "Measure one execution at a time, with execution_mode ORT_SEQUENTIAL.",
            )
        end = event.ts + event.dur
        waiting.append(place)
    starts = [max(0, event.ts - run.ts) for event in events]
    return OrtExecution([_node(event) for event in events], own, starts, run.dur)


def _node(event: _Event) -> OrtNode:
    inputs, outputs = map(_tensors, (event.args.input_type_shape, event.args.output_type_shape))
    return OrtNode(event.name.removesuffix(_KERNEL), event.args.op_name, inputs, outputs)


def _tensors(shapes: list[dict[str, _Shape]]) -> tuple[OrtTensor, ...]:
    return tuple(OrtTensor(dtype, tuple(shape)) for each in shapes for dtype, shape in each.items())
