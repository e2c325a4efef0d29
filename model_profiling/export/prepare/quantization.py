"""A float model becomes a quantized one: int8 all through, or only its linear layers in int8 or int4.

int4 has a scale for every group of weights, as ExecuTorch's language models have it; int4-channel has one for every
output channel, and SME2 kernels.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_profiling.base.dtypes import CALIBRATED, dtype_of
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy
from model_profiling.export.prepare.kept_layers import Names, is_kept, not_kept, refuse_unknown_modules
from model_profiling.export.rewrites.graph import PADDING, VIEWS, arguments
from model_profiling.models.state import restored_state
from model_profiling.upstream.captured_graphs import OPERATORS, Call, mapped_tensors, tensors_of, with_tensors
from model_profiling.upstream.reliance import holds
from model_profiling.upstream.xnnpack_lowering import quantizer

# Says of an operator whether it may be quantized.
Allowed = Callable[[torch.fx.Node], bool]

_SAME_SCALE = VIEWS | PADDING | {torch.ops.aten.max_pool2d.default}
# How many weights share a scale; what ExecuTorch's language models use where the layer's width allows it.
GROUPS = (128, 64, 32)
_ALL_LAYERS = f"Use --dtype {' or '.join(CALIBRATED)}, which quantizes convolutions too."


def quantized_graph(graph: torch.nn.Module, dtype: str, calls: list[Call], keep: Names = ()) -> torch.nn.Module:
    """Quantize a captured graph: all through if the dtype is calibrated, or else its linear layers only.

    Weights are quantized per channel. Activations are per tensor and symmetric, with ranges that `calls` set, or, of
    linear layers only, quantized to int8 while the model runs. Layers named in `keep` are not quantized.
    """
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    asked, allowed = dtype_of(dtype), not_kept(graph.graph, keep)
    # The buffers of the model itself: those that calibration adds hold what it has seen, and go on.
    state = [name for name, _ in graph.named_buffers()]
    prepared = prepare_pt2e(graph, _quantizer(not asked.calibrated, asked.weight_bits, allowed))
    with restored_state(prepared, state), torch.no_grad():
        for given, named in calls if asked.calibrated else calls[:1]:
            prepared(*given, **named)
    converted = convert_pt2e(prepared)
    if asked.calibrated:
        _keep_scales(converted)
    elif not any("quantize_per_channel" in str(node.target) for node in converted.graph.nodes):
        raise InputError(f"{asked.name} quantizes linear layers, and this model has none", _ALL_LAYERS)
    return converted


def _keep_scales(module: torch.fx.GraphModule) -> None:
    """Give views, padding with zeros and pooling the scale of their input: XNNPACK refuses another one.

    Its padding of int8 gives int8, whoever reads it: what is padded is quantized before others read it.
    """
    quantized = torch.ops.quantized_decomposed
    to_int8, to_float = quantized.quantize_per_tensor.default, quantized.dequantize_per_tensor.default
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in _SAME_SCALE or len(node.all_input_nodes) != 1:
            continue
        given = node.all_input_nodes[0]
        if given.target != to_float or (node.target in PADDING and not _pads_zeros(node)):
            continue
        if node.target in PADDING and not any(user.target == to_int8 for user in node.users):
            with module.graph.inserting_after(node):
                small = module.graph.call_function(to_int8, (node, *given.args[1:]))
            with module.graph.inserting_after(small):
                again = module.graph.call_function(to_float, (small, *given.args[1:]))
            small.meta, again.meta = dict(node.meta), dict(node.meta)
            node.replace_all_uses_with(again, delete_user_cb=lambda user, small=small: user is not small)
        for taken in [user for user in node.users if user.target == to_int8]:
            for each in (taken, *(user for user in taken.users if user.target == to_float)):
                each.args = (each.args[0], *given.args[1:])
    module.recompile()


def _pads_zeros(node: torch.fx.Node) -> bool:
    if not holds(OPERATORS):
        return False
    given = arguments(node)
    return given.get("mode", "constant") == "constant" and not given["value"]


def _quantizer(is_dynamic: bool, bits: int, allowed: Allowed) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config

    most = 2 ** (bits - 1) - 1
    # In eight bits symmetric weights leave -128 out; in four every value is needed.
    least = -most if bits == 8 else -most - 1
    config = get_symmetric_quantization_config(
        is_per_channel=True, is_dynamic=is_dynamic, weight_qmin=least, weight_qmax=most
    )
    # XNNPACK has four bits for the weights of linear layers alone.
    return quantizer(bits != 8, lambda node: node.target is torch.ops.aten.linear.default, allowed).set_global(config)


def quantized_weights(module: torch.nn.Module, dtype: str, keep: Names = ()) -> torch.nn.Module:
    """Quantize linear weights in groups, inputs to int8 while running: what ExecuTorch does to language models.

    A layer whose width no group size divides stays fp32; a model without any that fits is refused.
    """
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    if keep:
        refuse_unknown_modules(module, keep)
    stored_as = getattr(torch, f"int{dtype_of(dtype).weight_bits}")
    fitting = 0
    for size in GROUPS:

        def fits(layer: torch.nn.Module, name: str, size: int = size) -> bool:
            plain = isinstance(layer, torch.nn.Linear) and type(layer.weight) is torch.nn.Parameter
            return plain and layer.in_features % size == 0 and not is_kept(name, keep)

        found = [name for name, layer in module.named_modules() if fits(layer, name)]
        if found:
            fitting += len(found)
            config = Int8DynamicActivationIntxWeightConfig(weight_dtype=stored_as, weight_granularity=PerGroup(size))
            quantize_(module, config, filter_fn=fits)
    if not fitting:
        raise InputError(
            f"{dtype} quantizes linear layers, and this model has none{' left' if keep else ''} whose width is a "
            "multiple of 32",
            _ALL_LAYERS,
        )
    return unwrap_tensor_subclass(module)


_NOISY_RUNS = 4
_NOISE = 0.05


def varied_calls(call: Call, seed: int) -> list[Call]:
    """Return the example inputs, and a few seeded variations around them.

    One sample alone makes ranges that clip the next one. This is enough for timing. Accuracy on real data needs
    calibration on real data.
    """
    generator = torch.Generator().manual_seed(seed)

    def vary(tensor: torch.Tensor) -> torch.Tensor:
        """Add noise in proportion to the tensor's own spread; integers (token ids, masks) stay as they are."""
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
        return tensor + _NOISE * tensor.std() * noise

    return [call, *(mapped_tensors(vary, call) for _ in range(_NOISY_RUNS))]


def calibration_calls(directory: Path, call: Call) -> Iterator[Call]:
    """Return what to call the model with, one after another; `call` are its example inputs."""
    wanted = tensors_of(call)
    for sample in _samples(directory, len(wanted)):
        parts = [_batches(path, like, len(wanted) == 1) for path, like in zip(sample, wanted, strict=True)]
        for batch in zip(*parts, strict=True):
            yield with_tensors(call, batch)


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
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not like.is_floating_point()):
        raise InputError(
            f"{path} contains {array.dtype}, and the model takes {str(like.dtype).removeprefix('torch.')}",
            "Save the samples as the model takes them.",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{path} contains NaN or infinite values", "Leave such samples out.")
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
