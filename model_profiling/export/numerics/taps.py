"""Hand the values of a program's layers out as outputs, through any delegate: ExecuTorch's own taps do it.

A tap keeps what it looks at from being fused with what follows, so a tapped program is evidence and never timing.
"""

import collections
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from model_profiling.export.lower.delegation import node_line
from model_profiling.export.lower.lowering import emit, lower
from model_profiling.export.prepare.kept_layers import NORMS, follows
from model_profiling.export.rewrites.graph import base, replace_uses
from model_profiling.upstream.captured_graphs import origin
from model_profiling.upstream.emission import strip_taps, tap

# These move values and change none; a quantized concatenation may change the scale.
_MOVES = frozenset(
    (
        *("view", "reshape", "permute", "transpose", "t", "numpy_T", "movedim", "swapaxes", "expand", "expand_as"),
        *("slice", "select", "index_select", "narrow", "squeeze", "unsqueeze", "flatten", "unflatten", "unfold"),
        *("split", "split_with_sizes", "chunk", "unbind", "repeat", "repeat_interleave", "roll", "flip", "embedding"),
        *("pad", "constant_pad_nd", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "clone", "contiguous"),
        *("copy_", "index_copy", "index_copy_", "index_put", "index_put_", "slice_scatter", "select_scatter"),
        *("detach", "alias", "dropout", "to", "_to_copy", "lift_fresh_copy", "_assert_tensor_metadata"),
    )
)
_IDLE = frozenset(("dropout", "feature_dropout", "alpha_dropout", "detach", "alias"))
_QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
LARGEST_HALF = torch.finfo(torch.float16).max
_QUANTIZATION = ("quantized_decomposed", "torchao", "executorch_devtools")


