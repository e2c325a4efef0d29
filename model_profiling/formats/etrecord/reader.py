"""From the bytes of an ETRecord to the source of each instruction, by method."""

import itertools
import re
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from model_profiling.base import files, zips
from model_profiling.base.errors import FormatError
from model_profiling.formats.graph_terms import packet
from model_profiling.upstream import names_in_files as contents
from model_profiling.upstream.names_in_files import EDGE_OPERATORS
from model_profiling.upstream.names_in_files import ETRECORD_IDENTIFIER as IDENTIFIER
from model_profiling.upstream.reliance import why_not

# A frame as `traceback` prints it. The code line is missing when the source was not at hand.
_FRAME = re.compile(r'^[ \t]*File "(.*)", line (\d{1,9}), in (.*)(?:\n(?![ \t]*File ")[ \t]+(.*))?', re.MULTILINE)

# The frameworks' own frames. ExecuTorch's examples are models, so they count as a user's.
_FRAMEWORK = re.compile(r"(?:^|(?:site|dist)-packages/)(?:torch|torchao|executorch(?!/examples))/")

# Modules no user wrote: torch.export's wrapper around the model, alone in the stack of what quantization inserts, and
# the placeholder of nodes that have no stack, such as reading a dynamic size.
_NO_MODULE = ("torch.export.", "_empty_nn_module_stack")

_SELF = re.compile(r"^L(?:\['self'\]|__self__)\.?")
T = TypeVar("T")

# What a node was made from, in torch.export's nested record of it: the last of each.
_ORIGIN, _ORIGIN_NAME = re.compile(r'"target": "([^"]*)"'), re.compile(r'"name": "([^"]*)"')

# What may be unpacked of one record in all, and no more than so many times its size.
MAX_UNPACKED = 256 << 20
# How Python writes numbers that JSON has not. An attention mask is enough for it.
_NOT_JSON = re.compile(rb"(?<=[:,\[ ])(-?Infinity|NaN)(?=[,\]} \n])")


@dataclass(frozen=True, slots=True)
class SourceNode:
    """An operator of the graph before delegation. What its metadata does not tell is empty, a line 0.

    `origin` is the operator of the captured model that it was made from, another one if that was decomposed:
    `aten.silu.default` becomes a sigmoid, a multiplication and, in fp16, conversions to fp32 and back.
    """

    op: str
    module_path: str
    module_type: str
    file: str
    line: int
    code: str
    debug_handle: int
    origin: str = ""
    # What the graph calls it, and what the captured model called the operator that it was made from.
    name: str = ""
    origin_name: str = ""


def operator(target: str) -> str:
    """Shorten `executorch.exir.dialects.edge.ops.aten.mean.dim` or `torch.ops.aten.mean.dim` to `aten.mean.dim`."""
    return target.removeprefix(EDGE_OPERATORS).removeprefix("torch.ops.").removeprefix("_operator.")


@lru_cache(maxsize=4096)
def module(nn_module_stack: str) -> tuple[str, str]:
    """Return path and class of the innermost module in `key,path,type;key,path,type`; the root's path is empty."""
    for item in reversed(nn_module_stack.split(";")):
        _, _, rest = item.partition(",")
        # From the right: a ModuleDict's key may have a comma, a class has none.
        path, _, kind = rest.rpartition(",")
        if kind and not kind.startswith(_NO_MODULE):
            return _SELF.sub("", path), kind.rpartition(".")[2]
    return "", ""


@lru_cache(maxsize=4096)
def frame(stack_trace: str) -> tuple[str, int, str]:
    """Return file, line and code of the innermost frame outside the frameworks, a `forward` if there is one.

    A model that is a framework's own (`torch.nn.LSTM`) has no frame outside; then its innermost `forward` is taken.
    """
    # What torch made while it traced, such as <eval_with_key>.37, is no file.
    frames = [found for found in _FRAME.finditer(stack_trace) if not found[1].startswith("<")]
    own = [found for found in frames if not _FRAMEWORK.search(found[1])]
    forwards = [found for found in own or frames if found[3] == "forward"]
    best = (forwards or own)[-1:]
    return (best[0][1], int(best[0][2]), (best[0][4] or "").strip()) if best else ("", 0, "")


class EtrecordError(FormatError):
    """The file is not an ETRecord, or not one with all that is needed."""

    format = "ETRecord"


