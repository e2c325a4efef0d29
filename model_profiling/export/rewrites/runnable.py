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
    NodeRewrite,
    Site,
    constant,
    known_value,
    remove_unused,
    rewrite_nodes,
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


def runnable(program: ExportedProgram) -> None:
    """Replace all of them."""
    _without_grad_modes(program.graph_module)
    give_own_weights(program)
    rewrite_nodes(program, _REWRITES)


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


def _images(site: Site) -> Any:
    """Return the convolution as one of images: each has the planes under the kernel, one after another, as channels."""
    given, volume = site.given, site.source
    kernel = given["weight"].meta["val"].shape
    stride, dilation = _triple(given["stride"]), _triple(given["dilation"])
    before, after = _padding(given["padding"], kernel[2:], dilation)
    if any((*before, *after)) and (before != after or before[0]):
        # Height and width only where the convolution itself cannot: if their sides differ.
        sides = [(b, a) if b != a else (0, 0) for b, a in zip(before[:0:-1], after[:0:-1], strict=True)]
        pads = [size for side in (*sides, (before[0], after[0])) for size in side]
        volume = site(aten.constant_pad_nd.default, volume, pads)
    inner = [b if b == a else 0 for b, a in zip(before[1:], after[1:], strict=True)]
    batch, channels, _, height, width = volume.meta["val"].shape
    depth, (groups, outputs) = site.value.shape[2], (given["groups"], kernel[0])
    planes = site(aten.permute.default, volume, _CHANNELS_INSIDE)

    def covered(offset: int) -> Any:
        """Return one plane for each of the result's, with a place for the offset after the channels."""
        start = offset * dilation[0]
        end, taken = start + (depth - 1) * stride[0] + 1, planes
        if (start, end, stride[0]) != (0, planes.meta["val"].shape[1], 1):
            taken = site(aten.slice.Tensor, planes, 1, start, end, stride[0])
        return site.reshape(taken, [batch * depth, channels, 1, height, width])

    stacked = [covered(offset) for offset in range(kernel[2])]
    stack = site(aten.cat.default, stacked, 2) if len(stacked) > 1 else stacked[0]
    images = site.reshape(stack, [batch * depth, channels * kernel[2], height, width])
    weight, shape = given["weight"], [outputs, kernel[1] * kernel[2], *kernel[3:]]
    known = known_value(site.program, weight)
    weight = site.reshape(weight, shape) if known is None else site.constant(known.reshape(shape).contiguous())
    result = site(aten.conv2d.default, images, weight, given["bias"], stride[1:], inner, dilation[1:], groups)
    volume = site.reshape(result, [batch, depth, outputs, *result.meta["val"].shape[2:]])
    return site(aten.permute.default, volume, _CHANNELS_INSIDE)


def _padding(asked: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return what is added before and after in each dimension."""
    if asked == "same":
        whole = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        return [size // 2 for size in whole], [size - size // 2 for size in whole]
    sizes = [0, 0, 0] if asked == "valid" else _triple(asked)
    return sizes, sizes


def _pooled(site: Site) -> Any:
    """Pool height and width of every plane, then the depth of every pixel."""
    target = _POOLS[site.node.target]
    shape, result = list(site.source.meta["val"].shape), list(site.value.shape)
    many, (depth, height, width), pixels = math.prod(shape[:-3]), shape[-3:], result[-2] * result[-1]
    planes = site.reshape(site.source, [1, many * depth, height, width])
    planes = site(target, planes, *_window(site, slice(1, 3), result[-2:]))
    stack = site.reshape(planes, [1, many, depth, pixels])
    return site.reshape(site(target, stack, *_window(site, slice(0, 1), [result[-3], pixels])), result)


def _window(site: Site, dimensions: slice, size: list[int]) -> list[Any]:
    """Return the arguments of pooling in one or two of the three dimensions; a second one is left as it is."""
    given = site.given
    if site.node.target == aten.adaptive_avg_pool3d.default:
        return [size]
    kernel = _triple(given["kernel_size"])
    told: dict[str, Any] = {"kernel_size": kernel, "stride": _triple(given["stride"] or kernel)}
    told |= {name: _triple(given[name]) for name in ("padding", "dilation") if name in given}
    idle = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    cut = {name: (value[dimensions] + [idle[name]])[:2] for name, value in told.items()}
    rest = [given[name] for name in ("ceil_mode", "count_include_pad") if name in given]
    return [*cut.values(), *rest]


def _can_be_ranked(site: Site) -> bool:
    """Return whether nobody relies on the order of equal values, and torch ranks this dtype."""
    value, given = site.source.meta.get("val"), site.given
    known = isinstance(value, torch.Tensor) and value.dim() > 0 and value.dtype != torch.bool
    if not known or not isinstance(value.shape[given["dim"]], int) or not value.shape[given["dim"]]:
        return False
    stable = bool(given.get("stable")) and site.node.target == aten.sort.stable
    return not stable or all(user.args[1] == 0 for user in site.node.users)


def _ranked(site: Site) -> Any:
    """Return the `n` largest or smallest of `n` values, in order."""
    given = site.given
    count = site.source.meta["val"].shape[given["dim"]]
    ranked = site(aten.topk.default, site.source, count, given["dim"], bool(given["descending"]), True)
    if site.node.target != aten.argsort.default:
        return ranked
    with site.program.graph.inserting_after(ranked):
        places = site.program.graph.call_function(getitem, (ranked, 1))
    places.meta = {**site.node.meta}
    return places


_REWRITES = [
    NodeRewrite(_CONVOLUTIONS, lambda site: bool(site.source.meta["val"].dim() == 5), _images),
    NodeRewrite([*_POOLS], lambda site: site.given.get("divisor_override") is None, _pooled),
    NodeRewrite(_SORTS, _can_be_ranked, _ranked, any_value=True),
]
