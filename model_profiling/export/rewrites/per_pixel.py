"""Layers that treat every pixel alike need no layout change: linear layers between permutes become 1x1 convolutions.

Models written with tokens in mind (windows, patches, an MLP over channels) permute an image so that its channels come
last, apply linear and elementwise layers, and permute back. None of these layers looks at a pixel's neighbours, so the
order of the pixels does not matter and the image can stay as it is. XNNPACK stores images with channels last anyway:
its 1x1 convolution is the same matrix multiplication, without the transposes.

That a region qualifies is not guessed from the names of its operators. Where each value of a tensor comes from is
computed, by sending the numbers of the pixels through the same views and permutes.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from model_profiling.export.rewrites.graph import take_place

aten = torch.ops.aten
LAYOUT = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.permute.default, aten.transpose.int,
    aten.flatten.using_ints, aten.unflatten.int, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.movedim.intlist, aten.movedim.int, aten.contiguous.default, aten.clone.default, aten.swapaxes.default,
}  # fmt: skip
ELEMENTWISE = {
    aten.relu.default, aten.gelu.default, aten.silu.default, aten.sigmoid.default, aten.tanh.default,
    aten.hardswish.default, aten.hardsigmoid.default, aten.leaky_relu.default, aten.elu.default, aten.clamp.default,
    aten.hardtanh.default, aten.neg.default, aten.abs.default, aten.dropout.default,
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor,
}  # fmt: skip
# The numbers of a larger image's values take more memory than is worth spending on the check.
MOST_VALUES = 1 << 25


@dataclass(frozen=True)
class Origin:
    """Where a tensor's values lie in an image of `shape` (NCHW): the place of each, counted in the image's order."""

    shape: tuple[int, ...]
    places: torch.Tensor

    @functools.cached_property
    def is_the_image(self) -> bool:
        """Whether the tensor is the image itself, in its own order."""
        return tuple(self.places.shape) == self.shape and bool((self.places.flatten().diff() == 1).all())

    def after_linear(self, width: int) -> "Origin | None":
        """The origin of a linear layer's output, which is an image of `width` channels; None unless channels are last.

        They are when each row holds all channels of one pixel in their order.
        """
        batch, channels, height, wide = self.shape
        area = height * wide
        if self.places.dim() < 2 or self.places.shape[-1] != channels:
            return None
        first = self.places[..., :1]
        if not torch.equal(self.places, first + torch.arange(channels) * area) or bool(
            (first // area % channels).any()
        ):
            return None
        number, pixel = first // (channels * area), first % area
        return Origin((batch, width, height, wide), (number * width + torch.arange(width)) * area + pixel)


def layout_changes(program: torch.export.ExportedProgram) -> list[Any]:
    """The views and permutes around per-pixel layers that are not needed."""
    return [node for region in _closed_regions(_origins(program)) for node in region if node.target in LAYOUT]


def per_pixel(program: torch.export.ExportedProgram) -> int:
    """Undo the layout changes around per-pixel layers; returns how many layout changes are gone."""
    origins = _origins(program)
    gone = 0
    for region in list(_closed_regions(origins)):
        _rebuild(program, region, origins)
        gone += sum(node.target in LAYOUT for node in region)
        for node in reversed(region):
            program.graph.erase_node(node)
    program.graph_module.recompile()
    return gone


def _origins(program: torch.export.ExportedProgram) -> dict[Any, Origin]:
    """Follow every image through layout changes and per-pixel layers until it is in its own order again."""
    found: dict[Any, Origin] = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            origin = _origin(program, node, found)
            if origin is not None:
                found[node] = origin
    return found


def _origin(program: torch.export.ExportedProgram, node: Any, found: dict[Any, Origin]) -> Origin | None:
    # An image in its own order is where a region ends and, at the next layout change, another may begin.
    known = {entry: found[entry] for entry in node.all_input_nodes if entry in found and not found[entry].is_the_image}
    if node.target in LAYOUT:
        source = node.args[0]
        before = known.get(source) or _image(source)
        return before and Origin(before.shape, node.target(before.places, *node.args[1:], **node.kwargs))
    if not known:
        return None
    if node.target in ELEMENTWISE:
        first, *others = known.values()
        alike = all(o.shape == first.shape and torch.equal(o.places, first.places) for o in others)
        return first if alike and len(known) == len(node.all_input_nodes) else None
    if node.target is aten.linear.default and node.args[0] in known and _own_parameter(program, node.args[1]):
        return known[node.args[0]].after_linear(node.args[1].meta["val"].shape[0])
    return None


def _image(node: Any) -> Origin | None:
    """A 4-D tensor of floats, of a fixed size, is an image in its own order."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or not value.is_floating_point():
        return None
    if not all(isinstance(size, int) for size in value.shape) or not 0 < value.numel() <= MOST_VALUES:
        return None
    return Origin(tuple(value.shape), torch.arange(value.numel()).reshape(value.shape))


