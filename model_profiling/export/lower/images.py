"""Predicts which tensors of a graph XNNPACK holds with channels last, by ExecuTorch's own rule."""

import operator
from collections.abc import Container
from typing import Any

import torch
from executorch.backends.xnnpack._passes import ChannelsLastTaggedReshapePass
from executorch.exir.dialects._ops import ops

from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC

edge = ops.edge.aten
BROADCASTING = {
    edge.add.Tensor, edge.sub.Tensor, edge.mul.Tensor, edge.div.Tensor, edge.maximum.default, edge.minimum.default,
}  # fmt: skip
_PLAIN = {*ChannelsLastTaggedReshapePass.memory_sensitive_ops_nchw, edge.view_copy.default}


def order_of(node: Any) -> tuple[int, ...]:
    """Return a permute's order, () of any other node."""
    if node.target is not edge.permute_copy.default:
        return ()
    return tuple(dim % len(node.args[1]) for dim in node.args[1])


def to_nhwc(node: Any) -> bool:
    """Return whether a node is the permute from NCHW to NHWC: it gives an image's memory as a plain tensor."""
    return order_of(node) == TO_NHWC


def to_nchw(node: Any) -> bool:
    """Return whether a node is the permute from NHWC to NCHW: it gives a plain tensor's memory as an image."""
    return order_of(node) == TO_NCHW


def images_of(graph: torch.fx.Graph, delegated: Container[Any]) -> dict[Any, None]:
    """Return the delegated tensors that will be channels last, and portable ones that could be computed so."""
    found: dict[Any, None] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not is_image_shaped(node):
            continue
        if node not in delegated:
            if _could_follow(node, found):
                found[node] = None
            continue
        sensitive = node.target in ChannelsLastTaggedReshapePass.memory_sensitive_ops_nhwc
        if (
            sensitive
            or to_nchw(node)
            or _is_norm(node)
            or (not to_nhwc(node) and node.target not in _PLAIN and _follows(node, found))
        ):
            found[node] = None
    return found


# What may be an image: not the integers of quantized ones, which are moved with their scales.
_DTYPES = (torch.float32, torch.float16, torch.bool)


def is_image_shaped(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.dtype not in _DTYPES:
        return False
    return all(isinstance(size, int) for size in value.shape)


def _is_norm(node: Any) -> bool:
    """Return whether a node is a batch norm's result: it becomes a convolution, or part of one."""
    norm = edge._native_batch_norm_legit_no_training.default
    return node.target is operator.getitem and node.args[0].target is norm


def _follows(node: Any, images: dict[Any, None]) -> bool:
    """Return whether an operator that works in any order gives an image: it reads one, and 4-D tensors only.

    A constant that is combined with an image will be written as one.
    """
    read = [entry for entry in node.all_input_nodes if isinstance(entry.meta.get("val"), torch.Tensor)]
    if node.target in BROADCASTING:
        read = [entry for entry in read if entry.op != "placeholder"]
    return any(entry in images for entry in read) and all(entry.meta["val"].dim() == 4 for entry in read)


def _could_follow(node: Any, images: dict[Any, None]) -> bool:
    """Return whether a portable operator is pointwise, of images of one size and of numbers."""
    if torch.Tag.pointwise not in getattr(getattr(node.target, "_op", None), "tags", ()) or node.kwargs.get("out"):
        return False
    read = [entry for entry in node.all_input_nodes if isinstance(entry.meta.get("val"), torch.Tensor)]
    size = node.meta["val"].shape
    return any(entry in images for entry in read) and all(
        entry.meta["val"].numel() == 1 or (entry in images and entry.meta["val"].shape == size) for entry in read
    )
