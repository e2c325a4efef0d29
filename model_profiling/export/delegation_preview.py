"""What would be delegated, found out without a full export: capture, ask the partitioner, stop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model_profiling.artifacts import Delegation
from model_profiling.export.delegation import GraphNode, forecast_nodes, rejections, summarise
from model_profiling.export.exporter import ExportRequest, Stages, prepare
from model_profiling.export.host import host_untouched
from model_profiling.export.lowering import capture, xnnpack_partitioner
from model_profiling.export.quantization import quantized
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.models.loading import load_model


@dataclass(frozen=True)
class DelegationPreview:
    """The operators in order, each with the delegate it would go into, and the reasons of those left out."""

    nodes: list[GraphNode]
    delegation: Delegation
    reasons: dict[str, str]


def preview(request: ExportRequest, announce: Callable[[str], None]) -> DelegationPreview:
    """Say what an export would delegate, and write nothing.

    Whatever would fail in an export before lowering fails here the same way.
    """
    with kept_off_terminal(request.loud) as said, host_untouched(request.seed):
        stages = Stages(None, said, announce)
        with stages.stage("load the model"):
            loaded = load_model(request.target or request.model, request.seed, request.options)
        with stages.stage("run the eager model"):
            model = prepare(loaded, request).model
        call = (model.inputs, model.keyword_inputs, model.dynamic_shapes)
        with stages.stage("quantize"):
            module = quantized(model.module, *call, dtype=request.dtype, seed=request.seed)
        with stages.stage("capture the graph"):
            stages.captured = capture(module, *call)
        with stages.stage("ask the partitioner"):
            return _partition(stages.captured)


def _partition(program: Any) -> DelegationPreview:
    from executorch.exir import EdgeCompileConfig

    # to_edge_transform_and_lower is these two steps and then the costly one: serializing what was cut out.
    from executorch.exir.program._program import _gen_edge_manager_for_partitioners

    partitioner = xnnpack_partitioner()
    with rejections() as rejected:
        edge = _gen_edge_manager_for_partitioners(
            {"forward": [partitioner]}, {"forward": program}, EdgeCompileConfig(), None
        )
        tagged = partitioner(edge.exported_program()).tagged_exported_program
    nodes = forecast_nodes(tagged.graph_module)
    return DelegationPreview(nodes, summarise(nodes, "xnnpack", rejected.reasons), rejected.reasons)
