"""Where things stand in an ETDump: fields of `devtools/etdump/etdump_schema_flatcc.fbs`, with their widths in bytes."""

from model_profiling.upstream.flatbuffer_schemas import Fields, Schema, schema_difference
from model_profiling.upstream.reliance import reliance

IDENTIFIER = "ED00"
_OURS = Schema(IDENTIFIER)


def _table(table: str, /, **widths: int) -> tuple[Fields, tuple[int, ...]]:
    """Return the slots of a table's fields, and how many bytes each takes."""
    return _OURS.table(table, " ".join(widths)), tuple(widths.values())


ETDUMP, ETDUMP_WIDTHS = _table("ETDump", version=4, run_data=4)
RUN_DATA, RUN_DATA_WIDTHS = _table("RunData", name=4, bundled_input_index=4, allocators=4, events=4)
EVENT, EVENT_WIDTHS = _table("Event", profile_event=4, allocation_event=4, debug_event=4)
_IDS = {"delegate_debug_id_int": 4, "delegate_debug_id_str": 4}
PROFILE_EVENT, PROFILE_EVENT_WIDTHS = _table(
    "ProfileEvent", name=4, chain_index=4, instruction_id=4, **_IDS, delegate_debug_metadata=4, start_time=8, end_time=8
)

ETDUMP_SCHEMA = reliance("etdump-schema", lambda: schema_difference(_OURS, "devtools/etdump/etdump_schema_flatcc.fbs"))
