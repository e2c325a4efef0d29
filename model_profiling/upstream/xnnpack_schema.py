"""What XNNPACK's delegate blobs hold: nodes, values and data types of `backends/xnnpack/serialization/schema.fbs`."""

from dataclasses import dataclass

from model_profiling.upstream.flatbuffer_schemas import Fields, Schema, fields, schema_difference
from model_profiling.upstream.reliance import reliance

BACKEND = "XnnpackBackend"
TRANSPOSE = "StaticTranspose"
IDENTIFIER = "XN01"
NO_VALUE = 0xFFFFFFFF  # XNN_INVALID_VALUE_ID: a convolution without bias has this for one
EXTERNAL = 1 | 2  # XNN_VALUE_FLAG_EXTERNAL_INPUT and XNN_VALUE_FLAG_EXTERNAL_OUTPUT
NO_HANDLE = 0xFFFF  # what ExecuTorch writes for a node its passes inserted, such as a layout's transpose
MOST_DIMS = 12  # twice as many as XNNPACK allows (XNN_MAX_TENSOR_DIMS)

# Unions, whose numbers count from 1.
_VALUES = ("XNNTensorValue", "XNNQuantizedTensorValue")
_QUANTIZATIONS = ("PerChannelQuant", "PerTensorQuant", "PerTokenDynamicQuant", "PerChannelGroupQuant")
IS_QUANTIZED = 1 + _VALUES.index("XNNQuantizedTensorValue")
IS_PER_GROUP = 1 + _QUANTIZATIONS.index("PerChannelGroupQuant")
DTYPES = (
    *("invalid", "fp32", "fp16", "qint8", "quint8", "qint32", "qcint8", "qcint32", "qcint4", "qdint8", "qbint4"),
    *("qpint8", "int32", "pfp32", "bf16"),
)
# Tables of nodes. Fields that end in `_id` are values: those that begin with `output` are made, all others taken.
_TABLES = {
    "_XNNNode1x1": "input_id output_id flags",
    "_XNNNode2x1": "input1_id input2_id output_id flags",
    "_XNNCat": "axis input1_id input2_id input3_id input4_id output_id flags input5_id",
    "_XNNNodeConv": "padding_top padding_right padding_bottom padding_left kernel_height kernel_width"
    " subsampling_height subsampling_width dilation_height dilation_width group_input_channels group_output_channels"
    " groups adjustment_height adjustment_width input1_id filter_id bias_id output_id flags",
    "_XNNPooling2D": "padding_top padding_right padding_bottom padding_left pooling_height pooling_width stride_height"
    " stride_width dilation_height dilation_width input_id output_id flags",
    "XNNFullyConnected": "input1_id filter_id bias_id output_id flags",
    "XNNStaticTranspose": "num_dims perm input_id output_id flags",
    "XNNStaticResizeBilinear2D": "new_height new_width input_id output_id flags",
    "XNNStaticConstantPad": "pre_paddings post_paddings padding_value input_id output_id flags",
    "XNNStaticReshape": "num_dims new_shape input_id output_id flags",
    "XNNArgMaxPooling2d": "padding_top padding_right padding_bottom padding_left pooling_height pooling_width input_id"
    " output_value_id output_index_id flags",
    "XNNLeakyReLU": "negative_slope input_id output_id flags",
    "XNNELU": "alpha input_id output_id flags",
    "XNNStaticSlice": "num_dims offsets sizes input_id output_id flags",
    "XNNScaledDotProductAttention": "query_id key_id value_id scale_id mask_id output_id flags",
}
# The union XNodeUnion in its order: a kind of node, and its table where that has another name.
_NODES = (
    *("Add:_XNNNode2x1", "FullyConnected", "Softmax:_XNNNode1x1", "Sigmoid:_XNNNode1x1", "StaticTranspose"),
    *("Clamp:_XNNNode1x1", "Conv2d:_XNNNodeConv", "Div:_XNNNode2x1", "StaticResizeBilinear2D", "StaticConstantPad"),
    *("AvgPooling2d:_XNNPooling2D", "Minimum:_XNNNode2x1", "DepthwiseConv2d:_XNNNodeConv"),
    *("MaxPooling2d:_XNNPooling2D", "Multiply:_XNNNode2x1", "Subtract:_XNNNode2x1", "Floor:_XNNNode1x1"),
    *("Convert:_XNNNode1x1", "GlobalAvgPooling2d:_XNNNode1x1", "StaticReshape", "ArgMaxPooling2d"),
    *("SquareRoot:_XNNNode1x1", "Ceiling:_XNNNode1x1", "Hardswish:_XNNNode1x1", "LeakyReLU", "Maximum:_XNNNode2x1"),
    *("Negate:_XNNNode1x1", "Square:_XNNNode1x1", "ELU", "Abs:_XNNNode1x1", "PReLU:_XNNNode2x1"),
    *("Concatenate2:_XNNCat", "Concatenate3:_XNNCat", "Concatenate4:_XNNCat", "StaticSlice"),
    *("ScaledDotProductAttention", "BatchMatrixMultiply:_XNNNode2x1", "Concatenate5:_XNNCat"),
    *("ConvTranspose2d:_XNNNodeConv", "ReciprocalSquareRoot:_XNNNode1x1", "Log:_XNNNode1x1", "Gelu:_XNNNode1x1"),
    *("Tanh:_XNNNode1x1", "Exp:_XNNNode1x1", "Sin:_XNNNode1x1", "Copy:_XNNNode1x1", "Cos:_XNNNode1x1"),
)


