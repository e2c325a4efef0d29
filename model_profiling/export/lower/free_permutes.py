"""Lower permutes that move nothing as views.

XNNPACK computes on images with their channels last, and ExecuTorch's lowering keeps a 4-D tensor so from one such
operator to the next. `permute(0, 2, 3, 1)` of it is then the plain tensor of the same memory, and
`permute(0, 3, 1, 2)` leads back: nothing has to move. ExecuTorch lowers each as two real transposes.
"""

import contextlib
from typing import Any

import torch
from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.quant_utils import is_dequant
from executorch.backends.xnnpack.utils.utils import is_param_node
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import PassResult

from model_profiling.export.lower.image_borders import TAG
from model_profiling.export.lower.images import to_nchw, to_nhwc
from model_profiling.upstream.xnnpack_passes import passes_replaced

edge = ops.edge.aten
_NHWC = ChannelsLastTaggedReshapePass.XNN_NHWC_NODE


class FreePermutes(ChannelsLastTaggedReshapePass):  # type: ignore[misc]
    """ExecuTorch's pass that decides which tensors are held channels-last, which now also knows these two permutes."""

    def requires_nhwc_input(self, node: Any) -> bool:
        return to_nhwc(node) or bool(super().requires_nhwc_input(node))

    def requires_nchw_inputs(self, node: Any) -> bool:
        return to_nchw(node) or bool(super().requires_nchw_inputs(node))

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


def free_permutes() -> contextlib.AbstractContextManager[None]:
    """Make XNNPACK delegates in a block without transposes for permutes that move nothing."""
    return passes_replaced({ChannelsLastTaggedReshapePass: FreePermutes})


class ImagePartitioner(XnnpackPartitioner):  # type: ignore[misc]
    """Leaves it to the delegate that makes an image to hand it out as plain memory."""

    def partition(self, exported_program: Any) -> Any:
        result = super().partition(exported_program)
        for node in result.tagged_exported_program.graph.nodes:
            if to_nhwc(node) and TAG in node.meta and (tag := node.args[0].meta.get(TAG)):
                node.meta[TAG] = tag
        return result