def _own_parameter(program: torch.export.ExportedProgram, weight: Any) -> bool:
    """Whether the weight is a parameter that nothing else uses, so that its shape may change."""
    return weight.name in program.graph_signature.inputs_to_parameters and len(weight.users) == 1


def _closed_regions(origins: dict[Any, Origin]) -> Iterator[list[Any]]:
    """Connected nodes whose values nobody outside sees in another order than the image's."""
    waiting = dict.fromkeys(origins)
    while waiting:
        region, open_ends = dict.fromkeys([next(iter(waiting))]), False
        frontier = list(region)
        while frontier:
            node = frontier.pop()
            inside = not origins[node].is_the_image
            beside = [entry for entry in node.all_input_nodes if entry in origins and not origins[entry].is_the_image]
            if inside:
                open_ends = open_ends or any(user not in origins for user in node.users)
                beside += [user for user in node.users if user in origins]
            new = [entry for entry in beside if entry not in region]
            region.update(dict.fromkeys(new))
            frontier += new
        for node in region:
            waiting.pop(node, None)
        if not open_ends and any(origins[node].is_the_image for node in region) and len(region) > 1:
            yield [node for node in origins if node in region]


def _rebuild(program: torch.export.ExportedProgram, region: list[Any], origins: dict[Any, Origin]) -> None:
    """Do the region's layers to the image itself, and hand the image to whoever used the region's result."""
    image: dict[Any, Any] = {}
    for node in region:
        with program.graph.inserting_before(node):
            if node.target in LAYOUT:
                image[node] = image.get(node.args[0], node.args[0])
            elif node.target is aten.linear.default:
                image[node] = _convolution(program, node, image)
            else:
                image[node] = _copy(program, node, node.target, torch.fx.map_arg(node.args, lambda n: image.get(n, n)))
        if origins[node].is_the_image:
            take_place(program, node, image[node])


def _convolution(program: torch.export.ExportedProgram, node: Any, image: dict[Any, Any]) -> Any:
    weight, bias = node.args[1], node.args[2] if len(node.args) > 2 else None
    name = program.graph_signature.inputs_to_parameters[weight.name]
    kernel = program.state_dict[name]
    program.state_dict[name] = torch.nn.Parameter(kernel.detach()[:, :, None, None], requires_grad=kernel.requires_grad)
    weight.meta["val"] = weight.meta["val"][:, :, None, None]
    return _copy(program, node, aten.conv2d.default, (image[node.args[0]], weight, bias))


def _copy(program: torch.export.ExportedProgram, node: Any, target: Any, args: Any) -> Any:
    """A node that stands at the same line of the model as `node`."""
    copy = program.graph.call_function(target, args, node.kwargs)
    values = torch.fx.map_arg(args, lambda n: n.meta["val"])
    copy.meta = {**node.meta, "val": target(*values, **node.kwargs)}
    return copy
