"""Operators that treat every value alike: any order will do, as long as all inputs have the same."""

import math
from dataclasses import replace
from typing import Any

import torch

from model_profiling.export.rewrites.layout.images import as_image
from model_profiling.export.rewrites.layout.order import common_cut, runs
from model_profiling.export.rewrites.layout.rebuild import Rebuild, Value, fixed
from model_profiling.export.rewrites.layout.values import held_as, image_of

aten = torch.ops.aten

ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


def pointwise(rb: Rebuild, node: Any) -> Value | None:
    """Any order will do, as long as all have the same."""
    operands = list(dict.fromkeys(node.all_input_nodes))
    values = {entry: rb.held(entry) for entry in operands}
    if not fixed(node.meta["val"]) or any(value is None for value in values.values()) or node.kwargs.get("out"):
        return None
    held: dict[Any, Value] = {entry: value for entry, value in values.items() if value is not None}
    shape = tuple(node.meta["val"].shape)
    full = [value for value in held.values() if value.shape == shape]
    if not full or all(value.layout.is_contiguous and not value.is_image for value in full):
        return None
    if any(value.like_image for value in full):
        if node.target in ARITHMETIC and not all(_has_four_dims(entry) for entry in node.args[:2]):
            rb.spared.append(node)
        return image_of(_applied(rb, node, {entry: as_image(rb, value) for entry, value in held.items()}))
    return _in_one_order(rb, node, held, full)


def _has_four_dims(operand: Any) -> bool:
    return isinstance(operand, torch.fx.Node) and operand.meta["val"].dim() == 4


def _applied(rb: Rebuild, node: Any, inputs: dict[Any, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda entry: inputs[entry])
    return rb.again(node, _floats(node, args), kwargs)


def _floats(node: Any, args: Any) -> Any:
    """Whole numbers beside floating-point tensors as such: otherwise ExecuTorch converts each while the model runs."""
    if node.target not in ARITHMETIC or not node.meta["val"].is_floating_point():
        return args
    return tuple(float(arg) if type(arg) is int and abs(arg) < 2**11 else arg for arg in args)


def _in_one_order(rb: Rebuild, node: Any, held: dict[Any, Value], full: list[Value]) -> Value | None:
    rank = len(full[0].shape)
    lifted = {entry: _lifted(value, rank) for entry, value in held.items()}
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
        inputs[entry] = rb.seen(rb.moved(value, wanted), sizes or [1])
    return held_as(leading.layout, _applied(rb, node, inputs), leading)


def _lifted(value: Value, rank: int) -> Value:
    layout = value.layout.reshaped((1,) * (rank - len(value.shape)) + value.shape)
    assert layout is not None
    return replace(value, layout=layout)


def common_cuts(values: list[Value]) -> dict[int, tuple[int, ...]] | None:
    """For each dimension the axes that all tensors can be cut into."""
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
    """The one whose order most others have already; of equals, one that is not in its usual order."""
    orders = [value.layout.order for value in full]
    return max(full, key=lambda value: (orders.count(value.layout.order), not value.layout.is_contiguous))
