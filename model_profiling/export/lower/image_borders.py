"""Changes the graph before it is partitioned, so that XNNPACK transposes fewer images.

Which tensors XNNPACK holds with channels last is predicted by ExecuTorch's own rule.
"""

import operator
from collections.abc import Container
from typing import Any

import torch
from executorch.backends.transforms.utils import create_constant_placeholder
from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult
from executorch.exir.passes.constant_prop_pass import constant_prop_pass
from torch.export.graph_signature import InputKind

from model_profiling.export.rewrites.graph import stored_tensor
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC

edge = ops.edge.aten
TAG = "delegation_tag"
# A larger constant is left as it is: it would be in the program twice.
MOST_VALUES = 1 << 16
BROADCASTING = {
    edge.add.Tensor, edge.sub.Tensor, edge.mul.Tensor, edge.div.Tensor, edge.maximum.default, edge.minimum.default,
}  # fmt: skip
# It becomes a convolution, or part of one.
_NORM = edge._native_batch_norm_legit_no_training.default
_PLAIN = {*ChannelsLastTaggedReshapePass.memory_sensitive_ops_nchw, edge.view_copy.default}
# What may be an image: not the integers of quantized ones, which are moved with their scales.
_DTYPES = (torch.float32, torch.float16, torch.bool)


def _order_of(node: Any) -> tuple[int, ...]:
    """Return a permute's order, () of any other node."""
    if node.target is not edge.permute_copy.default:
        return ()
    return tuple(dim % len(node.args[1]) for dim in node.args[1])


def to_nhwc(node: Any) -> bool:
    """Return whether a node is the permute from NCHW to NHWC: it gives an image's memory as a plain tensor."""
    return _order_of(node) == TO_NHWC


def to_nchw(node: Any) -> bool:
    """Return whether a node is the permute from NHWC to NCHW: it gives a plain tensor's memory as an image."""
    return _order_of(node) == TO_NCHW


def _images_of(graph: torch.fx.Graph, delegated: Container[Any]) -> dict[Any, None]:
    """Return the delegated tensors that will be channels last, and portable ones that could be computed so."""
    found: dict[Any, None] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not _is_image_shaped(node):
            continue
        if node not in delegated:
            if _could_follow(node, found):
                found[node] = None
            continue
        sensitive = node.target in ChannelsLastTaggedReshapePass.memory_sensitive_ops_nhwc
        if (
            sensitive
            or to_nchw(node)
            or (node.target is operator.getitem and node.args[0].target is _NORM)
            or (not to_nhwc(node) and node.target not in _PLAIN and _follows(node, found))
        ):
            found[node] = None
    return found


