"""Where things stand in an ETDump: fields of `devtools/etdump/etdump_schema_flatcc.fbs`, with their widths in bytes."""

from collections.abc import Mapping

from model_profiling.upstream.flatbuffer_schemas import Schema, fields
from model_profiling.upstream.installed_wheel import schema_difference
from model_profiling.upstream.reliance import PROVEN, Reliance

IDENTIFIER = "ED00"


def _table(**widths: int) -> tuple[Mapping[str, int], tuple[int, ...]]:
    """Return the slots of a table's fields, and how many bytes each takes."""
    return fields(" ".join(widths)), tuple(widths.values())


ETDUMP, ETDUMP_WIDTHS = _table(version=4, run_data=4)
RUN_DATA, RUN_DATA_WIDTHS = _table(name=4, bundled_input_index=4, allocators=4, events=4)
ALLOCATOR, ALLOCATOR_WIDTHS = _table(name=4)
EVENT, EVENT_WIDTHS = _table(profile_event=4, allocation_event=4, debug_event=4)
PROFILE_EVENT, PROFILE_EVENT_WIDTHS = _table(
    name=4,
    chain_index=4,
    instruction_id=4,
    delegate_debug_id_int=4,
    delegate_debug_id_str=4,
    delegate_debug_metadata=4,
    start_time=8,
    end_time=8,
)
ALLOCATION_EVENT, ALLOCATION_EVENT_WIDTHS = _table(allocator_id=4, allocation_size=8)
DEBUG_EVENT, DEBUG_EVENT_WIDTHS = _table(
    chain_index=8, instruction_id=4, debug_entry=4, delegate_debug_id_int=4, delegate_debug_id_str=4, name=4
)
VALUE, VALUE_WIDTHS = _table(
    val=1, tensor=4, tensor_list=4, int_value=4, float_value=4, double_value=4, bool_value=4, output=4
)

_FILE = "devtools/etdump/etdump_schema_flatcc.fbs"
_OURS = Schema(
    IDENTIFIER,
    {
        **{"ETDump": list(ETDUMP), "RunData": list(RUN_DATA), "Allocator": list(ALLOCATOR), "Event": list(EVENT)},
        **{"ProfileEvent": list(PROFILE_EVENT), "AllocationEvent": list(ALLOCATION_EVENT)},
        **{"DebugEvent": list(DEBUG_EVENT), "Value": list(VALUE)},
    },
    {},
    {},
)

ETDUMP_SCHEMA = Reliance(
    "etdump-schema",
    "ExecuTorch",
    f"the fields of {_FILE}: what lies where in an ETDump",
    PROVEN,
    "against the schema in the installed wheel, and every offset while a file is read",
    lambda: schema_difference(_OURS, _FILE),
    "no ETDump is read: what an operator took is unknown",
    essential=True,
)
RELIANCES = (ETDUMP_SCHEMA,)
