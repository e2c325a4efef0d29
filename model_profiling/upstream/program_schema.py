"""Where things stand in a .pte: the slots of ExecuTorch's `schema/program.fbs` that the kit reads."""

from model_profiling.upstream.flatbuffer_schemas import Schema, schema_difference
from model_profiling.upstream.reliance import reliance

IDENTIFIER = "ET12"
# Unions, whose numbers count from 1.
INSTRUCTION_KINDS = ("KernelCall", "DelegateCall", "MoveCall", "JumpFalseCall", "FreeCall")
VALUE_KINDS = (
    *("Null", "Int", "Bool", "Double", "Tensor", "String", "IntList", "DoubleList", "BoolList", "TensorList"),
    "OptionalTensorList",
)
_OURS = Schema(
    IDENTIFIER,
    {},
    {"InstructionArguments": INSTRUCTION_KINDS, "KernelTypes": VALUE_KINDS},
    {"DataLocation": {"INLINE": 0, "SEGMENT": 1}, "TensorShapeDynamism": {"STATIC": 0}},
)
PROGRAM = _OURS.table(
    "Program",
    "version execution_plan constant_buffer backend_delegate_data segments constant_segment mutable_data_segments"
    " named_data",
)
PLAN = _OURS.table(
    "ExecutionPlan", "name container_meta_type values inputs outputs chains operators delegates non_const_buffer_sizes"
)
CHAIN = _OURS.table("Chain", "inputs outputs instructions")
INSTRUCTION = _OURS.table("Instruction", "instr_args_type instr_args")
KERNEL_CALL = _OURS.table("KernelCall", "op_index args")
DELEGATE_CALL = _OURS.table("DelegateCall", "delegate_index args")
OPERATOR = _OURS.table("Operator", "name overload")
BACKEND_DELEGATE = _OURS.table("BackendDelegate", "id processed")
DELEGATE_REFERENCE = _OURS.table("BackendDelegateDataReference", "location index")
VALUE = _OURS.table("EValue", "val_type val")
TENSOR = _OURS.table(
    "Tensor",
    "scalar_type storage_offset sizes dim_order requires_grad data_buffer_idx allocation_info layout shape_dynamism",
)
ITEMS, *_ = (_OURS.table(name, "items") for name in ("IntList", "TensorList", "OptionalTensorList"))
INT = _OURS.table("Int", "int_val")
BUFFER = _OURS.table("Buffer", "storage")
INLINE_DATA = _OURS.table("BackendDelegateInlineData", "data")
SEGMENT = _OURS.table("DataSegment", "offset size")
SUBSEGMENTS = _OURS.table("SubsegmentOffsets", "segment_index offsets")
NAMED_DATA = _OURS.table("NamedData", "key segment_index")

# The enum ScalarType, as far as NumPy or PyTorch have a name for it, by ExecuTorch's name and number.
_SCALARS = {
    **{"BYTE": (0, "uint8"), "CHAR": (1, "int8"), "SHORT": (2, "int16"), "INT": (3, "int32"), "LONG": (4, "int64")},
    **{"HALF": (5, "float16"), "FLOAT": (6, "float32"), "DOUBLE": (7, "float64"), "BOOL": (11, "bool")},
    **{"BFLOAT16": (15, "bfloat16"), "UINT16": (27, "uint16"), "UINT32": (28, "uint32"), "UINT64": (29, "uint64")},
}
SCALAR_TYPES = dict(_SCALARS.values())
_OUR_SCALARS = Schema("", enums={"ScalarType": {name: number for name, (number, _) in _SCALARS.items()}})


def _check() -> str:
    program = schema_difference(_OURS, "schema/program.fbs")
    return program or schema_difference(_OUR_SCALARS, "schema/scalar_type.fbs")


PROGRAM_SCHEMA = reliance("program-schema", _check)
