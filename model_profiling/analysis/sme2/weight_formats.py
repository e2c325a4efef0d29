"""What an operator's weights are stored as, from XNNPACK's graph in the .pte, and which formats have SME2 kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from model_profiling.base.dtypes import FLOATS, OF_TENSORS
from model_profiling.formats.graph_terms import CONSTANT

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class FormatKernels(msgspec.Struct, frozen=True):
    """The operators of one weight format: how many run on SME2 (None: not traced), and how many use each kernel."""

    weights: str
    operators: int
    on_sme2: int | None
    kernels: dict[str, int] = {}
    # What is known of this format where nothing was traced, or why SME2 is not used where it was.
    why: str = ""


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
    from model_profiling.formats.graph_terms import base_name

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
    found = {}
    for row in graph.steps:
        step = graph.step(row)
        if step is None:
            continue
        if name := weight_format(step.node) if step.node is not None else portable_format(step, graph.flow):
            found[row] = name
    return found


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
        return f"groupwise int4 has no SME2 kernel {where}; {_OTHERS}"
    if weights.startswith("int8 per tensor"):
        return f"int8 with one scale for all weights has no SME2 kernel {where}; int8 per channel has"
    if weights == "bf16" and delegated:
        return f"XNNPACK multiplies bf16 in fp32, with kernels of its own, {where}; fp16 has SME2 kernels"
    if weights == "bf16":
        opt_in = "only with enable_bf16, and then multiplied in fp32"
        return f"bf16 is not delegated to XNNPACK {where} ({opt_in}); fp16 is, and has SME2 kernels"
    return ""


def by_format(rows: Iterable[tuple[str, bool | None, list[str], str]]) -> list[FormatKernels]:
    """Return operators as (weights, on SME2, matrix kernels, why not), added up by format; most operators first."""
    groups: dict[str, list[tuple[bool | None, list[str], str]]] = {}
    for weights, on_sme2, kernels, why in rows:
        if weights:
            groups.setdefault(weights, []).append((on_sme2, kernels, why))
    found = []
    for weights, members in groups.items():
        counts: dict[str, int] = {}
        for kernel in (kernel for _, kernels, _ in members for kernel in dict.fromkeys(kernels)):
            counts[kernel] = counts.get(kernel, 0) + 1
        known = [on for on, _, _ in members if on is not None]
        reasons = dict.fromkeys(why for _, _, why in members if why)
        found.append(
            FormatKernels(
                weights,
                len(members),
                sum(known) if len(known) == len(members) else None,
                dict(sorted(counts.items(), key=lambda item: -item[1])),
                "; ".join(reasons),
            )
        )
    return sorted(found, key=lambda entry: -entry.operators)
