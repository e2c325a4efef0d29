"""The layers of a model, and what each gives in eager PyTorch: in the program's dtype and in fp32."""

import io
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.numerics.clean_inputs import rounded
from model_profiling.export.numerics.graph_pair import GraphPair, Load, graph_pair
from model_profiling.export.numerics.layer_values import TensorStore, execute
from model_profiling.export.numerics.taps import TappedLayer, layers_of
from model_profiling.export.request import ExportRequest


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
        return rounded(layer, self.reference.get(name))

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
