"""The graph of a model that is lowered, and the same model's graph in fp32: what its layers are held against."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from model_profiling.base.dtypes import FP32, dtype_of
from model_profiling.export.lower.capture_and_lower import capture_prepared
from model_profiling.export.lower.lowering import lowering_of
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.preparation import Prepared, prepare, quantize
from model_profiling.export.prepare.samples import Call
from model_profiling.export.request import ExportRequest
from model_profiling.export.stages import Announce, Stages
from model_profiling.models.loading import LoadedModel, load_model
from model_profiling.models.own_copy import own_copy, own_inputs

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


def loader(request: ExportRequest) -> Load:
    """Return how the model of a request is loaded by its name or from its file."""
    return lambda: load_model(request.target or request.model, request.seed, request.options)


def graph_pair(request: ExportRequest, load: Load, said: io.StringIO, announce: Announce) -> GraphPair:
    """Load a model and capture it twice: in the dtype that is asked for, and in fp32."""
    stages = Stages(None, said, announce)
    with stages.stage("load the model"):
        # Taps want sizes that are known; those of the example inputs are.
        loaded = replace(load(), dynamic_shapes=None)
    # To prepare a model converts its weights in place.
    twin = _own(loaded)
    with stages.stage("run the eager model"):
        prepared = prepare(loaded, request)
        fp32 = Prepared(_same_inputs(twin, prepared), prepared.inputs, prepared.outputs, [])
    if dtype_of(request.dtype).quantized:
        with stages.stage("quantize"):
            prepared = quantize(prepared, request)
    ours, prepared = capture_prepared(prepared, request, stages)
    reference, _ = capture_prepared(fp32, replace(request, dtype=FP32, keep_fp32=()), stages)
    calls = [(each.model.inputs, each.model.keyword_inputs) for each in (prepared, fp32)]
    return GraphPair(ours, reference, calls[0], calls[1], lowering_of(request))


def _own(loaded: LoadedModel) -> LoadedModel:
    inputs, keywords = own_inputs((loaded.inputs, loaded.keyword_inputs))
    return replace(loaded, module=own_copy(loaded.module).eval(), inputs=inputs, keyword_inputs=keywords)


def _same_inputs(twin: LoadedModel, prepared: Prepared) -> LoadedModel:
    """Return the twin with the inputs that the program gets: those of fp16 are rounded."""
    given = prepared.model.inputs, prepared.model.keyword_inputs
    inputs, keywords = samples.as_dtype(samples.copied(given), torch.float32)
    return replace(twin, inputs=inputs, keyword_inputs=keywords)
