"""The layers of a model, and what each gives in eager PyTorch: in the program's dtype and in fp32."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from model_profiling.base import files
from model_profiling.base.dtypes import FP32, dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.lower.capture_and_lower import capture_prepared
from model_profiling.export.lower.lowering import capture, emit, lower, lowering_of
from model_profiling.export.numerics.layer_values import TensorStore, execute
from model_profiling.export.numerics.taps import TappedLayer, layers_of
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.kept_layers import nodes_in_changed_memory
from model_profiling.export.prepare.preparation import Prepared, prepare
from model_profiling.export.prepare.samples import npy_bytes
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites.graph import is_mutable
from model_profiling.export.stages import Announce, Stages
from model_profiling.models.loading import LoadedModel
from model_profiling.models.state import own_copy, own_inputs
from model_profiling.upstream.captured_graphs import Call, flat_inputs

Load = Callable[[], LoadedModel]


@dataclass(frozen=True)
class GraphPair:
    ours: torch.export.ExportedProgram
    reference: torch.export.ExportedProgram
    # What the graphs are called with, each in its own dtype; the values are the same.
    our_call: Call
    reference_call: Call
    # What `lower` is told.
    lowering: dict[str, Any]


def graph_pair(request: ExportRequest, load: Load, said: io.StringIO, announce: Announce) -> GraphPair:
    """Load a model and capture it twice: in the dtype that is asked for, and in fp32."""
    stages = Stages(said=said, announce=announce)
    with stages.stage("load the model"):
        # Taps want sizes that are known; those of the example inputs are.
        loaded = replace(load(), dynamic_shapes=None)
    # To prepare a model converts its weights in place.
    twin = replace(loaded, module=own_copy(loaded.module).eval())
    with stages.stage("run the eager model"):
        prepared = prepare(loaded, request)
        call = samples.as_dtype(own_inputs(prepared.model.call), torch.float32)
        fp32 = Prepared(replace(twin, call=call), prepared.inputs, prepared.outputs, [])
    ours, prepared = capture_prepared(prepared, request, stages)
    reference, _ = capture_prepared(fp32, replace(request, dtype=FP32, keep_fp32=()), stages)
    return GraphPair(ours, reference, prepared.model.call, call, lowering_of(request))


@dataclass
class EagerLayers:
    """All that is known while the layers are looked at; values of layers are in files below `home`."""

    pair: GraphPair
    layers: list[TappedLayer]
    left_out: dict[str, int]
    home: Path
    reference: TensorStore = field(init=False)
    eager: TensorStore = field(init=False)
    outputs: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reference, self.eager = TensorStore(self.home / "fp32"), TensorStore(self.home / "eager")

    def rounded(self, name: str) -> torch.Tensor:
        """Return what the program can hold of a layer's values in fp32."""
        layer = next(layer for layer in self.layers if layer.reference == name)
        return layer.rounded(self.reference.get(name))

    def rounding(self, name: str) -> torch.Tensor:
        return self.rounded(name) - self.reference.get(name)


def eager_layers(request: ExportRequest, load: Load, home: Path, said: io.StringIO, report: OnProgress) -> EagerLayers:
    """Capture the model in both dtypes and keep what each layer gives in eager PyTorch."""
    pair = graph_pair(request, load, said, lambda stage: report(stage, 0, 0))
    layers, left_out = layers_of(pair.ours, pair.reference)
    if not layers:
        raise InputError(
            "the model has no layer whose values can be looked at",
            "Layers must compute floating-point numbers of sizes that are known before the model runs.",
        )
    if dtype_of(request.dtype).quantized == "weights":
        # It quantizes the model's own linear layers, not operators of a graph.
        layers = [replace(each, own_name=each.module if each.module_type == "Linear" else "") for each in layers]
    elif request.rewrites:
        # The names of operators are those of the rewritten graph, which nobody can name before it is made.
        layers = [each if each.own_name == each.module else replace(each, own_name="") for each in layers]
    work = EagerLayers(pair, layers, left_out, home)
    report("run the layers in eager PyTorch", 0, 0)
    by_node = {layer.node: layer for layer in layers}

    def keep_ours(name: str, value: torch.Tensor) -> torch.Tensor:
        work.eager.put(by_node[name].reference, by_node[name].real(value))
        return value

    def keep_reference(name: str, value: torch.Tensor) -> torch.Tensor:
        work.reference.put(name, value)
        return value

    execute(pair.ours, pair.our_call, set(by_node), keep_ours)
    names = {layer.reference for layer in layers}
    work.outputs = execute(pair.reference, pair.reference_call, names, keep_reference)
    return work


class LayersApart:
    """The graph of a program, cut at the value of every layer: each reads what the fp32 model gives it, apart from the
    errors that others make."""

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
        # What the program is called with, by the graph's names of its inputs.
        places = [node for node in pair.ours.graph.nodes if node.op == "placeholder"]
        values = zip(places, flat_inputs(pair.ours, pair.our_call), strict=True)
        self._given: dict[str, Any] = {node.name: value for node, value in values}

    def can(self, layer: TappedLayer) -> bool:
        """Return whether the layer reads values that stay what they are when they are computed."""
        end = self._end(layer)
        return end is not None and not (self._needed(end) | {end}) & self._changed

    def program(self, group: list[TappedLayer], home: Path) -> tuple[Path, tuple[Path, ...]]:
        """Lower these layers, each with inputs of its own; return the .pte, whose outputs they are, and its inputs."""
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
        captured = capture(torch.fx.GraphModule(self._module, graph), (tuple(inputs), {}))
        program = home / "apart.pte"
        files.write_bytes(program, bytes(emit(lower(captured, **self._lowering)).program.buffer))
        for number, tensor in enumerate(inputs):
            files.write_bytes(home / f"input_{number}.npy", npy_bytes(tensor))
        return program, tuple(home / f"input_{number}.npy" for number in range(len(inputs)))

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
        return layer.rounded(self._clean.get(layer.reference)).to(like.dtype).reshape(tuple(like.shape))


def _copied(graph: torch.fx.Graph, node: torch.fx.Node, copies: Mapping[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
    made = graph.node_copy(node, lambda each: copies[each])
    first = made.args[0] if made.args else None
    if is_mutable(made) and isinstance(first, torch.fx.Node) and first.op == "placeholder":
        # What is given is not for it to change.
        with graph.inserting_before(made):
            own = graph.call_function(torch.ops.aten.clone.default, (first,))
        made.replace_input_with(first, own)
    return made