@dataclass(frozen=True)
class NodeKind:
    """A kind of node: its name, its fields, and which of them are the values it takes and makes, and its window."""

    name: str
    fields: Fields
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    window: tuple[str, ...] = ()


def _kind(entry: str) -> NodeKind:
    name, _, table = entry.partition(":")
    slots = fields(_TABLES[table or f"XNN{name}"])
    values = [field for field in slots if field.endswith("_id")]
    taken = [field for field in values if not field.startswith("output")]
    if name.startswith("Concatenate"):
        taken = taken[: int(name.removeprefix("Concatenate"))]
    # Convolutions and poolings other than ArgMaxPooling2d.
    what = {"_XNNNodeConv": "kernel", "_XNNPooling2D": "pooling"}.get(table)
    window = (f"{what}_height", f"{what}_width") if what else ()
    return NodeKind(name, slots, tuple(taken), tuple(field for field in values if field.startswith("output")), window)


NODES = tuple(map(_kind, _NODES))

_OURS = Schema(
    IDENTIFIER,
    {name: names.split() for name, names in _TABLES.items()},
    {
        "XNodeUnion": [f"XNN{entry.replace(':', ': ')}" for entry in _NODES],
        "XValueUnion": _VALUES,
        "XNNQuantParams": _QUANTIZATIONS,
    },
    {"XNNDatatype": {f"xnn_datatype_{name}": number for number, name in enumerate(DTYPES)}},
)
GRAPH = _OURS.table("XNNGraph", "version xnodes xvalues")
NODE = _OURS.table("XNode", "xnode_union_type xnode_union debug_handle")
VALUE = _OURS.table("XValue", "xvalue_union_type xvalue_union")
TENSOR = _OURS.table("XNNTensorValue", "datatype num_dims dims constant_buffer_idx external_id flags id_out")
QUANTIZED = _OURS.table("XNNQuantizedTensorValue", "tensor_value quant_params_type quant_params")
PER_GROUP = _OURS.table("PerChannelGroupQuant", "scale channel_dim group_size")

XNNPACK_SCHEMA = reliance(
    "xnnpack-schema", lambda: schema_difference(_OURS, "backends/xnnpack/serialization/schema.fbs")
)
