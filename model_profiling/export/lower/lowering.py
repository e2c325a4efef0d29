"""From a PyTorch module to an ExecuTorch program: torch.export, then the backend's partitioner, then serialization."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.quant_utils import is_dequant
from executorch.backends.xnnpack.utils.utils import is_param_node
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import PassResult
from torch.export import ExportedProgram

from model_profiling.base.errors import shortly
from model_profiling.base.rewrites import LAYOUT
from model_profiling.export.beside import leave_out
from model_profiling.export.lower.delegation import LoweredNode, list_nodes, rejections, summarise
from model_profiling.export.lower.image_borders import TAG, KeepImageOrder, to_nchw, to_nhwc
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites.graph import permutation_of, remove_unused, replace_uses
from model_profiling.export.rewrites.runnable import runnable
from model_profiling.store.artifacts import Delegation
from model_profiling.upstream.captured_graphs import OPERATORS, Call
from model_profiling.upstream.emission import initial_values_pass, register_quantized_kernels
from model_profiling.upstream.faster_lowering import faster_lowering, lowering_way
from model_profiling.upstream.reliance import holds
from model_profiling.upstream.xnnpack_lowering import LAYOUT_LOWERING, passes_replaced
from model_profiling.upstream.xnnpack_lowering import leave_out as leaving_out

T = TypeVar("T")
aten, edge = torch.ops.aten, ops.edge.aten
_NHWC = ChannelsLastTaggedReshapePass.XNN_NHWC_NODE


class FreePermutes(ChannelsLastTaggedReshapePass):  # type: ignore[misc]
    """ExecuTorch's pass that decides which tensors are held channels-last, which now also knows these two permutes."""

    def requires_nhwc_input(self, node: Any) -> bool:
        return to_nhwc(node) or bool(super().requires_nhwc_input(node))

    def requires_nchw_inputs(self, node: Any) -> bool:
        # XNNPACK's softmax takes the last axis in memory: of an image that would be the channels.
        return to_nchw(node) or node.target == edge._softmax.default or bool(super().requires_nchw_inputs(node))

    @staticmethod
    def mark_as_nhwc_node(node: Any) -> None:
        node.meta[_NHWC] = not to_nhwc(node)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        for node in graph_module.graph.nodes:
            if to_nchw(node):
                self.mark_as_nhwc_node(node)
        graph_module = super().call(graph_module).graph_module
        graph = graph_module.graph
        self._take_over(graph)
        self._hand_over(graph)
        for node in graph.nodes:
            if self._is_free(node):
                # A view of the same values; XNNPACK's reshape is told the sizes as they lie in memory.
                node.target, node.args = edge.view_copy.default, (node.args[0], list(node.meta["val"].shape))
                if not node.meta.get(_NHWC):
                    node.meta.pop(_NHWC, None)
        graph_module.recompile()
        return PassResult(graph_module, True)

    def _is_free(self, node: Any) -> bool:
        if to_nhwc(node):
            return bool(self.is_nhwc_node(node.args[0]))
        return to_nchw(node) and not self.is_nhwc_node(node.args[0])

    def _take_over(self, graph: torch.fx.Graph) -> None:
        """Take an input that is only read as an image as an image: a view would be a copy."""
        for node in graph.nodes:
            users = list(node.users)
            if node.op != "placeholder" or is_param_node(self.exported_program, node) or not users:
                continue
            if all(to_nchw(user) and self._is_free(user) for user in users):
                node.meta["val"] = users[0].meta["val"]
                self.mark_as_nhwc_node(node)
                for user in users:
                    user.replace_all_uses_with(node)
                    graph.erase_node(user)

    def _hand_over(self, graph: torch.fx.Graph) -> None:
        """Make an image itself an output where its memory is one and the image is not."""
        output = graph.output_node()
        for node in dict.fromkeys(output.args[0]):
            image = node.args[0] if to_nhwc(node) and self._is_free(node) else None
            if image is None or image.op == "placeholder" or image in output.args[0] or is_dequant(image):
                continue
            output.args = (tuple(image if entry is node else entry for entry in output.args[0]),)
            if not node.users:
                graph.erase_node(node)


class ImagePartitioner(XnnpackPartitioner):  # type: ignore[misc]
    """Leaves it to the delegate that makes an image to hand it out as plain memory."""

    def partition(self, exported_program: Any) -> Any:
        result = super().partition(exported_program)
        for node in result.tagged_exported_program.graph.nodes:
            if to_nhwc(node) and TAG in node.meta and (tag := node.args[0].meta.get(TAG)):
                node.meta[TAG] = tag
        return result


@dataclass(frozen=True)
class LoweredProgram:
    """The edge program after partitioning, and what could be learnt from it."""

    edge: Any
    nodes: list[LoweredNode]
    delegation: Delegation
    # Why the partitioner left nodes out, by their names.
    reasons: dict[str, str]
    # Whether images keep their order somewhere, where ExecuTorch by itself would turn them.
    keeps_images: bool = False
    # How it was lowered: `faster`, or `stock: ` and the reason.
    way: str = ""
    # What ExecuTorch emits of it.
    program: Any = None


