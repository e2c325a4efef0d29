"""Rewrites that every export does: operators that no kernel of the runner computes become others.

No kernel of the runner computes 3-D convolutions and pooling, nor sorts. A volume is a stack of images: a 3-D
convolution is one of images whose channels are those of all the planes that its kernel covers; windows of 3-D pooling
are boxes, so that planes can be pooled first and then the stack. A sort ranks all values.
"""

import math
from collections.abc import Sequence
from operator import getitem
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import (
    arguments,
    calls,
    constant,
    known_value,
    remove_unused,
    replace_each,
    step,
    stored_tensor,
)

aten = torch.ops.aten
_CONVOLUTIONS = (aten.conv3d.default, aten.conv3d.padding)
_POOLS = {
    aten.max_pool3d.default: aten.max_pool2d.default,
    aten.avg_pool3d.default: aten.avg_pool2d.default,
    aten.adaptive_avg_pool3d.default: aten.adaptive_avg_pool2d.default,
}
_SORTS = (aten.sort.default, aten.sort.stable, aten.argsort.default)
_CHANNELS_INSIDE = [0, 2, 1, 3, 4]

_WEIGHTED = {
    aten.linear.default: 1,
    aten.conv1d.default: 1,
    aten.conv2d.default: 1,
    aten.conv2d.padding: 1,
    aten.conv_transpose1d.default: 1,
    aten.conv_transpose2d.input: 1,
}


def runnable(program: ExportedProgram) -> int:
    """Replace all of them; return how many there were."""
    _without_grad_modes(program.graph_module)
    give_own_weights(program)
    volumes = [node for node in calls(program, *_CONVOLUTIONS) if node.args[0].meta["val"].dim() == 5]
    pools = [node for node in calls(program, *_POOLS) if arguments(node).get("divisor_override") is None]
    count = replace_each(program, volumes, _images) if volumes else 0
    count += replace_each(program, pools, _pooled) if pools else 0
    sorts = [node for node in program.graph.nodes if node.target in _SORTS and _can_be_ranked(node)]
    return count + (replace_each(program, sorts, _ranked) if sorts else 0)


