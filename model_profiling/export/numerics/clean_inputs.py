"""Programs whose layers read what the fp32 model gives them, each apart from the errors that others make."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model_profiling.base import files
from model_profiling.export.lower.lowering import capture, emit, lower
from model_profiling.export.numerics.graph_pair import GraphPair
from model_profiling.export.numerics.layer_values import TensorStore
from model_profiling.export.numerics.taps import TappedLayer
from model_profiling.export.prepare.kept_layers import nodes_in_changed_memory
from model_profiling.export.prepare.samples import npy_bytes
from model_profiling.export.rewrites.graph import is_mutable
from model_profiling.upstream.captured_graphs import flat_inputs

LARGEST_HALF = torch.finfo(torch.float16).max


def rounded(layer: TappedLayer, values: torch.Tensor) -> torch.Tensor:
    """Return the nearest to these values that the program can hold there, in fp32."""
    scale = layer.scale
    if scale is not None:
        steps = torch.round(values / scale.scale + scale.zero_point).clamp(scale.low, scale.high)
        return (steps - scale.zero_point) * scale.scale
    # What does not fit is the error of who gives it, not of who reads it.
    half = layer.dtype == torch.float16
    return values.clamp(-LARGEST_HALF, LARGEST_HALF).to(torch.float16).to(torch.float32) if half else values


@dataclass(frozen=True)
class ApartProgram:
    """A .pte whose outputs are the values of `layers`, and its inputs."""

    pte: bytes
    inputs: list[torch.Tensor]

    def write(self, home: Path) -> tuple[Path, tuple[Path, ...]]:
        home.mkdir(parents=True, exist_ok=True)
        program = home / "apart.pte"
        program.write_bytes(self.pte)
        inputs = tuple(home / f"input_{number}.npy" for number in range(len(self.inputs)))
        for path, tensor in zip(inputs, self.inputs, strict=True):
            files.write_bytes(path, npy_bytes(tensor))
        return program, inputs


class LayersApart:
    """The graph of a program, cut at the value of every layer."""

    def __init__(self, pair: GraphPair, layers: list[TappedLayer], clean: TensorStore) -> None:
        self._module = pair.ours.module()
        self._lowering, self._clean = pair.lowering, clean
        nodes = {node.name: node for node in self._module.graph.nodes}
        # The node whose value it is: before it is quantized, if it is.
        self._ends = {
            nodes[layer.node].args[0] if layer.scale is not None else nodes[layer.node]: layer
            for layer in layers
            if layer.node in nodes
        }
        self._changed = nodes_in_changed_memory(self._module.graph)
        self._given = _by_name(pair)

    def can(self, layer: TappedLayer) -> bool:
        """Return whether the layer reads values that stay what they are when they are computed."""
        end = self._end(layer)
        return end is not None and not (self._needed(end) | {end}) & self._changed

    def program(self, group: list[TappedLayer]) -> ApartProgram:
        """Lower these layers, each with inputs of its own."""
        graph, inputs = torch.fx.Graph(), list[torch.Tensor]()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        wanted = {self._end(layer): layer for layer in group}
        needed = set().union(*(self._needed(end) for end in wanted))
        given = [node for node in self._module.graph.nodes if node in needed and self._is_given(node)]
        for node in given:
            copies[node] = graph.placeholder(f"given_{len(inputs)}")
            inputs.append(self._value(node))
        outputs = {}
        for node in self._module.graph.nodes:
            if node in needed and node not in copies:
                copies[node] = _copied(graph, node, copies)
            if node in wanted:
                layer, made = wanted[node], _copied(graph, node, copies)
                quantizer = next((user for user in node.users if user.name == layer.node), None)
                outputs[layer.reference] = (
                    made if quantizer is None else _copied(graph, quantizer, {**copies, node: made})
                )
        graph.output(tuple(outputs[layer.reference] for layer in group))
        module = torch.fx.GraphModule(self._module, graph)
        captured = capture(module, tuple(inputs), {}, None)
        return ApartProgram(bytes(emit(lower(captured, **self._lowering)).buffer), inputs)

    def _end(self, layer: TappedLayer) -> torch.fx.Node | None:
        return next((node for node, each in self._ends.items() if each.reference == layer.reference), None)

    def _is_given(self, node: torch.fx.Node) -> bool:
        return node in self._ends or node.op == "placeholder"

    def _needed(self, end: torch.fx.Node) -> set[torch.fx.Node]:
        """Return what it is computed from, back to values that are given."""
        found: set[torch.fx.Node] = set()
        waiting = list(end.all_input_nodes)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += [] if self._is_given(node) else node.all_input_nodes
        return found

    def _value(self, node: torch.fx.Node) -> torch.Tensor:
        if node not in self._ends:
            return self._given[node.name]
        layer, like = self._ends[node], node.meta["val"]
        return rounded(layer, self._clean.get(layer.reference)).to(like.dtype).reshape(tuple(like.shape))


def _by_name(pair: GraphPair) -> dict[str, Any]:
    """Return what the program is called with, by the graph's names of its inputs."""
    flat = flat_inputs(pair.ours, pair.our_call)
    places = [node for node in pair.ours.graph.nodes if node.op == "placeholder"]
    return {node.name: value for node, value in zip(places, flat, strict=True)}


def _copied(graph: torch.fx.Graph, node: torch.fx.Node, copies: Mapping[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
    made = graph.node_copy(node, lambda each: copies[each])
    first = made.args[0] if made.args else None
    if is_mutable(made) and isinstance(first, torch.fx.Node) and first.op == "placeholder":
        # What is given is not for it to change.
        with graph.inserting_before(made):
            own = graph.call_function(torch.ops.aten.clone.default, (first,))
        made.replace_input_with(first, own)
    return made
