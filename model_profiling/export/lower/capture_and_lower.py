"""Quantize, capture, rewrite and lower a prepared model, and emit its program."""

from dataclasses import dataclass, replace

import msgspec
import torch

from model_profiling.base.dtypes import dtype_of
from model_profiling.base.rewrites import LAYOUT, REWRITES
from model_profiling.export.lower import io_layout
from model_profiling.export.lower.lowering import LoweredProgram, capture, emit, lower, lowering_of
from model_profiling.export.prepare.kept_layers import keep_in_fp32
from model_profiling.export.prepare.preparation import Prepared, quantize, rewrite
from model_profiling.export.prepare.samples import dtype_cost
from model_profiling.export.request import ExportRequest
from model_profiling.export.stages import Stages


@dataclass(frozen=True)
class LoweredModel:
    """A captured graph, what it was lowered to, what was found on the way, and what was asked for."""

    captured: torch.export.ExportedProgram
    lowered: LoweredProgram
    prepared: Prepared
    request: ExportRequest


def lower_prepared(prepared: Prepared, request: ExportRequest, stages: Stages) -> LoweredModel:
    """Capture, rewrite and lower a model, and emit its program."""
    captured, prepared = capture_prepared(prepared, request, stages)
    with stages.stage("lower to the backend"):
        lowered = lower(captured, **lowering_of(request))
    with stages.stage("plan memory and emit"):
        lowered = emit(lowered)
    return finished(LoweredModel(captured, lowered, prepared, request), stages)


def finished(made: LoweredModel, stages: Stages) -> LoweredModel:
    """Return a lowered model with what only the request as a whole decides: remarks, and the layout of its border."""
    request, lowered, warnings = made.request, made.lowered, [*made.prepared.warnings]
    for name in made.prepared.without:
        if name != LAYOUT or not lowered.keeps_images:
            warnings.append(f"the rewrite {name} finds nothing to change in {request.model} ({request.dtype})")
    if request.io_layout == "channels_last":
        with stages.stage("lower with channels-last inputs and outputs"):
            built = io_layout.with_channels_last_border(made.captured, lowered, lowering_of(request))
        if isinstance(built, str):
            warnings.append(f"--io-layout channels_last changed nothing: {built}")
        else:
            # The conversions at the border count as delegated, and are gone in the program.
            count = lowered.delegation.delegated_nodes
            lowered = replace(built, delegation=msgspec.structs.replace(built.delegation, delegated_nodes=count))
    return replace(made, lowered=lowered, prepared=replace(made.prepared, warnings=warnings))


def capture_prepared(
    prepared: Prepared, request: ExportRequest, stages: Stages
) -> tuple[torch.export.ExportedProgram, Prepared]:
    """Capture the graph and do the rewrites that were asked for; return it and what was found."""
    captured, prepared = capture_plain(prepared, request, stages)
    pending = [name for name in REWRITES if name not in (prepared.rewrites or {})]
    with stages.stage("rewrite the graph"):
        return captured, rewrite(captured, request, prepared, pending)


def capture_plain(
    prepared: Prepared, request: ExportRequest, stages: Stages
) -> tuple[torch.export.ExportedProgram, Prepared]:
    """Capture the graph of the model as its dtype wants it, with the layers in fp32 that were asked for."""
    prepared = quantized(prepared, request, stages)
    model = prepared.model
    with stages.stage("capture the graph"):
        captured = stages.captured = capture(model.module, model.call, model.dynamic_shapes)
        if request.keep_fp32 and dtype_of(request.dtype).halves:
            keep_in_fp32(captured, request.keep_fp32, prepared.weights)
            prepared = replace(prepared, cost=dtype_cost(captured.module(), model.call, prepared.outputs))
    return captured, prepared


def quantized(prepared: Prepared, request: ExportRequest, stages: Stages) -> Prepared:
    """Quantize the model if its dtype wants that and it is not yet."""
    if prepared.quantized or not dtype_of(request.dtype).quantized:
        return prepared
    with stages.stage("quantize"):
        return quantize(prepared, request)