def _without_grad_modes(module: torch.fx.GraphModule) -> None:
    """Put the operators of regions with or without gradients where the region stands: a program computes none."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or str(node.target) != "wrap_with_set_grad_enabled":
            continue
        region = getattr(module, node.args[1].target)
        _without_grad_modes(region)
        given = iter(node.args[2:])
        with module.graph.inserting_before(node):
            known = {inner: next(given) for inner in region.graph.nodes if inner.op == "placeholder"}
            for inner in region.graph.nodes:
                if inner.op == "get_attr":
                    name = f"{node.name}_{inner.target}"
                    setattr(module, name, getattr(region, inner.target))
                    known[inner] = module.graph.get_attr(name)
                    known[inner].meta = dict(inner.meta)
            results = module.graph.graph_copy(region.graph, known)
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    remove_unused(module.graph)
    module.recompile()


def give_own_weights(program: ExportedProgram, each: bool = False) -> None:
    """Give every kind of use of a weight its own copy, or `each` use.

    A delegate holds a weight once, in the order and with the scale of one of its uses: the others would compute with
    that, or not load. A copy is in the .pte only if it differs.
    """
    copied = False
    for node in [node for node in program.graph.nodes if node.op == "placeholder" and len(node.users) > 1]:
        data = stored_tensor(program, node)
        uses = [
            (user, user.target, next((number for number, argument in enumerate(user.args) if argument is node), -1))
            for user in node.users
        ]
        if data is None or not any(_WEIGHTED.get(target) in (place, place - 1) for _, target, place in uses):
            continue
        first = uses[0]
        for user, target, place in uses[1:]:
            if each or (target, place) != first[1:]:
                user.replace_input_with(node, constant(program, data.clone()))
                copied = True
    if copied:
        program.graph_module.recompile()


def _triple(value: Any) -> list[int]:
    """Return one number for each of depth, height and width."""
    values = [value] if isinstance(value, int) else list(value)
    return values * 3 if len(values) == 1 else values


def _images(program: ExportedProgram, node: Any) -> Any:
    """Return the convolution as one of images: each has the planes under the kernel, one after another, as channels."""
    given = arguments(node)
    kernel = given["weight"].meta["val"].shape
    stride, dilation = _triple(given["stride"]), _triple(given["dilation"])
    before, after = _padding(given["padding"], kernel[2:], dilation)
    volume = node.args[0]
    if any((*before, *after)) and (before != after or before[0]):
        # Height and width only where the convolution itself cannot: if their sides differ.
        sides = [(b, a) if b != a else (0, 0) for b, a in zip(before[:0:-1], after[:0:-1], strict=True)]
        pads = [size for side in (*sides, (before[0], after[0])) for size in side]
        volume = step(program, node, aten.constant_pad_nd.default, volume, pads)
    inner = [b if b == a else 0 for b, a in zip(before[1:], after[1:], strict=True)]
    batch, channels, _, height, width = volume.meta["val"].shape
    depth, (groups, outputs) = node.meta["val"].shape[2], (given["groups"], kernel[0])
    planes = step(program, node, aten.permute.default, volume, _CHANNELS_INSIDE)
    covered = [
        _every(program, node, planes, offset * dilation[0], stride[0], depth, (batch, channels, height, width))
        for offset in range(kernel[2])
    ]
    stack = step(program, node, aten.cat.default, covered, 2) if len(covered) > 1 else covered[0]
    images = step(program, node, aten.reshape.default, stack, [batch * depth, channels * kernel[2], height, width])
    weight = _reshaped(program, node, given["weight"], [outputs, kernel[1] * kernel[2], *kernel[3:]])
    told = (weight, given["bias"], stride[1:], inner, dilation[1:], groups)
    result = step(program, node, aten.conv2d.default, images, *told)
    rows, columns = result.meta["val"].shape[2:]
    volume = step(program, node, aten.reshape.default, result, [batch, depth, outputs, rows, columns])
    return step(program, node, aten.permute.default, volume, _CHANNELS_INSIDE)


def _every(
    program: ExportedProgram, node: Any, planes: Any, start: int, stride: int, count: int, image: Sequence[int]
) -> Any:
    """Return `count` planes, `stride` apart, with a place for the offset after the channels."""
    batch, channels, height, width = image
    end = start + (count - 1) * stride + 1
    taken = planes
    if (start, end, stride) != (0, planes.meta["val"].shape[1], 1):
        taken = step(program, node, aten.slice.Tensor, planes, 1, start, end, stride)
    return step(program, node, aten.reshape.default, taken, [batch * count, channels, 1, height, width])


def _padding(asked: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return what is added before and after in each dimension."""
    if asked == "same":
        whole = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        return [size // 2 for size in whole], [size - size // 2 for size in whole]
    sizes = [0, 0, 0] if asked == "valid" else _triple(asked)
    return sizes, sizes


def _reshaped(program: ExportedProgram, node: Any, weight: Any, shape: list[int]) -> Any:
    known = known_value(program, weight)
    if known is None:
        return step(program, node, aten.reshape.default, weight, shape)
    return constant(program, known.reshape(shape).contiguous())


def _pooled(program: ExportedProgram, node: Any) -> Any:
    """Pool height and width of every plane, then the depth of every pixel."""
    target = _POOLS[node.target]
    shape, result = list(node.args[0].meta["val"].shape), list(node.meta["val"].shape)
    many, (depth, height, width), pixels = math.prod(shape[:-3]), shape[-3:], result[-2] * result[-1]
    planes = step(program, node, aten.reshape.default, node.args[0], [1, many * depth, height, width])
    planes = step(program, node, target, planes, *_window(node, slice(1, 3), result[-2:]))
    stack = step(program, node, aten.reshape.default, planes, [1, many, depth, pixels])
    stack = step(program, node, target, stack, *_window(node, slice(0, 1), [result[-3], pixels]))
    return step(program, node, aten.reshape.default, stack, result)


def _window(node: Any, dimensions: slice, size: list[int]) -> list[Any]:
    """Return the arguments of pooling in one or two of the three dimensions; a second one is left as it is."""
    given = arguments(node)
    if node.target == aten.adaptive_avg_pool3d.default:
        return [size]
    kernel = _triple(given["kernel_size"])
    told: dict[str, Any] = {"kernel_size": kernel, "stride": _triple(given["stride"] or kernel)}
    told |= {name: _triple(given[name]) for name in ("padding", "dilation") if name in given}
    idle = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    cut = {name: (value[dimensions] + [idle[name]])[:2] for name, value in told.items()}
    rest = [given[name] for name in ("ceil_mode", "count_include_pad") if name in given]
    return [*cut.values(), *rest]


def _can_be_ranked(node: Any) -> bool:
    """Return whether nobody relies on the order of equal values, and torch ranks this dtype."""
    value, given = node.args[0].meta.get("val"), arguments(node)
    known = isinstance(value, torch.Tensor) and value.dim() > 0 and value.dtype != torch.bool
    if not known or not isinstance(value.shape[given["dim"]], int) or not value.shape[given["dim"]]:
        return False
    stable = bool(given.get("stable")) and node.target == aten.sort.stable
    return not stable or all(user.args[1] == 0 for user in node.users)


def _ranked(program: ExportedProgram, node: Any) -> Any:
    """Return the `n` largest or smallest of `n` values, in order."""
    given = arguments(node)
    count = node.args[0].meta["val"].shape[given["dim"]]
    ranked = step(program, node, aten.topk.default, node.args[0], count, given["dim"], bool(given["descending"]), True)
    if node.target != aten.argsort.default:
        return ranked
    with program.graph.inserting_after(ranked):
        places = program.graph.call_function(getitem, (ranked, 1))
    places.meta = {**node.meta}
    return places
