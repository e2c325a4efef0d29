"""Reads a .pte, ExecuTorch's program file, without torch, executorch or flatbuffers.

A .pte is a flatbuffer (`ET12` at byte 4, schema in the wheel: `executorch/schema/program.fbs`) with an extended header
(`eh00` at byte 8) that says where it ends; weights and delegate blobs follow as segments and are not read here, unless
asked for: `xnnpack_graph` reads the graph at the head of an XNNPACK blob, and `dataflow` joins both into which operator
feeds which.

A method has one chain in every file ExecuTorch 1.5.1 writes. The index of an instruction in its chain is the number an
ETDump's events carry and the number an ETRecord's maps are keyed by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.errors import FormatError
from model_profiling.base.file_memo import FileMemo
from model_profiling.formats.pte.flatbuffer import Buffer, FlatTable
from model_profiling.upstream import program_schema as schema
from model_profiling.upstream.reliance import why_not
from model_profiling.upstream.xnnpack_schema import XNNPACK_SCHEMA

KERNEL, DELEGATE = schema.INSTRUCTION_KINDS[:2]
SCALAR_TYPES = schema.SCALAR_TYPES
SCALAR_BYTES = {
    **{"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4},
    **{"float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1},
}

# Numbers in the union KernelTypes. A list of integers holds the numbers of other values, as a list of tensors does.
_INT, _TENSOR, _INT_LIST, _TENSOR_LIST, _OPTIONAL_TENSOR_LIST = (
    1 + schema.VALUE_KINDS.index(kind) for kind in ("Int", "Tensor", "IntList", "TensorList", "OptionalTensorList")
)
_MAX_PROGRAM = 1 << 31  # the largest a flatbuffer can be
_HEADER = 40


class PteError(FormatError):
    """The file is not an ExecuTorch program, or not a whole one."""

    format = ".pte"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor; `sizes` are upper bounds where `dynamic`. `dim_order` names the dimensions from outer to inner.

    `constant` tensors come with the program: weights, and buffers' first values.
    """

    dtype: str
    sizes: tuple[int, ...]
    dynamic: bool
    dim_order: tuple[int, ...] = ()
    constant: bool = False


# What an instruction may take: a tensor, a whole number, the numbers of other values, or something not read here.
Value = TensorSpec | int | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Instruction:
    """`index` is what an ETDump calls instruction. `name` is the operator (`aten::mean.out`) or the backend.

    `arguments` are numbers of the method's values: what a kernel or a delegate takes, then what it returns.
    """

    chain: int
    index: int
    kind: str
    name: str
    delegate: int | None = None
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Delegate:
    """A backend and the bytes of the file its blob takes."""

    backend: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Method:
    """`inputs` and `outputs` hold None for what is not a tensor; `takes` and `returns` are their places in `values`."""

    name: str
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec | None, ...]
    values: tuple[Value, ...] = ()
    takes: tuple[int, ...] = ()
    returns: tuple[int, ...] = ()
    # The bytes of each planned arena, by its memory id, which count from 1.
    planned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    path: Path
    version: int
    methods: tuple[Method, ...]
    # Bytes of constant tensors that no delegate has taken, and of data that delegates look up by name.
    constant_bytes: int = 0
    named_bytes: int = 0

    @property
    def usual_method(self) -> str:
        """The method to run if nobody names one: `forward`; else the only one that does anything."""
        working = [method.name for method in self.methods if method.instructions]
        return working[0] if len(working) == 1 and "forward" not in working else "forward"

    def method(self, name: str) -> Method | None:
        return next((method for method in self.methods if method.name == name), None)

    def blob(self, delegate: Delegate, start: int, size: int) -> bytes:
        """Read `size` bytes of a delegate's blob from `start` on, without its gigabytes of weights."""
        if start < 0 or size < 0 or start + size > delegate.size:
            raise PteError(
                self.path, f"a delegate's blob has {delegate.size} bytes, not {start + size}", delegate.offset
            )
        with files.opened(self.path, PteError) as file:
            file.seek(delegate.offset + start)
            data = file.read(size)
        if len(data) != size:
            raise PteError(self.path, "it is cut short", delegate.offset)
        return data


@dataclass(frozen=True, slots=True)
class _Blobs:
    """Where delegate blobs are: inline in the flatbuffer or in segments after it, each (offset, size) in the file."""

    inline: tuple[tuple[int, int], ...]
    segments: tuple[tuple[int, int], ...]


