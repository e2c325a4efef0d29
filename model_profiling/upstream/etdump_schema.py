"""Where things stand in an ETDump: fields of `devtools/etdump/etdump_schema_flatcc.fbs`, with their widths in bytes."""

from model_profiling.upstream.flatbuffer_schemas import own_schema, schema_difference
from model_profiling.upstream.reliance import reliance

_OURS = own_schema("etdump")
IDENTIFIER = _OURS.identifier
ETDUMP, RUN_DATA, EVENT, PROFILE_EVENT = map(_OURS.fields, ("ETDump", "RunData", "Event", "ProfileEvent"))
ETDUMP_WIDTHS, RUN_DATA_WIDTHS, EVENT_WIDTHS = (4,) * len(ETDUMP), (4,) * len(RUN_DATA), (4,) * len(EVENT)
# Times are of eight bytes.
PROFILE_EVENT_WIDTHS = tuple(8 if field.endswith("_time") else 4 for field in PROFILE_EVENT)

ETDUMP_SCHEMA = reliance("etdump-schema", lambda: schema_difference(_OURS, "devtools/etdump/etdump_schema_flatcc.fbs"))