def _is_image_shaped(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.dtype not in _DTYPES:
        return False
    return all(isinstance(size, int) for size in value.shape)


def _follows(node: Any, images: dict[Any, None]) -> bool:
    """Return whether an operator that works in any order gives an image: it reads one, and 4-D tensors only.

    A constant that is combined with an image will be written as one.
    """
    read = [entry for entry in node.all_input_nodes if isinstance(entry.meta.get("val"), torch.Tensor)]
    if node.target in BROADCASTING:
        read = [entry for entry in read if entry.op != "placeholder"]
    return any(entry in images for entry in read) and all(entry.meta["val"].dim() == 4 for entry in read)


def _could_follow(node: Any, images: dict[Any, None]) -> bool:
    """Return whether a portable operator is pointwise, of images of one size and of numbers, and read by others."""
    if torch.Tag.pointwise not in getattr(getattr(node.target, "_op", None), "tags", ()) or node.kwargs.get("out"):
        return False
    if any(user.op == "output" for user in node.users):
        return False
    read = [entry for entry in node.all_input_nodes if isinstance(entry.meta.get("val"), torch.Tensor)]
    size = node.meta["val"].shape
    return any(entry in images for entry in read) and all(
        entry.meta["val"].numel() == 1 or (entry in images and entry.meta["val"].shape == size) for entry in read
    )


class KeepImageOrder(ExportedProgramPassBase):  # type: ignore[misc]
    """Images keep their order beside constants, and on their way from one delegate to another.

    ExecuTorch takes a number or a vector to be in another order than the image it is combined with, and turns the
    image before and after; an image that leaves a delegate is turned, and turned back where it enters the next.
    """

    def __init__(self, partitioner: XnnpackPartitioner) -> None:
        self._partitioner = partitioner
        # Whether it changed anything.
        self.modified = False

    def call(self, exported_program: Any) -> ExportedProgramPassResult:
        constant_prop_pass(exported_program, _skip_dim_order=False)
        graph = exported_program.graph
        self._partitioner.partition(exported_program)
        tags = {node: node.meta.pop(TAG) for node in graph.nodes if TAG in node.meta}
        images = _images_of(graph, tags)
        changed = _constants_beside(exported_program, images)
        opened: dict[Any, Any] = {}
        for node in images:
            if node not in tags:
                _compute_plain(graph, node, opened)
                changed += 1
        changed += sum(_pass_on(graph, node, tags, opened) for node in images if node in tags)
        self.modified |= bool(changed)
        if changed:
            graph.eliminate_dead_code()
            exported_program.graph_module.recompile()
        return ExportedProgramPassResult(exported_program, bool(changed))


def _constants_beside(program: Any, images: dict[Any, None]) -> int:
    """Write constants that are combined with images in the order of the image's memory."""
    graph = program.graph
    first = next(node for node in graph.nodes if node.op == "placeholder")
    made: dict[Any, Any] = {}
    count = 0
    for node in images:
        if node.target not in BROADCASTING:
            continue
        for constant, other in (node.args[:2], node.args[1::-1]):
            tensor = stored_tensor(program, constant) if other in images else None
            if tensor is None or tensor.dim() > 4 or (tensor.numel() > MOST_VALUES and len(constant.users) > 1):
                continue
            if constant not in made:
                image = tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape))
                with graph.inserting_before(first):
                    made[constant] = create_constant_placeholder(
                        program,
                        graph,
                        f"beside_image_{len(made)}",
                        InputKind.BUFFER,
                        # Not `contiguous()`: with sizes of one it keeps strides that say another order.
                        image.permute(TO_NHWC).clone(memory_format=torch.contiguous_format),
                        True,
                    )
            with graph.inserting_before(node):
                node.replace_input_with(constant, _permuted(graph, made[constant], TO_NCHW, node))
            count += 1
    return count


def _compute_plain(graph: torch.fx.Graph, node: Any, opened: dict[Any, Any]) -> None:
    """Let a portable operator compute on images' memory, and hand its result on as the image it is."""

    def plain(entry: Any) -> Any:
        if entry.meta["val"].numel() == 1:
            return entry
        if entry not in opened:
            with graph.inserting_after(entry):
                opened[entry] = _permuted(graph, entry, TO_NHWC, entry)
        return opened[entry]

    with graph.inserting_before(node):
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), plain)
        made = graph.call_function(node.target, args, kwargs)
        n, c, h, w = node.meta["val"].shape
        made.meta = {**node.meta, "val": node.meta["val"].new_empty((n, h, w, c))}
        image = _permuted(graph, made, TO_NCHW, node)
        opened[image] = made
        node.replace_all_uses_with(image)


def _pass_on(graph: torch.fx.Graph, node: Any, tags: dict[Any, str], opened: dict[Any, Any]) -> bool:
    """Hand an image to other delegates as plain memory."""
    elsewhere: dict[str, list[Any]] = {}
    for user in node.users:
        if tags.get(user, tags[node]) != tags[node] and not to_nhwc(user):
            elsewhere.setdefault(tags[user], []).append(user)
    if not elsewhere:
        return False
    if node not in opened:
        with graph.inserting_after(node):
            opened[node] = _permuted(graph, node, TO_NHWC, node)
    for users in elsewhere.values():
        with graph.inserting_after(opened[node]):
            closed = _permuted(graph, opened[node], TO_NCHW, node)
        for user in users:
            user.replace_input_with(node, closed)
    return True


def _permuted(graph: torch.fx.Graph, node: Any, order: tuple[int, ...], like: Any) -> Any:
    made = graph.call_function(edge.permute_copy.default, (node, list(order)))
    made.meta = {**like.meta, "val": edge.permute_copy.default(node.meta["val"], list(order))}
    return made
