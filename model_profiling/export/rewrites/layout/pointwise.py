"""Operators that treat every value alike: any order will do, as long as all inputs have the same."""

import math
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.layout.images import as_image, lift
from model_profiling.export.rewrites.layout.order import common_cut, runs
from model_profiling.export.rewrites.layout.rebuild import Rebuild
from model_profiling.export.rewrites.layout.values import Value, fixed, image_of, value_of
from model_profiling.upstream.xnnpack_partitioner import supported_operators

aten = torch.ops.aten

# Decomposed into operators that are delegated, without numbers.
IN_PARTS = {aten.silu.default, aten.square.default}
ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


def pointwise(rb: Rebuild, node: Any) -> Value | None:
    """Do a pointwise operator in any order that all its inputs have."""
    operands = list(dict.fromkeys(node.all_input_nodes))
    values = {entry: rb.layout_of(entry) for entry in operands}
    if not fixed(node.meta["val"]) or any(value is None for value in values.values()) or node.kwargs.get("out"):
        return None
    held: dict[Any, Value] = {entry: value for entry, value in values.items() if value is not None}
    shape = tuple(node.meta["val"].shape)
    full = [value for value in held.values() if value.shape == shape]
    if not full:
        return None
    if all(value.layout.is_contiguous and not value.is_image for value in full):
        result: Value = rb.contiguous_copy(node)
        result.memory.maker = full[0].memory.maker if len(held) == 1 else None
        return result
    if any(value.like_image for value in full):
        if _turns_images(node):
            rb.saved.append(node)
        result = image_of(_applied(rb, node, {entry: as_image(rb, value) for entry, value in held.items()}))
        result.memory.maker = full[0].memory.maker if len(held) == 1 else None
        result.memory.origin = next((value.memory.origin for value in full if value.is_image), None)
        return result
    return _in_one_order(rb, node, held, full)


def _turns_images(node: Any) -> bool:
    """Return whether lowering transposes an image for this operator: no delegate takes it, or it meets a number."""
    if node.target in ARITHMETIC:
        return not all(isinstance(entry, torch.fx.Node) and entry.meta["val"].dim() == 4 for entry in node.args[:2])
    name = f"{node.target.overloadpacket.__name__}.{node.target._overloadname}"
    supported = supported_operators()
    return supported is not None and name not in supported and node.target not in IN_PARTS


def _applied(rb: Rebuild, node: Any, inputs: dict[Any, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda entry: inputs[entry])
    return rb.copy_node(node, _floats(node, args), kwargs)


def _floats(node: Any, args: Any) -> Any:
    """Return integers beside float tensors as floats: otherwise ExecuTorch converts each while the model runs."""
    if node.target not in ARITHMETIC or not node.meta["val"].is_floating_point():
        return args
    return tuple(float(arg) if type(arg) is int and abs(arg) < 2**11 else arg for arg in args)


def _in_one_order(rb: Rebuild, node: Any, held: dict[Any, Value], full: list[Value]) -> Value | None:
    rank = len(full[0].shape)
    lifted = {entry: lift(value, rank) for entry, value in held.items()}
    cuts = common_cuts(list(lifted.values()))
    if cuts is None:
        return None
    cut = {entry: replace(value, layout=value.layout.cut(own_cuts(value, cuts))) for entry, value in lifted.items()}
    leading = _leading([value for value in cut.values() if value.shape == full[0].shape])
    order = leading.layout.order
    present = {entry: frozenset(value.layout.order) for entry, value in cut.items()}
    groups = runs(order, list(present.values()))
    inputs = {}
    for entry, value in cut.items():
        wanted = tuple(axis for axis in order if axis in present[entry])
        sizes = [math.prod(value.layout.sizes(g)) if g[0] in present[entry] else 1 for g in groups]
        inputs[entry] = rb.view(rb.moved(value, wanted), sizes or [1])
    return value_of(leading.layout, _applied(rb, node, inputs), leading)


def common_cuts(values: list[Value]) -> dict[int, tuple[int, ...]] | None:
    """Return for each dimension the axes that all tensors can be cut into."""
    cuts: dict[int, tuple[int, ...]] = {}
    for value in values:
        for dim, sizes in enumerate(value.layout.dims):
            if not sizes:
                continue
            both = common_cut(cuts[dim], sizes) if dim in cuts else sizes
            if both is None:
                return None
            cuts[dim] = both
    return cuts


def own_cuts(value: Value, cuts: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    return {dim: cut for dim, cut in cuts.items() if value.layout.dims[dim]}


def _leading(full: list[Value]) -> Value:
    """Return the one whose order most others have already; of equals, one in its usual order."""
    orders = [value.layout.order for value in full]
    return max(full, key=lambda value: (orders.count(value.layout.order), value.layout.is_contiguous))
