"""Lower permutes that move nothing as views, and keep images in XNNPACK's order on their way between delegates.

XNNPACK computes on images with their channels last, and ExecuTorch's lowering keeps a 4-D tensor so from one such
operator to the next. `permute(0, 2, 3, 1)` of it is then the plain tensor of the same memory, and
`permute(0, 3, 1, 2)` leads back: nothing has to move. ExecuTorch lowers each as two real transposes.
"""

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
from executorch.backends.xnnpack import xnnpack_preprocess
from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass, XNNPACKPassManager
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.quant_utils import is_dequant
from executorch.backends.xnnpack.utils.utils import is_param_node
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult, PassResult

from model_profiling.graph_terms import TO_NCHW, TO_NHWC

edge = ops.edge.aten
_TAG = "delegation_tag"
_NHWC = ChannelsLastTaggedReshapePass.XNN_NHWC_NODE


def _order(node: Any) -> tuple[int, ...]:
    if node.target is not edge.permute_copy.default:
        return ()
    return tuple(dim % len(node.args[1]) for dim in node.args[1])


def _opens(node: Any) -> bool:
    """Whether a node gives an image's memory as a plain tensor."""
    return _order(node) == TO_NHWC


def _closes(node: Any) -> bool:
    """Whether a node gives a plain tensor's memory as an image."""
    return _order(node) == TO_NCHW


class FreePermutes(ChannelsLastTaggedReshapePass):  # type: ignore[misc]
    """ExecuTorch's pass that decides which tensors are held channels-last, which now also knows these two permutes."""

    def requires_nhwc_input(self, node: Any) -> bool:
        return _opens(node) or bool(super().requires_nhwc_input(node))

    def requires_nchw_inputs(self, node: Any) -> bool:
        return _closes(node) or bool(super().requires_nchw_inputs(node))

    @staticmethod
    def mark_as_nhwc_node(node: Any) -> None:
        node.meta[_NHWC] = not _opens(node)

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        for node in graph_module.graph.nodes:
            if _closes(node):
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
        if _opens(node):
            return bool(self.is_nhwc_node(node.args[0]))
        return _closes(node) and not self.is_nhwc_node(node.args[0])

    def _take_over(self, graph: torch.fx.Graph) -> None:
        """A plain tensor that comes in and is read as an image only comes in as one: a view would be a copy."""
        for node in graph.nodes:
            users = list(node.users)
            if node.op != "placeholder" or is_param_node(self.exported_program, node) or not users:
                continue
            if all(_closes(user) and self._is_free(user) for user in users):
                node.meta["val"] = users[0].meta["val"]
                self.mark_as_nhwc_node(node)
                for user in users:
                    user.replace_all_uses_with(node)
                    graph.erase_node(user)

    def _hand_over(self, graph: torch.fx.Graph) -> None:
        """An image that is handed out as its memory, and not as an image too, is handed out itself."""
        output = graph.output_node()
        for node in dict.fromkeys(output.args[0]):
            image = node.args[0] if _opens(node) and self._is_free(node) else None
            if image is None or image.op == "placeholder" or image in output.args[0] or is_dequant(image):
                continue
            output.args = (tuple(image if entry is node else entry for entry in output.args[0]),)
            if not node.users:
                graph.erase_node(node)


class _Passes(XNNPACKPassManager):  # type: ignore[misc]
    def __init__(self, program: Any, passes: Any = None) -> None:
        super().__init__(program, passes)
        self.passes = [FreePermutes if each is ChannelsLastTaggedReshapePass else each for each in self.passes]


@contextlib.contextmanager
def free_permutes() -> Iterator[None]:
    """XNNPACK's delegates that are made in this block have no transposes for permutes that move nothing."""
    stock = xnnpack_preprocess.XNNPACKPassManager
    xnnpack_preprocess.XNNPACKPassManager = _Passes
    try:
        yield
    finally:
        xnnpack_preprocess.XNNPACKPassManager = stock


class ImagePartitioner(XnnpackPartitioner):  # type: ignore[misc]
    """Leaves it to the delegate that makes an image to hand it out as plain memory."""

    def partition(self, exported_program: Any) -> Any:
        result = super().partition(exported_program)
        for node in result.tagged_exported_program.graph.nodes:
            if _opens(node) and _TAG in node.meta and (tag := node.args[0].meta.get(_TAG)):
                node.meta[_TAG] = tag
        return result


class ImagesBetweenDelegates(ExportedProgramPassBase):  # type: ignore[misc]
    """An image that one delegate makes and another reads passes between them in its own order, as plain memory."""

    def __init__(self, partitioner: XnnpackPartitioner) -> None:
        self._partitioner = partitioner

    def call(self, exported_program: Any) -> ExportedProgramPassResult:
        graph = exported_program.graph
        self._partitioner.partition(exported_program)
        tags = {node: node.meta.pop(_TAG) for node in graph.nodes if _TAG in node.meta}
        images = _images(graph, tags)
        changed = False
        for node in list(images):
            elsewhere: dict[str, list[Any]] = {}
            for user in node.users:
                if tags.get(user, tags[node]) != tags[node]:
                    elsewhere.setdefault(tags[user], []).append(user)
            if elsewhere:
                changed = True
                with graph.inserting_after(node):
                    opened = _permuted(graph, node, TO_NHWC)
                for users in elsewhere.values():
                    with graph.inserting_after(opened):
                        closed = _permuted(graph, opened, TO_NCHW)
                    for user in users:
                        user.replace_input_with(node, closed)
        if changed:
            exported_program.graph_module.recompile()
        return ExportedProgramPassResult(exported_program, changed)


def _permuted(graph: torch.fx.Graph, node: Any, order: tuple[int, ...]) -> Any:
    made = graph.call_function(edge.permute_copy.default, (node, list(order)))
    made.meta = {**node.meta, "val": edge.permute_copy.default(node.meta["val"], list(order))}
    return made


def _images(graph: torch.fx.Graph, tags: dict[Any, str]) -> dict[Any, None]:
    """The delegated floating-point tensors that XNNPACK will hold with their channels last."""
    found: dict[Any, None] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node not in tags or not isinstance(value, torch.Tensor) or value.dim() != 4:
            continue
        if not value.is_floating_point() or not all(isinstance(size, int) for size in value.shape):
            continue
        if node.target in ChannelsLastTaggedReshapePass.memory_sensitive_ops_nhwc or _closes(node) or _normed(node):
            found[node] = None
        elif _opens(node) or node.target in _PLAIN:
            continue
        elif _follows(node, found):
            found[node] = None
    return found


def _normed(node: Any) -> bool:
    """A batch norm becomes a convolution, or part of one."""
    return node.target is operator.getitem and node.args[0].target is edge._native_batch_norm_legit_no_training.default


_PLAIN = {*ChannelsLastTaggedReshapePass.memory_sensitive_ops_nchw, edge.view_copy.default}


def _follows(node: Any, images: dict[Any, None]) -> bool:
    """An operator that does not mind the order gives an image if it reads one, and nothing but 4-D tensors."""
    read = [entry for entry in node.all_input_nodes if isinstance(entry.meta.get("val"), torch.Tensor)]
    return any(entry in images for entry in read) and all(entry.meta["val"].dim() == 4 for entry in read)
