"""What an operator's weights are stored as, from XNNPACK's graph in the .pte, and which formats have SME2 kernels."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.dtypes import FLOATS, OF_TENSORS
from model_profiling.base.errors import KitError
from model_profiling.formats.graph_terms import CONSTANT, base_name

if TYPE_CHECKING:
    from model_profiling.analysis.graph.graph import ModelGraph
    from model_profiling.formats.pte.dataflow import DataFlow, FlowStep
    from model_profiling.formats.pte.xnnpack_graph import XnnpackNode

_WEIGHTED = ("FullyConnected", "Conv2d", "DepthwiseConv2d", "ConvTranspose2d")
_PORTABLE = ("linear", "addmm", "mm", "mv", "matmul", "convolution")
_REORDERED = ("permute_copy", "t_copy", "transpose_copy", "view_copy", "_to_dim_order_copy", "clone")
_FLOATS = {row.name for row in OF_TENSORS.values()}
_DYNAMIC = ("qdint8", "qpint8")

GROUPWISE = "int4 in groups of"
# Which ExecuTorch the kernels of the formats below were looked at in, under QEMU with every feature on.
CHECKED = "1.5.1"
_OTHERS = "int8-dynamic or per-channel int4 (--dtype int4-channel) has"


def weight_format(node: XnnpackNode) -> str:
    """Return what the weights of a node are stored as; '' if it has none."""
    if node.op not in _WEIGHTED or len(node.inputs) < 2 or not node.inputs[1].constant:
        return ""
    source, weights = node.inputs[0], node.inputs[1]
    how = "dynamic" if source.dtype in _DYNAMIC else "static" if source.dtype.startswith(("q", "quint")) else "no"
    match weights.dtype:
        case "qcint8":
            return f"int8 per channel, {how} activations"
        case "qint8" | "quint8":
            return f"int8 per tensor, {how} activations"
        case "qcint4":
            return "int4 per channel"
        case "qbint4":
            return f"{GROUPWISE} {weights.group}" if weights.group else "int4 in groups"
    return weights.dtype


def portable_format(step: FlowStep, flow: DataFlow) -> str:
    """Return the weights' dtype of a matrix operator outside the delegate; '' if none or not known."""
    if base_name(step.op) not in _PORTABLE:
        return ""
    for tensor in step.inputs:
        source = tensor.source
        while source >= 0 and base_name(flow.steps[source].op) in _REORDERED and flow.steps[source].inputs:
            source = flow.steps[source].inputs[0].source
        if source == CONSTANT and tensor.dtype in _FLOATS and tensor.shape:
            return tensor.dtype
    return ""


def weight_formats(graph: ModelGraph) -> dict[int, str]:
    """Return the weight format of every operator that has one, by its row of the profile."""
    found = {
        row: portable_format(step, graph.flow) if step.node is None else weight_format(step.node)
        for row, step in graph.placed
    }
    return {row: name for row, name in found.items() if name}


def has_kernel(weights: str) -> bool | None:
    """Return whether weights of this format get SME2 kernels; None if nobody has looked."""
    if no_kernel(weights, delegated=False):
        return False
    return True if weights in FLOATS or weights.startswith(("int8 per channel", "int4 per channel")) else None


def no_kernel(weights: str, delegated: bool = True, version: str = "") -> str:
    """Return why weights of this format get no SME2 kernel; '' if they do, or nobody has looked.

    `version` is the ExecuTorch that this was seen in, where it was not seen in the run itself.
    """
    where = f"in ExecuTorch {version} (known, not seen in this run)" if version else "in this ExecuTorch"
    if weights.startswith("int4 in groups"):
        return f"XNNPACK does not use an SME2 kernel for groupwise int4 {where}; {_OTHERS}"
    if weights.startswith("int8 per tensor"):
        return f"XNNPACK uses no SME2 kernel for int8 with one scale for all weights {where}; int8 per channel has one"
    if weights == "bf16" and delegated:
        return f"XNNPACK multiplies bf16 in fp32, with kernels of its own, {where}; fp16 has SME2 kernels"
    if weights == "bf16":
        opt_in = "only with enable_bf16, and then multiplied in fp32"
        return f"bf16 is not delegated to XNNPACK {where} ({opt_in}); fp16 is, and has SME2 kernels"
    return ""


def sme2_share(model: Path, method: str) -> float | None:
    """Return the part of all weights of linear layers that have SME2 kernels, from the .pte alone; None where it does
    not tell, or has a format of which nobody has looked at the kernels."""
    from model_profiling.formats import pte
    from model_profiling.formats.pte import xnnpack_graph

    try:
        program = pte.read(model)
        chosen = program.method(method)
        graphs = xnnpack_graph.graphs(program, chosen) if chosen is not None else {}
    except KitError:
        return None
    known = [
        (prod(node.inputs[1].shape), has_kernel(weight_format(node)))
        for graph in graphs.values()
        for node in graph.nodes
        if node.op == "FullyConnected" and len(node.inputs) > 1
    ]
    whole = sum(size for size, _ in known)
    if not whole or any(taken is None for _, taken in known):
        return None
    return sum(size for size, taken in known if taken) / whole
