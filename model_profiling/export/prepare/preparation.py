"""Before lowering: the model in the dtype and layout asked for, its fp32 outputs, quantization and rewrites."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from model_profiling.analysis.accuracy.correctness import suspicious
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.rewrites import LAYOUT, REWRITES
from model_profiling.export.lower.lowering import capture
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.calibration import calibration_calls, calibration_record, varied_calls
from model_profiling.export.prepare.dtype_cost import dtype_cost
from model_profiling.export.prepare.quantization import quantized_graph, quantized_weights
from model_profiling.export.prepare.samples import Call
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites import apply, layout, matches, norm
from model_profiling.export.rewrites.graph import replace_each
from model_profiling.export.rewrites.runnable import give_own_weights
from model_profiling.models.loading import LoadedModel
from model_profiling.models.refused_inputs import explained_call
from model_profiling.models.state import restored_state
from model_profiling.store.artifacts import CalibrationRecord, DtypeCost, RewriteChoice
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import holds


@dataclass(frozen=True)
class Prepared:
    """The model in the dtype and layout asked for, and what the fp32 model answers to the same inputs."""

    model: LoadedModel
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    warnings: list[str]
    cost: DtypeCost | None = None
    # Where rewrites would change the graph; None until it was captured.
    rewrites: dict[str, list[str]] | None = None
    # Rewrites that were asked for and found nothing.
    without: tuple[str, ...] = ()
    # The weights before they were converted, if some layers keep them; and what the ranges of int8 were set by.
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    calibration: CalibrationRecord | None = None
    # What `--rewrite auto` chose.
    auto: list[RewriteChoice] = field(default_factory=list)


def prepare(loaded: LoadedModel, request: ExportRequest) -> Prepared:
    """Bring model and inputs to the dtype and layout asked for, and compute the outputs to hold a run against."""
    module, inputs, keywords = loaded.module, loaded.inputs, loaded.keyword_inputs
    half = dtype_of(request.dtype).halves
    if half:
        inputs, keywords = samples.as_dtype((inputs, keywords), torch.float16)
    if request.memory_format == "channels_last":
        # The weights stay as they are: XNNPACK and the portable kernels both refuse weights that are not NCHW.
        inputs, keywords = samples.as_channels_last((inputs, keywords))
    call, keyword_call = samples.as_dtype(samples.copied((inputs, keywords)), torch.float32)
    explained = explained_call(module, loaded.inputs, loaded.keyword_inputs, loaded.origin)
    with explained, restored_state(module), torch.no_grad():
        outputs = [tensor.clone() for tensor in samples.tensors_of(module(*call, **keyword_call))]
    cost, weights = None, {}
    if half:
        if request.keep_fp32:
            held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
            weights = {name: value.detach().clone() for name, value in held}
        module = module.half()
        cost = dtype_cost(module, (inputs, keywords), outputs)
        outputs = samples.as_dtype(outputs, torch.float16)
    warnings = []
    if others := samples.other_leaves((inputs, keywords)):
        warnings.append(f"the model also takes {', '.join(others)}: the kit's runner passes tensors only")
    if (request.backend, request.memory_format) == ("portable", "channels_last"):
        # Seen with ExecuTorch 1.5.1: either the runtime refuses the dim order, or the numbers are wrong.
        warnings.append("portable kernels do not reshape or permute channels-last tensors correctly: check the outputs")
    warnings += suspicious(samples.arrays_of(outputs), " of the eager model")
    model = replace(loaded, module=module, inputs=inputs, keyword_inputs=keywords)
    return Prepared(model, samples.tensors_of((inputs, keywords)), outputs, warnings, cost, weights=weights)


def quantize(prepared: Prepared, request: ExportRequest) -> Prepared:
    """Quantize the model as the dtype asks for it."""
    model, dtype = prepared.model, request.dtype
    module, call = model.module, (model.inputs, model.keyword_inputs)
    calibration = None
    if dtype_of(dtype).quantized == "graph":
        # Before quantization splits each layer into several nodes.
        captured = capture(module, *call, model.dynamic_shapes)
        give_own_weights(captured, each=True)
        before = [name for name, rewrite in REWRITES.items() if not rewrite.after_quantization]
        prepared = rewrite(captured, request, prepared, before)
        batches, calibration = _calibration(request, call)
        module = quantized_graph(captured.module(), *call, dtype, batches, request.keep_fp32)
    else:
        module = quantized_weights(module, dtype, request.keep_fp32)
    cost = dtype_cost(module, call, prepared.outputs)
    return replace(prepared, model=replace(model, module=module), cost=cost, calibration=calibration)


def _calibration(request: ExportRequest, call: Call) -> tuple[list[Call], CalibrationRecord | None]:
    """Return what the ranges of int8 are set by: the user's samples, or the example inputs with some noise."""
    if request.calibration is None:
        return varied_calls(call, request.seed), None
    batches = list(calibration_calls(request.calibration, call))
    return batches, calibration_record(request.calibration, len(batches))


def rewrite(
    program: torch.export.ExportedProgram, request: ExportRequest, prepared: Prepared, names: list[str]
) -> Prepared:
    """Do those of the rewrites `names` that were asked for, and note where others would find something."""
    if not holds(OPERATORS):
        return prepared
    without = do_rewrites(program, request, names)
    # What was done is done: looked at again, its own permutes are nothing to change.
    others = matches(program, [name for name in names if name not in request.rewrites])
    done: dict[str, list[str]] = {name: [] for name in names if name in request.rewrites}
    found = (prepared.rewrites or {}) | done | others
    missed = (*prepared.without, *(name for name in without if name in request.rewrites))
    return replace(prepared, rewrites=dict(sorted(found.items())), without=missed)


def do_rewrites(program: torch.export.ExportedProgram, request: ExportRequest, names: Iterable[str]) -> list[str]:
    """Do the rewrites among `names` that were asked for, and those they include; return which found nothing."""
    asked = {*request.rewrites, *(name for each in request.rewrites for name in REWRITES[each].includes)}
    return [name for name in names if name in asked and not _apply(name, program, request)]


def _apply(name: str, program: torch.export.ExportedProgram, request: ExportRequest) -> int:
    if name == LAYOUT and request.backend != "xnnpack":
        return 0  # portable kernels compute in the order that the model has
    if name == LAYOUT:
        # Their answers would hide whether the layout is right.
        replace_each(program, norm.wrong_in_half(program), norm.write)
    if name == LAYOUT and request.io_layout == "channels_last":
        # What is to be handed out as it lies in memory is not turned.
        return layout.apply(program, large_by_rows=False)
    return apply(name, program)