class Archive:
    """An ETRecord while its file is open."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except zips.ERRORS as error:
            raise EtrecordError(path, f"it is not a complete zip file ({error})") from None
        self.path, self.names = path, frozenset(self._zip.namelist())
        self._left = min(MAX_UNPACKED, zips.most_unpacked(files.size_of(file)))
        if IDENTIFIER not in self.names:
            hint = "Check that it is an .etrecord, not another kind of file."
            raise EtrecordError(path, f"it has no member {IDENTIFIER}", hint=hint)

    def decode(self, name: str, type_: type[T]) -> T:
        """Read one member as JSON of a known shape; keys the shape does not name are skipped."""
        data = self._read(name)
        try:
            return msgspec.json.decode(_NOT_JSON.sub(b"null", data), type=type_)
        except (msgspec.DecodeError, ValueError) as error:
            raise EtrecordError(self.path, f"{name} is not what ExecuTorch writes: {error}") from None
        except RecursionError:
            raise EtrecordError(self.path, f"{name} is nested too deeply") from None

    def _read(self, name: str) -> bytes:
        """Unpack one member, after a look at what it claims to be."""
        if name not in self.names:
            raise EtrecordError(self.path, f"it has no member {name}", hint=_MISSING)
        info = self._zip.getinfo(name)
        if info.file_size > self._left:
            allowed = f"more than {MAX_UNPACKED} bytes, or than {zips.MAX_RATIO} times its size"
            raise EtrecordError(self.path, f"with {name} it unpacks to {allowed}")
        self._left -= info.file_size
        try:
            with self._zip.open(info) as member:
                # zipfile stops at the size the header claims, which we have just checked.
                return member.read(info.file_size + 1)
        except zips.ERRORS as error:
            raise EtrecordError(self.path, f"{name} is corrupt, or of an unknown compression ({error})") from None


_MISSING = (
    "Ask the exporter for the ETRecord after to_executorch(): with generate_etrecord=True it is complete only then."
)

# An instruction lists the nodes behind it; records of real models list each node about once in all.
_MAX_LISTED = 5_000_000

# How torch.export numbers dtypes (torch/_export/serde/schema.py).
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
}


@dataclass(frozen=True, slots=True)
class InstructionSource:
    """What one instruction of the .pte was made from. `delegate` is the backend, None for a kernel call."""

    instruction: int
    delegate: str | None
    nodes: tuple[SourceNode, ...]


@dataclass(frozen=True, slots=True)
class InputTensor:
    """A tensor the method takes; None stands for a size that is not fixed."""

    dtype: str
    sizes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class EtrecordGraph:
    """The method before delegation: its nodes by debug handle, all its operators, and its tensor inputs."""

    nodes: dict[int, tuple[SourceNode, ...]]
    operators: frozenset[str]
    inputs: tuple[InputTensor, ...]


@dataclass(frozen=True, slots=True)
class Etrecord:
    """What is behind each instruction (`sources`) and each debug handle (`graphs`), by method."""

    path: Path
    sources: dict[str, dict[int, InstructionSource]]
    graphs: dict[str, EtrecordGraph]

    def source(
        self, instruction: int, method: str = "forward", operator: str | None = None
    ) -> InstructionSource | None:
        """Return what the instruction an ETDump's event carries was made from; None for one that passes added.

        Nodes can share a handle (what quantization or a decomposition put around an operator has the operator's).
        `operator`, as the .pte has it (`aten::mean.out`), leaves those of that operator, if any.
        """
        found = self.sources.get(method, {}).get(instruction)
        if found is None or operator is None:
            return found
        named = tuple(node for node in found.nodes if packet(node.op) == packet(operator))
        return InstructionSource(instruction, found.delegate, named) if named else found

    def nodes(self, debug_handle: int, method: str = "forward") -> tuple[SourceNode, ...]:
        """Return the nodes with a debug handle, for the delegated operators whose backend kept it."""
        graph = self.graphs.get(method)
        return graph.nodes.get(debug_handle, ()) if graph else ()


class _Metadata(msgspec.Struct):
    stack_trace: str = ""
    nn_module_stack: str = ""
    debug_handle: str = ""
    from_node: str = ""


class _Node(msgspec.Struct):
    target: str
    metadata: _Metadata
    name: str | None = None


class _Name(msgspec.Struct):
    name: str = ""


class _Argument(msgspec.Struct):
    as_tensor: _Name | None = None


class _UserInput(msgspec.Struct):
    arg: _Argument


class _InputSpec(msgspec.Struct):
    user_input: _UserInput | None = None


class _Signature(msgspec.Struct):
    input_specs: list[_InputSpec] = []


class _Size(msgspec.Struct):
    as_int: int | None = None


class _TensorValue(msgspec.Struct):
    dtype: int
    sizes: list[_Size]


class _FxGraph(msgspec.Struct):
    nodes: list[_Node]
    tensor_values: dict[str, _TensorValue] = {}


class _GraphModule(msgspec.Struct):
    graph: _FxGraph
    signature: _Signature = msgspec.field(default_factory=_Signature)


class _ExportedProgram(msgspec.Struct):
    graph_module: _GraphModule


class _Delegate(msgspec.Struct):
    name: str | None = None


_Handles = dict[str, dict[int, int | list[int]]]
_Delegates = dict[str, dict[int, _Delegate]]


def read(path: Path) -> Etrecord:
    """Read which nodes of the model are behind each instruction; weights and sample inputs stay in the file."""
    if problem := why_not(contents.ETRECORD):
        raise EtrecordError(path, problem, hint="Use a version of ExecuTorch that the kit knows.")
    with files.opened(path, EtrecordError) as file:
        archive = Archive(path, file)
        handles = archive.decode(contents.HANDLES, _Handles)
        delegates = archive.decode(contents.DELEGATES, _Delegates) if contents.DELEGATES in archive.names else {}
        graphs = {method: _graph(archive, method, alone=len(handles) == 1) for method in handles}
    listed = 0
    sources: dict[str, dict[int, InstructionSource]] = {}
    for method, by_instruction in handles.items():
        sources[method] = {}
        known, backends = graphs[method].nodes, delegates.get(method, {})
        for instruction, value in by_instruction.items():
            # A delegate repeats a handle for every node that has it.
            lists = [
                known[each] for each in dict.fromkeys([value] if isinstance(value, int) else value) if each in known
            ]
            nodes = lists[0] if len(lists) == 1 else tuple(itertools.chain.from_iterable(lists))
            listed += len(nodes)
            if listed > _MAX_LISTED:
                raise EtrecordError(path, f"its instructions list more than {_MAX_LISTED} nodes")
            backend = backends[instruction].name or "" if instruction in backends else None
            sources[method][instruction] = InstructionSource(instruction, backend, nodes)
    return Etrecord(path, sources, graphs)


def _graph(archive: Archive, method: str, alone: bool) -> EtrecordGraph:
    """Read a method's graph before delegation."""
    name = f"{contents.EDGE_PROGRAM}/{method}"
    if alone and name not in archive.names and contents.EDGE_PROGRAM in archive.names:
        name = contents.EDGE_PROGRAM  # older ExecuTorch wrote a single one, without a method's name
    exported = archive.decode(name, _ExportedProgram).graph_module
    found = [_source(node) for node in exported.graph.nodes]
    nodes: dict[int, list[SourceNode]] = {}
    for node in found:
        # 0 is how ExecuTorch marks a node without a handle.
        if node.debug_handle:
            nodes.setdefault(node.debug_handle, []).append(node)
    by_handle = {handle: tuple(same) for handle, same in nodes.items()}
    return EtrecordGraph(by_handle, frozenset(node.op for node in found), _inputs(exported))


def _source(node: _Node) -> SourceNode:
    meta = node.metadata
    origin = operator("".join(_ORIGIN.findall(meta.from_node)[-1:]))
    origin_name = "".join(_ORIGIN_NAME.findall(meta.from_node)[-1:])
    place = *module(meta.nn_module_stack), *frame(meta.stack_trace)
    handle = int(meta.debug_handle) if re.fullmatch("[0-9]{1,18}", meta.debug_handle) else 0
    return SourceNode(operator(node.target), *place, handle, origin, node.name or "", origin_name)


def _inputs(module: _GraphModule) -> tuple[InputTensor, ...]:
    found = []
    for spec in module.signature.input_specs:
        name = spec.user_input.arg.as_tensor if spec.user_input else None
        value = module.graph.tensor_values.get(name.name) if name else None
        if value:
            dtype = _DTYPES.get(value.dtype, f"dtype {value.dtype}")
            found.append(InputTensor(dtype, tuple(size.as_int for size in value.sizes)))
    return tuple(found)
