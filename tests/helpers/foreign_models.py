"""Files of other runtimes, each adding a number to four values: made by hand, because no converter is everywhere."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_onnx(path: Path, added: float, shape: Sequence[int | str] = (1, 4), dtype: str = "FLOAT") -> Path:
    import onnx
    from onnx import helper

    kind = onnx.TensorProto.DataType.Value(dtype)
    value = [helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    constant = helper.make_tensor("c", kind, [1], [added])
    graph = helper.make_graph([helper.make_node("Add", ["x", "c"], ["y"])], "g", value[:1], value[1:], [constant])
    # What older releases of ONNX Runtime read, too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def spoil_onnx(path: Path, fault: str) -> Path:
    """Cut the file, or give it an opset or an operator that does not exist, or weights in a file that is missing."""
    import onnx

    model = onnx.load(path)
    if fault == "opset":
        model.opset_import[0].version = 99
    elif fault == "operator":
        model.graph.node[0].op_type = "Frobnicate"
    elif fault == "weights":
        weight = model.graph.initializer[0]
        weight.ClearField("float_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="gone.bin")
    content = model.SerializeToString()
    path.write_bytes(content[: len(content) // 2] if fault == "cut" else content)
    return path


def write_tflite(path: Path, added: float) -> Path:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def tensor(name: str, shape: list[int], buffer: int) -> object:
        made = schema.TensorT()
        made.name, made.shape, made.buffer, made.type = name, shape, buffer, schema.TensorType.FLOAT32
        return made

    model, graph, code, add = schema.ModelT(), schema.SubGraphT(), schema.OperatorCodeT(), schema.OperatorT()
    model.version, model.subgraphs, model.operatorCodes = 3, [graph], [code]
    model.buffers = [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(np.array([added], np.float32).tobytes(), np.uint8)
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.ADD
    code.version = 1
    add.inputs, add.outputs = [0, 1], [2]
    add.builtinOptionsType, add.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    graph.tensors = [tensor("x", [1, 4], 0), tensor("c", [1], 1), tensor("y", [1, 4], 0)]
    graph.operators, graph.inputs, graph.outputs = [add], [0], [2]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path