def capture(module: torch.nn.Module, call: Call, dynamic_shapes: Any = None) -> torch.export.ExportedProgram:
    """Trace the module into a graph with torch.export."""
    with torch.no_grad():
        program = torch.export.export(module, *call, dynamic_shapes=dynamic_shapes)
    if any(getattr(node.target, "namespace", "") == "llama" for node in program.graph.nodes):
        remove_inverse_transposes(program)
    if holds(OPERATORS):
        runnable(program)
    return program


def lower(
    program: torch.export.ExportedProgram,
    backend: str,
    delegation: str = "whole",
    keep_layout: bool = False,
    leave_out: Collection[str] = (),
) -> LoweredProgram:
    """Hand to the backend what it takes, and note what it does not take and why.

    `keep_layout`: permutes that move nothing cost nothing, and images are turned only where their order must change.
    `leave_out`: nodes, or all nodes of operators (`aten.add.Tensor`), that no delegate may have.
    """
    register_quantized_kernels()

    def lowered() -> tuple[Any, bool]:
        per_op = delegation == "per-op"
        if keep_layout and backend == "xnnpack" and holds(LAYOUT_LOWERING):
            return _lower_in_place(program, per_op, leave_out)
        chosen = [leaving_out(XnnpackPartitioner(per_op_mode=per_op), leave_out)] if backend == "xnnpack" else None
        return to_edge_transform_and_lower(program, partitioner=chosen, generate_etrecord=True), False

    with rejections() as reasons:
        (edge, keeps_images), way = _faster_or_stock(lowered)
    nodes = list_nodes(edge.exported_program().graph_module)
    reasons |= {node.name: "left out (--leave-out)" for node in nodes if {node.name, node.op} & {*leave_out}}
    return LoweredProgram(edge, nodes, summarise(nodes, backend, reasons), reasons, keeps_images, way)


def _faster_or_stock(make: Callable[[], T]) -> tuple[T, str]:
    """Return what is made, in the stock way if it cannot be in the faster one, and in which way it was."""
    way = lowering_way()
    try:
        with faster_lowering():
            return make(), way
    except Exception as error:
        if way.startswith("stock"):
            raise
        with contextlib.suppress(Exception):
            made = make()
            leave_out("the faster lowering is left out", error)
            return made, f"stock: the faster way failed ({shortly(error)})"
        raise


def lowering_of(request: ExportRequest) -> dict[str, Any]:
    """Return what `lower` is told for a request."""
    keep_layout, leave_out = LAYOUT in request.rewrites, request.leave_out
    how = {"backend": request.backend, "delegation": request.delegation}
    return {**how, "keep_layout": keep_layout, "leave_out": leave_out}


def emit(lowered: LoweredProgram) -> LoweredProgram:
    """Plan the memory and make the program.

    ExecuTorch takes what a program writes into to be zero at first; buffers that begin with other values are stored.
    """
    graph = lowered.edge.exported_program()
    changed = graph.graph_signature.buffers_to_mutate.values()
    held = {
        name: graph.state_dict.get(target, graph.constants.get(target))
        for name, target in graph.graph_signature.inputs_to_buffers.items()
        if target in changed
    }
    names = [name for name, value in held.items() if value is not None and bool(value.any())]
    # torch.export's own default passes stay: this one comes after them.
    config = ExecutorchBackendConfig(passes=[initial_values_pass(names)] if names else [])
    return replace(lowered, program=_faster_or_stock(lambda: lowered.edge.to_executorch(config))[0])


def _lower_in_place(
    program: torch.export.ExportedProgram, per_op: bool, leave_out: Collection[str]
) -> tuple[Any, bool]:
    partitioner = leaving_out(ImagePartitioner(per_op_mode=per_op), leave_out)
    keeping = KeepImageOrder(partitioner)
    # XNNPACK's delegates get no transposes for permutes that move nothing.
    with passes_replaced({ChannelsLastTaggedReshapePass: FreePermutes}):
        edge = to_edge_transform_and_lower(
            program, transform_passes=[keeping], partitioner=[partitioner], generate_etrecord=True
        )
    return edge, keeping.modified


def remove_inverse_transposes(program: ExportedProgram) -> int:
    """Let nobody read a transpose that undoes the one before it; returns how many went.

    ExecuTorch's RemoveRedundantTransposes takes any permute done twice for undone, which a cycle of three axes is not.
    """
    removed = 0
    for node in list(program.graph.nodes):
        order = _order(node)
        before = _order(node.args[0]) if order is not None else None
        if order is None or before is None or [before[axis] for axis in order] != sorted(order):
            continue
        if any(user.op == "output" for user in node.users):
            continue  # a signature names its outputs, and an input may not be one
        replace_uses(program, node, node.args[0].args[0])
        removed += 1
    remove_unused(program.graph)
    program.graph_module.recompile()
    return removed


def _order(node: Any) -> list[int] | None:
    """Return which axis of its input each axis of a transpose or permute is; None for anything else."""
    moves = isinstance(node, torch.fx.Node) and node.target in (aten.transpose.int, aten.permute.default)
    return permutation_of(node) if moves else None
