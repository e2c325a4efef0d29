"""Reads an .onnx file's nodes and ONNX Runtime's profile of an execution, without onnx or onnxruntime.

The nodes are read from the protobuf itself, so that a file of the user's own is read like one that the kit exported,
and nothing beside it can be missing or belong to another export. Weights are skipped, not read.
"""

from model_profiling.formats.onnx.model import OnnxError, OnnxNode, read
from model_profiling.formats.onnx.ort_profile import OrtExecution, OrtNode, OrtTensor, read_profile

__all__ = ["OnnxError", "OnnxNode", "OrtExecution", "OrtNode", "OrtTensor", "read", "read_profile"]