def parse(path: Path) -> Program:
    """Read the program of a .pte from its file."""
    if problem := why_not(schema.PROGRAM_SCHEMA):
        raise PteError(path, problem, hint="Use a version of ExecuTorch that the kit knows.")
    data, base, size = _load(path)
    buffer = Buffer(data, lambda problem, at: PteError(path, problem, at))
    root = buffer.root(schema.PROGRAM, "the program")
    inline = (entry.vector("data", 1) for entry in root.tables("backend_delegate_data", schema.INLINE_DATA))
    found = []
    for segment in root.tables("segments", schema.SEGMENT):
        offset, length = base + segment.number("offset", "Q"), segment.number("size", "Q")
        if offset + length > size:
            raise root.buffer.fail("a segment reaches past the end of the file", segment.at)
        found.append((offset, length))
    blobs = _Blobs(tuple(inline), tuple(found))
    methods = tuple(_method(plan, blobs) for plan in root.tables("execution_plan", schema.PLAN))
    named = {entry.number("segment_index") for entry in root.tables("named_data", schema.NAMED_DATA)}
    named_bytes = sum(_segment_bytes(root, blobs, index) for index in named)
    return Program(path, root.number("version"), methods, _constant_bytes(root, blobs), named_bytes)


# The program of a .pte, without the weights that follow it; read again only if the file has changed.
read = FileMemo(parse)


def parse_own(path: Path) -> Program | None:
    """Read a program that was just made; None if the installed ExecuTorch writes in a way that is not known."""
    return None if why_unknown() else parse(path)


def why_unknown() -> str:
    """Return why programs of the installed ExecuTorch cannot be read, with their delegates; '' if they can."""
    return why_not(schema.PROGRAM_SCHEMA) or why_not(XNNPACK_SCHEMA)


def check_identifier(path: Path, head: bytes) -> None:
    """Raise an error if a file does not begin as a program that the runner takes: with its identifier at byte 4."""
    found, known = head[4:8].decode("latin-1"), schema.IDENTIFIER
    if found[:2] != known[:2]:
        raise PteError(path, f"it has no {known} identifier", 4, "Check that it is a .pte, not another kind of file.")
    if found != known:
        raise PteError(
            path,
            f"its format is {found!r}, and the runner takes {known!r}",
            4,
            "It was made by another version of ExecuTorch: export the model with the one that is installed.",
        )


def _load(path: Path) -> tuple[bytes, int, int]:
    """Return the flatbuffer's bytes, where segments start (0 if nowhere) and the file's size."""
    with files.opened(path, PteError) as file:
        size = files.size_of(file)
        head = file.read(_HEADER)
        check_identifier(path, head)
        # The extended header tells where the flatbuffer ends and segments begin; old files have none.
        extended = head[8:12] == b"eh00" and len(head) >= 32
        program_size = int.from_bytes(head[16:24], "little") if extended else size
        base = int.from_bytes(head[24:32], "little") if extended else 0
        if program_size > size:
            raise PteError(path, f"it is cut short, {size} bytes are there and its program alone has {program_size}")
        if program_size > _MAX_PROGRAM:
            raise PteError(path, "it is larger than a flatbuffer can be")
        file.seek(0)
        return file.read(program_size), base, size


def _constant_bytes(root: FlatTable, blobs: _Blobs) -> int:
    """Return the bytes of constants: a segment of their own, or, in old files, buffers in the flatbuffer."""
    inline = sum(entry.vector("storage", 1)[1] for entry in root.tables("constant_buffer", schema.BUFFER))
    place = root.table("constant_segment", schema.SUBSEGMENTS)
    # Its first offset is reserved: of a segment with no other one, nothing is a constant.
    if place is None or len(place.numbers("offsets", "q")) < 2:
        return inline
    return inline + _segment_bytes(root, blobs, place.number("segment_index"))


def _segment_bytes(root: FlatTable, blobs: _Blobs, index: int) -> int:
    if index >= len(blobs.segments):
        raise root.buffer.fail(f"data is in segment {index} of {len(blobs.segments)}", root.at)
    return blobs.segments[index][1]


