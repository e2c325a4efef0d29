"""Quantize, capture, rewrite and lower a prepared model, and emit its program."""

from dataclasses import dataclass, replace
from typing import Any

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
    """A captured graph, what it was lowered to, the program that ExecuTorch emitted, and what was found on the way."""

    captured: torch.export.ExportedProgram
    lowered: LoweredProgram
    program: Any
    prepared: Prepared
    rewrites: tuple[str, ...]


def lower_prepared(prepared: Prepared, request: ExportRequest, stages: Stages) -> tuple[LoweredProgram, Any, Prepared]:
    """Capture, rewrite and lower a model; return the graph, the program that ExecuTorch emitted, and what was found."""
    captured, prepared = capture_prepared(prepared, request, stages)
    with stages.stage("lower to the backend"):
        lowered = lower(captured, **lowering_of(request))
    with stages.stage("plan memory and emit"):
        program = emit(lowered)
    return finished(LoweredModel(captured, lowered, program, prepared, request.rewrites), request, stages)


def finished(made: LoweredModel, request: ExportRequest, stages: Stages) -> tuple[LoweredProgram, Any, Prepared]:
    """Return a lowered model with what only the request as a whole decides: remarks, and the layout of its border."""
    captured, lowered, program = made.captured, made.lowered, made.program
    without = [name for name in made.prepared.without if not (name == LAYOUT and lowered.keeps_images)]
    remarks = [f"the rewrite {name} finds nothing to change in {request.model} ({request.dtype})" for name in without]
    prepared = replace(made.prepared, warnings=[*made.prepared.warnings, *remarks])
    if request.io_layout == "channels_last":
        with stages.stage("lower with channels-last inputs and outputs"):
            lowered, program, prepared = _with_channels_last_border(captured, lowered, program, prepared, request)
    return lowered, program, prepared


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
        call = model.inputs, model.keyword_inputs
        captured = stages.captured = capture(model.module, *call, model.dynamic_shapes)
        if request.keep_fp32 and dtype_of(request.dtype).halves:
            keep_in_fp32(captured, request.keep_fp32, prepared.weights)
            prepared = replace(prepared, cost=dtype_cost(captured.module(), call, prepared.outputs))
    return captured, prepared


def quantized(prepared: Prepared, request: ExportRequest, stages: Stages) -> Prepared:
    """Quantize the model if its dtype wants that and it is not yet."""
    if prepared.quantized or not dtype_of(request.dtype).quantized:
        return prepared
    with stages.stage("quantize"):
        return quantize(prepared, request)


def _with_channels_last_border(
    captured: torch.export.ExportedProgram,
    lowered: LoweredProgram,
    program: Any,
    prepared: Prepared,
    request: ExportRequest,
) -> tuple[LoweredProgram, Any, Prepared]:
    def build(moved: torch.export.ExportedProgram) -> tuple[LoweredProgram, Any]:
        again = lower(moved, **lowering_of(request))
        return again, emit(again)

    built = io_layout.with_channels_last_border(captured, (lowered, program), build)
    if isinstance(built, str):
        unchanged = f"--io-layout channels_last changed nothing: {built}"
        return lowered, program, replace(prepared, warnings=[*prepared.warnings, unchanged])
    again, program = built
    # The conversions at the border count as delegated, and are gone in the program.
    counted = msgspec.structs.replace(again.delegation, delegated_nodes=lowered.delegation.delegated_nodes)
    return replace(again, delegation=counted), program, prepared
