"""What a .pte says of itself: its methods, their instructions in order, and where each delegate's blob lies."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import InputError
from model_profiling.pte.flatbuffer import Buffer, Table

# The union InstructionArguments of ExecuTorch's schema/program.fbs; 0 is none.
KINDS = ("", "KernelCall", "DelegateCall", "MoveCall", "JumpFalseCall", "FreeCall")
KERNEL, DELEGATE = "KernelCall", "DelegateCall"

# The enum ScalarType of schema/scalar_type.fbs, as far as NumPy or PyTorch have a name for it.
SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}

_TENSOR = 5  # in the union KernelTypes
_MAX_PROGRAM = 1 << 31  # the largest a flatbuffer can be
_HEADER = 40


class PteError(InputError):
    """The file is not an ExecuTorch program, or not a whole one."""

    def __init__(self, path: Path, problem: str, offset: int | None = None, hint: str = "") -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(
            f"{path} is not a readable .pte: {problem}{where}",
            hint or "Export the model again; if the file was copied, copy it again.",
        )
        self.path = path
        self.problem = problem
        self.offset = offset


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of the method's signature; `sizes` are upper bounds where `dynamic`."""

    dtype: str
    sizes: tuple[int, ...]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """`index` is what an ETDump calls instruction. `name` is the operator (`aten::mean.out`) or the backend."""

    chain: int
    index: int
    kind: str
    name: str
    delegate: int | None = None


@dataclass(frozen=True, slots=True)
class Delegate:
    """A backend and the bytes of the file its blob takes."""

    backend: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Method:
    """`inputs` and `outputs` hold None for what is not a tensor."""

    name: str
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec | None, ...]


@dataclass(frozen=True, slots=True)
class Program:
    path: Path
    version: int
    methods: tuple[Method, ...]

    def method(self, name: str) -> Method | None:
        return next((method for method in self.methods if method.name == name), None)

    def blob(self, delegate: Delegate, start: int, size: int) -> bytes:
        """Read `size` bytes of a delegate's blob from `start` on, without its gigabytes of weights."""
        if start < 0 or size < 0 or start + size > delegate.size:
            raise PteError(
                self.path, f"a delegate's blob has {delegate.size} bytes, not {start + size}", delegate.offset
            )
        try:
            with self.path.open("rb") as file:
                file.seek(delegate.offset + start)
                data = file.read(size)
        except OSError as error:
            raise PteError(self.path, f"it cannot be read, {error.strerror}") from None
        if len(data) != size:
            raise PteError(self.path, "it is cut short", delegate.offset)
        return data


@dataclass(frozen=True, slots=True)
class _Blobs:
    """Where delegate blobs are: inline in the flatbuffer or in segments after it, each (offset, size) in the file."""

    inline: tuple[tuple[int, int], ...]
    segments: tuple[tuple[int, int], ...]


def read(path: Path) -> Program:
    """Read the program of a .pte, without the weights that follow it."""
    data, base, size = _load(path)
    buffer = Buffer(data, lambda problem, at: PteError(path, problem, at))
    root = buffer.root("the program")
    blobs = _Blobs(tuple(_inline(root)), tuple(_segments(root, base, size)))
    methods = tuple(_method(plan, blobs) for plan in root.tables(1, "execution plan"))
    return Program(path, root.u32(0), methods)


