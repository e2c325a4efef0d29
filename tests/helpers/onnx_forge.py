"""Forges what the readers of `formats/onnx` read: the bytes of an .onnx, and ONNX Runtime's profile as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def node(
    name: str,
    op_type: str,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    line: int = 0,
    module: str = "",
    inside: bytes = b"",
    rewritten: bool = False,
) -> bytes:
    """A NodeProto; with a line it has the properties that torch.onnx leaves. `inside` is a branch."""
    said = {"pkg.onnxscript.rewriter.rule_name": "FuseBatchNormIntoConv"} if rewritten else {}
    if line:
        trace = f'  File "/home/me/net.py", line {line}, in forward\n    line {line}'
        said |= {"pkg.torch.onnx.stack_trace": trace, "pkg.torch.onnx.name_scopes": str(["", module, name])}
    parts = [*(field(1, text) for text in inputs), *(field(2, text) for text in outputs), field(3, name)]
    parts += [field(4, op_type), *(field(5, field(1, "branch") + field(6, inside)) for _ in range(bool(inside)))]
    return b"".join([*parts, *(field(9, field(1, key) + field(2, value)) for key, value in said.items())])


def model(*nodes: bytes) -> bytes:
    """A ModelProto with a version, weights and a graph."""
    graph = b"".join([field(5, field(9, bytes(100))), *(field(1, each) for each in nodes), field(2, "graph")])
    return _varint(1 << 3) + _varint(10) + field(2, "forge") + field(7, graph)


def event(name: str, op_type: str, ts: int, dur: int, *shapes: Sequence[int], out: Sequence[int] = ()) -> Any:
    """A node that ran, with the shapes of its inputs."""
    args = {"op_name": op_type, "input_type_shape": [{"float": [*shape]} for shape in shapes]}
    args |= {"output_type_shape": [{"float": [*out]}], "provider": "CPUExecutionProvider", "node_index": "1"}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": args}


def run(ts: int, dur: int) -> Any:
    return {"cat": "Session", "name": "model_run", "ts": ts, "dur": dur, "args": {}}


def sequence(start: int, nodes: Sequence[tuple[str, str, int]], gap: int = 2) -> list[Any]:
    """An execution of nodes (name, type, microseconds) one after the other."""
    found, at = [], start
    for name, op_type, dur in nodes:
        found.append(event(name, op_type, at + gap, dur))
        at += gap + dur
    return [*found, run(start, at + gap - start)]


def write_profile(path: Path, events: Sequence[Any]) -> Path:
    path.write_text(json.dumps([{"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5}, *events]))
    return path
