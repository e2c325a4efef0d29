"""What XNNPACK's delegate blobs hold: nodes, values and data types of `backends/xnnpack/serialization/schema.fbs`,
as far as xnnpack.fbs has them."""

from dataclasses import dataclass

from model_profiling.upstream.flatbuffer_schemas import Fields, own_schema, schema_difference
from model_profiling.upstream.reliance import reliance

BACKEND = "XnnpackBackend"
TRANSPOSE = "StaticTranspose"
NO_VALUE = 0xFFFFFFFF  # XNN_INVALID_VALUE_ID: a convolution without bias has this for one
EXTERNAL = 1 | 2  # XNN_VALUE_FLAG_EXTERNAL_INPUT and XNN_VALUE_FLAG_EXTERNAL_OUTPUT
NO_HANDLE = 0xFFFF  # what ExecuTorch writes for a node its passes inserted, such as a layout's transpose
MOST_DIMS = 12  # twice as many as XNNPACK allows (XNN_MAX_TENSOR_DIMS)

_OURS = own_schema("xnnpack")
IDENTIFIER = _OURS.identifier
# Unions, whose numbers count from 1.
IS_QUANTIZED = 1 + _OURS.unions["XValueUnion"].index("XNNQuantizedTensorValue")
IS_PER_GROUP = 1 + _OURS.unions["XNNQuantParams"].index("PerChannelGroupQuant")
DTYPES = tuple(name.removeprefix("xnn_datatype_") for name in _OURS.enums["XNNDatatype"])
GRAPH, NODE, VALUE = map(_OURS.fields, ("XNNGraph", "XNode", "XValue"))
TENSOR, QUANTIZED = map(_OURS.fields, ("XNNTensorValue", "XNNQuantizedTensorValue"))
PER_GROUP = _OURS.fields("PerChannelGroupQuant")


@dataclass(frozen=True)
class NodeKind:
    """A kind of node: its name, its fields, and which of them are the values it takes and makes, and its window."""

    name: str
    fields: Fields
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    window: tuple[str, ...] = ()


def _kind(entry: str) -> NodeKind:
    """Return the kind of a member of the union, which names its table where that has another name."""
    name, table = entry.split(": ")[0].removeprefix("XNN"), entry.split(": ")[-1]
    slots = _OURS.fields(table)
    values = [field for field in slots if field.endswith("_id")]
    taken = [field for field in values if not field.startswith("output")]
    if name.startswith("Concatenate"):
        taken = taken[: int(name.removeprefix("Concatenate"))]
    # Convolutions and poolings other than ArgMaxPooling2d.
    what = {"_XNNNodeConv": "kernel", "_XNNPooling2D": "pooling"}.get(table)
    window = (f"{what}_height", f"{what}_width") if what else ()
    return NodeKind(name, slots, tuple(taken), tuple(field for field in values if field.startswith("output")), window)


NODES = tuple(map(_kind, _OURS.unions["XNodeUnion"]))

XNNPACK_SCHEMA = reliance(
    "xnnpack-schema", lambda: schema_difference(_OURS, "backends/xnnpack/serialization/schema.fbs")
)