def _load(path: Path) -> tuple[bytes, int, int]:
    """Return the flatbuffer's bytes, where segments start (0 if nowhere) and the file's size."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_HEADER)
            if head[4:6] != b"ET":
                raise PteError(
                    path, "it has no ET12 identifier", 4, "Check that it is a .pte, not another kind of file."
                )
            # The extended header tells where the flatbuffer ends and segments begin; old files have none.
            extended = head[8:12] == b"eh00" and len(head) >= 32
            program_size = int.from_bytes(head[16:24], "little") if extended else size
            base = int.from_bytes(head[24:32], "little") if extended else 0
            if program_size > size:
                raise PteError(
                    path, f"it is cut short, {size} bytes are there and its program alone has {program_size}"
                )
            if program_size > _MAX_PROGRAM:
                raise PteError(path, "it is larger than a flatbuffer can be")
            file.seek(0)
            return file.read(program_size), base, size
    except FileNotFoundError:
        raise PteError(path, "it does not exist", hint="Check the path.") from None
    except OSError as error:
        raise PteError(path, f"it cannot be read, {error.strerror}", hint="Check the path and its rights.") from None


def _inline(root: Table) -> "list[tuple[int, int]]":
    found = []
    for entry in root.tables(3, "inline delegate data"):
        at = entry.where(0)
        found.append(root.buffer.vector(root.buffer.follow(at, "delegate data"), 1, "delegate data") if at else (0, 0))
    return found


def _segments(root: Table, base: int, size: int) -> "list[tuple[int, int]]":
    found = []
    for segment in root.tables(4, "segment"):
        offset, length = base + segment.u64(0), segment.u64(1)
        if offset + length > size:
            raise root.buffer.fail("a segment reaches past the end of the file", segment.at)
        found.append((offset, length))
    return found


def _method(plan: Table, blobs: _Blobs) -> Method:
    operators = [_joined(entry.string(0, "name"), entry.string(1, "overload")) for entry in plan.tables(6, "operator")]
    delegates = tuple(_delegate(entry, blobs) for entry in plan.tables(7, "delegate"))
    instructions = tuple(
        _instruction(entry, chain, index, operators, delegates)
        for chain, table in enumerate(plan.tables(5, "chain"))
        for index, entry in enumerate(table.tables(2, "instruction"))
    )
    inputs, outputs = _values(plan, plan.i32s(3, "inputs")), _values(plan, plan.i32s(4, "outputs"))
    return Method(plan.string(0, "the method's name"), instructions, delegates, inputs, outputs)


def _joined(name: str, overload: str) -> str:
    return f"{name}.{overload}" if overload else name


def _delegate(entry: Table, blobs: _Blobs) -> Delegate:
    place = entry.table(1, "delegate data reference")
    if place is None:
        return Delegate(entry.string(0, "backend"), 0, 0)
    homes = blobs.segments if place.u8(0) else blobs.inline
    index = place.u32(1)
    if index >= len(homes):
        raise entry.buffer.fail(f"a delegate's data is number {index} of {len(homes)}", entry.at)
    return Delegate(entry.string(0, "backend"), *homes[index])


def _instruction(
    entry: Table, chain: int, index: int, operators: Sequence[str], delegates: Sequence[Delegate]
) -> Instruction:
    """Read one instruction and look up what it calls."""
    number = entry.u8(0)
    arguments = entry.table(1, "instruction arguments")
    if arguments is None or not 0 < number < len(KINDS):
        raise entry.buffer.fail(f"instruction {index} is of unknown kind {number}", entry.at)
    kind = KINDS[number]
    called = arguments.i32(0)
    known = {KERNEL: len(operators), DELEGATE: len(delegates)}.get(kind)
    if known is not None and not 0 <= called < known:
        raise entry.buffer.fail(f"instruction {index} calls number {called} of {known}", entry.at)
    if kind == KERNEL:
        return Instruction(chain, index, kind, operators[called])
    if kind == DELEGATE:
        return Instruction(chain, index, kind, delegates[called].backend, called)
    return Instruction(chain, index, kind, "")


def _values(plan: Table, wanted: Sequence[int]) -> tuple[TensorSpec | None, ...]:
    """Read the tensors at some places of the plan's table of values."""
    at = plan.where(2)
    if not at:
        return ()
    buffer = plan.buffer
    start, count = buffer.vector(buffer.follow(at, "values"), 4, "values")
    found = []
    for index in wanted:
        if not 0 <= index < count:
            raise buffer.fail(f"value {index} of {count} is an input or output", plan.at)
        found.append(_tensor(Table(buffer, buffer.follow(start + 4 * index, "value"), "value")))
    return tuple(found)


def _tensor(value: Table) -> TensorSpec | None:
    tensor = value.table(1, "tensor") if value.u8(0) == _TENSOR else None
    if tensor is None:
        return None
    dtype = SCALAR_TYPES.get(tensor.u8(0), f"scalar type {tensor.u8(0)}")
    return TensorSpec(dtype, tensor.i32s(2, "sizes"), tensor.u8(8) != 0)