@dataclass(frozen=True)
class Scale:
    """How an int8 tensor stands for real numbers, and the ends of what it can hold."""

    scale: float
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True)
class TappedLayer:
    """A value to look at: its node in the graph that is lowered, and that of the same value in the fp32 graph."""

    # Of the node whose value is handed out: the layer's last, or the one that quantizes it.
    node: str
    reference: str
    operator: str
    module: str
    module_type: str
    source: str
    shape: tuple[int, ...]
    fused: tuple[str, ...]
    # What to name to keep it in fp32, and the layers (by `reference`) that read it.
    own_name: str
    # All nodes of the fp32 graph that are computed with it.
    nodes: tuple[str, ...]
    # In which the program hands it on, if it does not quantize it.
    dtype: torch.dtype = torch.float32
    readers: tuple[str, ...] = ()
    scale: Scale | None = None

    def real(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the program's values stand for, in fp32."""
        if self.scale is None:
            return values.to(torch.float32)
        return (values.to(torch.float32) - self.scale.zero_point) * self.scale.scale

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """Return the nearest to these values that the program can hold there, in fp32."""
        if (scale := self.scale) is not None:
            steps = torch.round(values / scale.scale + scale.zero_point).clamp(scale.low, scale.high)
            return (steps - scale.zero_point) * scale.scale
        # What does not fit is the error of who gives it, not of who reads it.
        half = self.dtype == torch.float16
        return values.clamp(-LARGEST_HALF, LARGEST_HALF).to(torch.float16).to(torch.float32) if half else values

    @property
    def bytes(self) -> int:
        return 4 * math.prod(self.shape)


def layers_of(
    ours: torch.export.ExportedProgram, reference: torch.export.ExportedProgram
) -> tuple[list[TappedLayer], dict[str, int]]:
    """Return the values of `ours` that also exist in the fp32 graph, in the order in which they are computed.

    And how many there are that do not, by the reason.
    """
    by_name = {node.name: node for node in reference.graph.nodes if node.op == "call_function"}
    there = {origin(node) for node in ours.graph.nodes}
    found: list[TappedLayer] = []
    left_out = {"no value of the fp32 graph corresponds to it": 0}
    for node in ours.graph.nodes:
        if not _computes(node) or (len(node.users) == 1 and follows(node, next(iter(node.users)))):
            continue
        partner = _after_folding(by_name.get(origin(node)), there)
        if partner is None or _shape(partner) is None or _shape(partner) != _shape(node):
            left_out["no value of the fp32 graph corresponds to it"] += 1
            continue
        found.append(_layer(node, partner))
    return _with_readers(found, by_name), {why: count for why, count in left_out.items() if count}


def _after_folding(partner: torch.fx.Node | None, there: set[str]) -> torch.fx.Node | None:
    """Return the node whose value it gives: a batch norm's, if quantization has folded that into a convolution."""
    while partner is not None and len(partner.users) == 1:
        user = next(iter(partner.users))
        if base(user) not in NORMS or not follows(partner, user) or user.name in there:
            break
        partner = user
    return partner


def tapped_program(ours: torch.export.ExportedProgram, nodes: list[str], lowering: dict[str, Any]) -> bytes:
    """Return the .pte of a program that also hands out the values of these nodes, after its own outputs."""
    wanted = set(nodes)
    program = copy.deepcopy(ours)
    _drop_what_does_nothing(program, wanted)
    program, names = tap(program, wanted)
    assert names == nodes
    lowered = lower(program, **lowering)
    strip_taps(lowered.edge)
    return bytes(emit(lowered).program.buffer)


def _drop_what_does_nothing(program: torch.export.ExportedProgram, wanted: set[str]) -> None:
    """Take dropout out, which does nothing in inference.

    Lowering does so too, but too late: XNNPACK refuses a delegate that hands out what it was given, which is what is
    left of a delegate with a dropout whose input has a tap.
    """
    for node in list(program.graph.nodes):
        idle = node.op == "call_function" and base(node) in _IDLE and not (len(node.args) > 2 and node.args[2])
        if idle and node.name not in wanted:
            replace_uses(program, node, node.args[0])
            program.graph.erase_node(node)
    program.graph_module.recompile()


def in_groups(layers: list[TappedLayer], most_bytes: int) -> Iterator[list[TappedLayer]]:
    """Yield consecutive layers whose values fit in so many bytes together; one that is larger comes alone."""
    group: list[TappedLayer] = []
    for layer in layers:
        if group and sum(each.bytes for each in group) + layer.bytes > most_bytes:
            yield group
            group = []
        group.append(layer)
    if group:
        yield group


def _computes(node: torch.fx.Node) -> bool:
    """Return whether a node makes new floating-point values, of a size that is known."""
    if node.op != "call_function" or _shape(node) is None:
        return False
    producer = _producer(node)
    target = producer.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _QUANTIZATION:
        return False
    # What somebody's own operator returns beside what it writes, such as a cache, means nothing.
    writes = target.namespace != "aten" and target._schema.is_mutable
    moves = {base(producer), base(producer).removesuffix("_copy")} & _MOVES
    return not moves and not writes


def _producer(node: torch.fx.Node) -> torch.fx.Node:
    """Return the operator whose value this is: itself, or that of which it takes one of several results."""
    first = node.args[0] if node.args else None
    several = node.target is not None and getattr(node.target, "__name__", "") == "getitem"
    return first if several and isinstance(first, torch.fx.Node) else node


def _shape(node: torch.fx.Node) -> tuple[int, ...] | None:
    """Return the sizes of a tensor of floating-point numbers; None for everything else."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    sizes = tuple(value.shape)
    return tuple(int(size) for size in sizes) if all(isinstance(size, int) for size in sizes) else None


def _layer(node: torch.fx.Node, partner: torch.fx.Node) -> TappedLayer:
    chain = [partner]
    # What is computed together with a node and comes before it.
    while (inputs := chain[0].all_input_nodes[:1]) and len(inputs[0].users) == 1 and follows(inputs[0], chain[0]):
        chain.insert(0, inputs[0])
    head = chain[0]
    quantizer = next((user for user in node.users if str(user.target) == _QUANTIZE and user.args[0] is node), None)
    scale = None
    if quantizer is not None:
        _, step, zero_point, low, high, *_ = quantizer.args
        scale = Scale(float(step), int(zero_point), int(low), int(high))
    path, kind = module_of(head)
    shape = _shape(node)
    assert shape is not None
    return TappedLayer(
        (quantizer or node).name,
        partner.name,
        str(_producer(head).target),
        path,
        kind,
        node_line(head),
        shape,
        tuple(base(each) for each in chain[1:]),
        head.name,
        tuple(each.name for each in chain),
        node.meta["val"].dtype,
        scale=scale,
    )


def _with_readers(layers: list[TappedLayer], nodes: Mapping[str, torch.fx.Node]) -> list[TappedLayer]:
    """Say of each layer which others read it, and what it is called: its module, if nothing else is in that."""
    ends = {layer.reference for layer in layers}

    def readers(name: str) -> tuple[str, ...]:
        found, waiting, seen = [], list(nodes[name].users), set()
        while waiting:
            user = waiting.pop(0)
            if user in seen or user.op != "call_function":
                continue
            seen.add(user)
            if user.name in ends:
                found.append(user.name)
            else:
                waiting += user.users
        return tuple(found)

    inside = collections.Counter(
        ".".join(parts[:count])
        for layer in layers
        for parts in [layer.module.split(".")]
        for count in range(1, len(parts) + 1)
    )

    def called(layer: TappedLayer) -> str:
        return layer.module if layer.module and inside[layer.module] == 1 else layer.own_name

    return [replace(layer, own_name=called(layer), readers=readers(layer.reference)) for layer in layers]


def module_of(node: torch.fx.Node) -> tuple[str, str]:
    """Return path and class of the innermost module of the model in which a node stands."""
    for path, kind in reversed(list((node.meta.get("nn_module_stack") or {}).values())):
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        if not name.startswith("torch.export."):
            return str(path), name.rpartition(".")[2]
    return "", ""
