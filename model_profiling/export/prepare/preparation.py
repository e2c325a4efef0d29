"""Before lowering: the model in the dtype and layout asked for, its fp32 outputs, quantization and rewrites."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_profiling.analysis.accuracy.correctness import suspicious
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy
from model_profiling.base.rewrites import LAYOUT, REWRITES
from model_profiling.export.lower.lowering import capture
from model_profiling.export.prepare import samples
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
from model_profiling.store.artifacts import CalibrationRecord, DtypeCost, RewriteChoice, StepChange
from model_profiling.upstream.captured_graphs import OPERATORS, leaves, mapped, with_leaves
from model_profiling.upstream.reliance import holds

_NOISY_RUNS = 4
_NOISE = 0.05


def varied_calls(call: Call, seed: int) -> list[Call]:
    """Return the example inputs, and a few seeded variations around them.

    One sample alone makes ranges that clip the next one. This is enough for timing. Accuracy on real data needs
    calibration on real data.
    """
    generator = torch.Generator().manual_seed(seed)
    varied = [mapped(lambda leaf: _vary(leaf, generator), call) for _ in range(_NOISY_RUNS)]
    return [call, *varied]


def calibration_calls(directory: Path, call: Call) -> Iterator[Call]:
    """Return what to call the model with, one after another; `call` are its example inputs."""
    example = leaves(call)
    places = [index for index, leaf in enumerate(example) if isinstance(leaf, torch.Tensor)]
    for sample in _samples(directory, len(places)):
        wanted = [example[index] for index in places]
        parts = [_batches(path, like, len(places) == 1) for path, like in zip(sample, wanted, strict=True)]
        for batch in zip(*parts, strict=True):
            given = list(example)
            for index, tensor in zip(places, batch, strict=True):
                given[index] = tensor
            yield with_leaves(call, given)


def calibration_record(directory: Path, batches: int) -> CalibrationRecord:
    return CalibrationRecord(str(directory), batches, files.folder_sha256(directory, "*.npy"))


def _samples(directory: Path, count: int) -> list[list[Path]]:
    """Return the files of each sample, one for each input."""
    if not directory.is_dir():
        raise InputError(f"there is no folder {directory} to calibrate with", "Give a folder of .npy files.")
    plain = sorted(directory.glob("*.npy"))
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    if plain and count == 1:
        return [[path] for path in plain]
    found = []
    for folder in folders:
        wanted = [folder / f"input_{index}.npy" for index in range(count)]
        missing = [path for path in wanted if not path.is_file()]
        if missing:
            raise InputError(
                f"sample {folder} has no {missing[0].name}, and the model has {count} inputs",
                "Give each sample one .npy for each input: input_0.npy, input_1.npy and so on.",
            )
        found.append(wanted)
    if not found:
        raise InputError(
            f"{directory} has no samples to calibrate with",
            "Put .npy files there, one for each sample."
            if count == 1
            else f"The model has {count} inputs: make a folder for each sample, with input_0.npy and so on.",
        )
    return found


def _batches(path: Path, like: torch.Tensor, alone: bool) -> list[torch.Tensor]:
    """Return the samples of a file, each with the sizes and the dtype of an example input."""
    array = read_npy(path, "sample", "Save it again with numpy.save.")
    _check_kind(path, array, like)
    wanted = tuple(like.shape)
    if array.shape == wanted:
        parts = [array]
    elif wanted and wanted[0] == 1 and array.shape == wanted[1:]:
        parts = [array[None]]
    elif alone and wanted and array.shape[1:] == wanted[1:] and len(array) and len(array) % wanted[0] == 0:
        parts = np.split(array, len(array) // wanted[0])
    else:
        raise InputError(
            f"{path} has the shape {list(array.shape)}, and the model takes {list(wanted)}",
            "Give samples of the model's own size, or several of them on top of each other.",
        )
    return [torch.from_numpy(np.ascontiguousarray(part)).to(like.dtype) for part in parts]


def _check_kind(path: Path, array: Any, like: torch.Tensor) -> None:
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not like.is_floating_point()):
        raise InputError(
            f"{path} contains {array.dtype}, and the model takes {str(like.dtype).removeprefix('torch.')}",
            "Save the samples as the model takes them.",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{path} contains NaN or infinite values", "Leave such samples out.")


def _vary(leaf: Any, generator: torch.Generator) -> Any:
    """Add noise in proportion to the tensor's own spread; integers (token ids, masks) stay as they are."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.numel() < 2:
        return leaf
    noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float32).to(leaf.dtype)
    return leaf + _NOISE * leaf.std() * noise


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
    # The graph before rewrites, those that are done to it, and what the program would be with others.
    captured: torch.export.ExportedProgram | None = None
    pending: tuple[str, ...] = ()
    candidates: dict[str, list[StepChange]] = field(default_factory=dict)
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
    found = (prepared.rewrites or {}) | {name: others.get(name, []) for name in names}
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