def _method(plan: FlatTable, blobs: _Blobs) -> Method:
    entries = plan.tables("operators", schema.OPERATOR)
    operators = [".".join(filter(None, (each.string("name"), each.string("overload")))) for each in entries]
    delegates = tuple(_delegate(entry, blobs) for entry in plan.tables("delegates", schema.BACKEND_DELEGATE))
    instructions = tuple(
        _instruction(entry, chain, index, operators, delegates)
        for chain, table in enumerate(plan.tables("chains", schema.CHAIN))
        for index, entry in enumerate(table.tables("instructions", schema.INSTRUCTION))
    )
    values = tuple(_value(entry) for entry in plan.tables("values", schema.VALUE))
    takes, returns = plan.numbers("inputs", "i"), plan.numbers("outputs", "i")
    for number in (*takes, *returns, *(number for step in instructions for number in step.arguments)):
        if not 0 <= number < len(values):
            raise plan.buffer.fail(f"value {number} of {len(values)} is used", plan.at)
    tensors = [value if isinstance(value, TensorSpec) else None for value in values]
    inputs, outputs = (tuple(tensors[number] for number in some) for some in (takes, returns))
    # The first arena of the list is not used.
    planned = plan.numbers("non_const_buffer_sizes", "q")[1:]
    if any(size < 0 for size in planned):
        raise plan.buffer.fail("a planned arena has fewer than 0 bytes", plan.at)
    return Method(plan.string("name"), instructions, delegates, inputs, outputs, values, takes, returns, planned)


def _delegate(entry: FlatTable, blobs: _Blobs) -> Delegate:
    backend = entry.string("id")
    place = entry.table("processed", schema.DELEGATE_REFERENCE)
    if place is None:
        return Delegate(backend, 0, 0)
    homes = blobs.segments if place.number("location", "B") else blobs.inline
    index = place.number("index")
    if index >= len(homes):
        raise entry.buffer.fail(f"a delegate's data is number {index} of {len(homes)}", entry.at)
    return Delegate(backend, *homes[index])


def _instruction(
    entry: FlatTable, chain: int, index: int, operators: Sequence[str], delegates: Sequence[Delegate]
) -> Instruction:
    """Read one instruction and look up what it calls."""
    number = entry.number("instr_args_type", "B")
    # The same slots in both kinds of call.
    call = entry.table("instr_args", schema.KERNEL_CALL)
    if call is None or not 0 < number <= len(schema.INSTRUCTION_KINDS):
        raise entry.buffer.fail(f"instruction {index} is of unknown kind {number}", entry.at)
    kind = schema.INSTRUCTION_KINDS[number - 1]
    if kind not in (KERNEL, DELEGATE):
        return Instruction(chain, index, kind, "")
    called = call.number("op_index", "i")
    known = len(operators if kind == KERNEL else delegates)
    if not 0 <= called < known:
        raise entry.buffer.fail(f"instruction {index} calls number {called} of {known}", entry.at)
    name = operators[called] if kind == KERNEL else delegates[called].backend
    return Instruction(chain, index, kind, name, called if kind == DELEGATE else None, call.numbers("args", "i"))


def _value(entry: FlatTable) -> Value:
    """Read one value of the method, as far as it says which operator feeds which and how tensors lie in memory."""
    kind = entry.number("val_type", "B")
    fields = {_INT: schema.INT, _TENSOR: schema.TENSOR}.get(kind, schema.ITEMS)
    if kind not in (_INT, _TENSOR, _INT_LIST, _TENSOR_LIST, _OPTIONAL_TENSOR_LIST):
        return None
    value = entry.table("val", fields)
    if value is None:
        return None
    if kind == _INT:
        return value.number("int_val", "q")
    return _tensor(value) if kind == _TENSOR else value.numbers("items", "q" if kind == _INT_LIST else "i")


def _tensor(tensor: FlatTable) -> TensorSpec:
    kind = tensor.number("scalar_type", "B")
    dtype = SCALAR_TYPES.get(kind, f"scalar type {kind}")
    sizes, order = tensor.numbers("sizes", "i"), tensor.numbers("dim_order", "B")
    if order and sorted(order) != list(range(len(sizes))):
        raise tensor.buffer.fail(f"a tensor of {len(sizes)} dimensions has the dim order {order[:8]}", tensor.at)
    dynamic, constant = tensor.number("shape_dynamism", "B") != 0, tensor.number("data_buffer_idx") != 0
    return TensorSpec(dtype, sizes, dynamic, order, constant)
