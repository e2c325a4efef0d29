"""Before lowering: the model in the dtype and layout asked for, its fp32 outputs, quantization and rewrites."""

from dataclasses import dataclass, field, replace

import torch

from model_profiling.analysis.accuracy.agreement import suspicious
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.rewrites import LAYOUT, REWRITES
from model_profiling.export.beside import beside
from model_profiling.export.lower.lowering import capture
from model_profiling.export.prepare import quantization, samples
from model_profiling.export.prepare.samples import dtype_cost, run_eagerly
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites import apply, layout, matches, norm
from model_profiling.export.rewrites.graph import rewrite_nodes
from model_profiling.export.rewrites.runnable import give_own_weights
from model_profiling.models.loading import LoadedModel, load_model
from model_profiling.models.refused_inputs import explained_call
from model_profiling.models.state import own_inputs, restored_state
from model_profiling.store.artifacts import CalibrationRecord, DtypeCost, RewriteChoice
from model_profiling.upstream.captured_graphs import OPERATORS, leaves, mapped_tensors, tensors_of
from model_profiling.upstream.reliance import holds


def load_asked(request: ExportRequest) -> LoadedModel:
    """Load the model of a request by its name or from its file."""
    return load_model(request.target or request.model, request.seed, request.options)


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
    # Other inputs and what the model answers to them, to check the program with; none where the model takes no others.
    second: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    # Of the outputs, where they have some.
    names: list[str] = field(default_factory=list)
    quantized: bool = False


def prepare(loaded: LoadedModel, request: ExportRequest) -> Prepared:
    """Bring model and inputs to the dtype and layout asked for, and compute the outputs to hold a run against."""
    module, call, half = loaded.module, loaded.call, dtype_of(request.dtype).halves
    if half:
        call = samples.as_dtype(call, torch.float16)
    if request.memory_format == "channels_last":
        # The weights stay as they are: XNNPACK and the portable kernels both refuse weights that are not NCHW.
        last = torch.channels_last
        call = mapped_tensors(lambda each: each.contiguous(memory_format=last) if each.dim() == 4 else each, call)
    inputs, keywords = samples.as_dtype(own_inputs(call), torch.float32)
    with explained_call(module, loaded.call, loaded.origin), restored_state(module), torch.no_grad():
        outputs, names = samples.answered(module(*inputs, **keywords))
    other, answers = samples.shuffled(call), list[torch.Tensor]()
    with beside("the program was checked with one input only"):
        answers = run_eagerly(module, samples.as_dtype(other, torch.float32))
    cost, weights = None, {}
    if half:
        answers = samples.as_dtype(answers, torch.float16)
        if request.keep_fp32:
            held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
            weights = {name: value.detach().clone() for name, value in held}
        module = module.half()
        cost = dtype_cost(module, call, outputs)
        outputs = samples.as_dtype(outputs, torch.float16)
    warnings = []
    if others := [type(leaf).__name__ for leaf in leaves(call) if not isinstance(leaf, torch.Tensor)]:
        warnings.append(f"the model also takes {', '.join(others)}: the kit's runner passes tensors only")
    if (request.backend, request.memory_format) == ("portable", "channels_last"):
        # Seen with ExecuTorch 1.5.1: either the runtime refuses the dim order, or the numbers are wrong.
        warnings.append("portable kernels do not reshape or permute channels-last tensors correctly: check the outputs")
    warnings += suspicious(samples.arrays_of(outputs), " of the eager model")
    model, second = replace(loaded, module=module, call=call), (tensors_of(other), answers)
    return Prepared(model, tensors_of(call), outputs, warnings, cost, weights=weights, second=second, names=names)


def quantize(prepared: Prepared, request: ExportRequest) -> Prepared:
    """Quantize the model as the dtype asks for it."""
    model, dtype = prepared.model, request.dtype
    module, call, calibration = model.module, model.call, None
    if dtype_of(dtype).quantized == "graph":
        # Before quantization splits each layer into several nodes.
        captured = capture(module, call, model.dynamic_shapes)
        give_own_weights(captured, each=True)
        before = [name for name, rewrite in REWRITES.items() if not rewrite.after_quantization]
        prepared = rewrite(captured, request, prepared, before)
        batches = quantization.varied_calls(call, request.seed)
        if (folder := request.calibration) is not None:
            batches = list(quantization.calibration_calls(folder, call))
            calibration = CalibrationRecord(str(folder), len(batches), files.folder_sha256(folder, "*.npy"))
        module = quantization.quantized_graph(captured.module(), dtype, batches, request.keep_fp32)
    else:
        module = quantization.quantized_weights(module, dtype, request.keep_fp32)
    cost = dtype_cost(module, call, prepared.outputs)
    return replace(prepared, model=replace(model, module=module), cost=cost, calibration=calibration, quantized=True)


def rewrite(
    program: torch.export.ExportedProgram, request: ExportRequest, prepared: Prepared, names: list[str]
) -> Prepared:
    """Do those of the rewrites `names` that were asked for and those they include, and note where others would find
    something."""
    if not holds(OPERATORS):
        return prepared
    asked = {*request.rewrites, *(name for each in request.rewrites for name in REWRITES[each].includes)}
    without = [name for name in names if name in asked and not _apply(name, program, request)]
    # What was done is done: looked at again, its own permutes are nothing to change.
    others = matches(program, [name for name in names if name not in request.rewrites])
    done: dict[str, list[str]] = {name: [] for name in names if name in request.rewrites}
    found = (prepared.rewrites or {}) | done | others
    missed = (*prepared.without, *(name for name in without if name in request.rewrites))
    return replace(prepared, rewrites=dict(sorted(found.items())), without=missed)


def _apply(name: str, program: torch.export.ExportedProgram, request: ExportRequest) -> int:
    if name == LAYOUT and request.backend != "xnnpack":
        return 0  # portable kernels compute in the order that the model has
    if name == LAYOUT:
        # Their answers would hide whether the layout is right.
        rewrite_nodes(program, norm.WRONG_IN_HALF)
    if name == LAYOUT and request.io_layout == "channels_last":
        # What is to be handed out as it lies in memory is not turned.
        return layout.apply(program, large_by_rows=False)
    return apply(name, program)
