"""Where things stand in a .pte: the slots of ExecuTorch's `schema/program.fbs` that the kit reads, from program.fbs."""

from model_profiling.upstream.flatbuffer_schemas import Schema, own_schema, schema_difference
from model_profiling.upstream.reliance import reliance

_OURS = own_schema("program")
IDENTIFIER = _OURS.identifier
# Unions, whose numbers count from 1.
INSTRUCTION_KINDS, VALUE_KINDS = _OURS.unions["InstructionArguments"], _OURS.unions["KernelTypes"]
PROGRAM, PLAN, CHAIN = map(_OURS.fields, ("Program", "ExecutionPlan", "Chain"))
INSTRUCTION, KERNEL_CALL, DELEGATE_CALL = map(_OURS.fields, ("Instruction", "KernelCall", "DelegateCall"))
OPERATOR, VALUE, TENSOR, INT = map(_OURS.fields, ("Operator", "EValue", "Tensor", "Int"))
ITEMS = _OURS.fields("IntList")  # as TensorList and OptionalTensorList have them
BACKEND_DELEGATE, INLINE_DATA = map(_OURS.fields, ("BackendDelegate", "BackendDelegateInlineData"))
DELEGATE_REFERENCE = _OURS.fields("BackendDelegateDataReference")
BUFFER, SEGMENT, SUBSEGMENTS = map(_OURS.fields, ("Buffer", "DataSegment", "SubsegmentOffsets"))
NAMED_DATA = _OURS.fields("NamedData")

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
