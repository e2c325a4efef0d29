"""Where things stand in a .pte: the slots of ExecuTorch's `schema/program.fbs` that the kit reads."""

from model_profiling.upstream.flatbuffer_schemas import Schema, fields
from model_profiling.upstream.installed_wheel import schema_difference
from model_profiling.upstream.reliance import PROVEN, Reliance

IDENTIFIER = "ET12"
PROGRAM = fields(
    "version execution_plan constant_buffer backend_delegate_data segments constant_segment mutable_data_segments"
    " named_data"
)
PLAN = fields("name container_meta_type values inputs outputs chains operators delegates non_const_buffer_sizes")
CHAIN = fields("inputs outputs instructions")
INSTRUCTION = fields("instr_args_type instr_args")
KERNEL_CALL = fields("op_index args")
DELEGATE_CALL = fields("delegate_index args")
OPERATOR = fields("name overload")
BACKEND_DELEGATE = fields("id processed")
DELEGATE_REFERENCE = fields("location index")
VALUE = fields("val_type val")
TENSOR = fields(
    "scalar_type storage_offset sizes dim_order requires_grad data_buffer_idx allocation_info layout shape_dynamism"
)
ITEMS = fields("items")
INT = fields("int_val")
BUFFER = fields("storage")
INLINE_DATA = fields("data")
SEGMENT = fields("offset size")
SUBSEGMENTS = fields("segment_index offsets")
NAMED_DATA = fields("key segment_index")

# Unions, whose numbers count from 1.
INSTRUCTION_KINDS = ("KernelCall", "DelegateCall", "MoveCall", "JumpFalseCall", "FreeCall")
VALUE_KINDS = (
    *("Null", "Int", "Bool", "Double", "Tensor", "String", "IntList", "DoubleList", "BoolList", "TensorList"),
    "OptionalTensorList",
)
# The enum ScalarType, as far as NumPy or PyTorch have a name for it, by ExecuTorch's name and number.
_SCALARS = {
    **{"BYTE": (0, "uint8"), "CHAR": (1, "int8"), "SHORT": (2, "int16"), "INT": (3, "int32"), "LONG": (4, "int64")},
    **{"HALF": (5, "float16"), "FLOAT": (6, "float32"), "DOUBLE": (7, "float64"), "BOOL": (11, "bool")},
    **{"BFLOAT16": (15, "bfloat16"), "UINT16": (27, "uint16"), "UINT32": (28, "uint32"), "UINT64": (29, "uint64")},
}
SCALAR_TYPES = dict(_SCALARS.values())

_PROGRAM_FILE, _SCALAR_FILE = "schema/program.fbs", "schema/scalar_type.fbs"
_OURS = Schema(
    IDENTIFIER,
    {
        name: list(slots)
        for name, slots in (
            *(("Program", PROGRAM), ("ExecutionPlan", PLAN), ("Chain", CHAIN), ("Instruction", INSTRUCTION)),
            *(("KernelCall", KERNEL_CALL), ("DelegateCall", DELEGATE_CALL), ("Operator", OPERATOR)),
            *(("BackendDelegate", BACKEND_DELEGATE), ("BackendDelegateDataReference", DELEGATE_REFERENCE)),
            *(("EValue", VALUE), ("Tensor", TENSOR), ("Int", INT), ("IntList", ITEMS), ("TensorList", ITEMS)),
            *(("OptionalTensorList", ITEMS), ("Buffer", BUFFER), ("BackendDelegateInlineData", INLINE_DATA)),
            *(("DataSegment", SEGMENT), ("SubsegmentOffsets", SUBSEGMENTS), ("NamedData", NAMED_DATA)),
        )
    },
    {"InstructionArguments": INSTRUCTION_KINDS, "KernelTypes": VALUE_KINDS},
    {"DataLocation": {"INLINE": 0, "SEGMENT": 1}, "TensorShapeDynamism": {"STATIC": 0}},
)
_OUR_SCALARS = Schema("", {}, {}, {"ScalarType": {name: number for name, (number, _) in _SCALARS.items()}})

PROGRAM_SCHEMA = Reliance(
    "program-schema",
    "ExecuTorch",
    f"the slots of {_PROGRAM_FILE}: what lies where in a .pte",
    PROVEN,
    "against the schema in the installed wheel, and every offset while a file is read",
    lambda: schema_difference(_OURS, _PROGRAM_FILE) or schema_difference(_OUR_SCALARS, _SCALAR_FILE),
    "what is in a .pte is unknown: its dtype, source lines and work; operators are known by their names alone",
)
RELIANCES = (PROGRAM_SCHEMA,)
