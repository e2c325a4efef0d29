"""A float model becomes a quantized one: int8 all through, or only its linear layers in int8 or int4.

int4 has a scale for every group of weights, as ExecuTorch's language models have it; int4-channel has one for every
output channel, and SME2 kernels.
"""

from typing import Any, ClassVar

import torch
import torch.utils._pytree as pytree

from model_profiling.errors import InputError
from model_profiling.models.state import kept_state

CALIBRATION_RUNS = 4
CALIBRATION_NOISE = 0.05


Inputs = tuple[Any, ...]

QUANTIZED = ("int8", "int8-dynamic", "int4", "int4-channel")
# These quantize a captured graph; int4 wants the model's own layers.
QUANTIZED_AS_GRAPH = ("int8", "int8-dynamic", "int4-channel")
# How many weights share a scale in int4; what ExecuTorch's language models use where the layer's width allows it.
INT4_GROUPS = (128, 64, 32)


def quantized(
    module: torch.nn.Module, inputs: Inputs, keywords: dict[str, Any], dynamic_shapes: Any, dtype: str, seed: int
) -> torch.nn.Module:
    """Quantize as `dtype` says; a dtype that is not a quantization leaves the module as it is."""
    if dtype in QUANTIZED_AS_GRAPH:
        graph = torch.export.export(module, inputs, keywords, dynamic_shapes=dynamic_shapes).module()
        return quantized_graph(graph, inputs, keywords, dtype, seed)
    return _weights_to_int4(module) if dtype == "int4" else module


def quantized_graph(
    graph: torch.nn.Module, inputs: Inputs, keywords: dict[str, Any], dtype: str, seed: int
) -> torch.nn.Module:
    """Quantize a captured graph: int8 all through, or its linear layers only, in int8-dynamic or int4-channel."""
    if dtype == "int8":
        return _statically(graph, inputs, keywords, seed)
    return _dynamically(graph, inputs, keywords, bits=4 if dtype == "int4-channel" else 8)


def _statically(graph: torch.nn.Module, inputs: Inputs, keywords: dict[str, Any], seed: int) -> torch.nn.Module:
    """Quantize weights per channel and activations per tensor, symmetric int8, calibrated on the example inputs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    state = _state(graph)
    prepared = prepare_pt2e(graph, _quantizer(is_dynamic=False))
    generator = torch.Generator().manual_seed(seed)
    with kept_state(prepared, state), torch.no_grad():
        prepared(*inputs, **keywords)
        # One sample alone makes ranges that clip the next one; a few seeded variations around it widen them a little.
        # This is enough for timing. Accuracy on real data needs calibration on real data.
        for _ in range(CALIBRATION_RUNS):
            varied, varied_keywords = pytree.tree_map(lambda leaf: _vary(leaf, generator), (inputs, keywords))
            prepared(*varied, **varied_keywords)
    return convert_pt2e(prepared)


def _dynamically(graph: torch.nn.Module, inputs: Inputs, keywords: dict[str, Any], bits: int) -> torch.nn.Module:
    """Quantize the weights of linear layers per channel; their inputs are quantized to int8 while the model runs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    state = _state(graph)
    prepared = prepare_pt2e(graph, _quantizer(is_dynamic=True, bits=bits))
    with kept_state(prepared, state), torch.no_grad():
        prepared(*inputs, **keywords)
    converted = convert_pt2e(prepared)
    if not any("quantize_per_channel" in str(node.target) for node in converted.graph.nodes):
        dtype = "int8-dynamic" if bits == 8 else "int4-channel"
        raise InputError(
            f"{dtype} quantizes linear layers, and this model has none",
            "Use --dtype int8, which quantizes convolutions too.",
        )
    return converted


def _state(graph: torch.nn.Module) -> list[str]:
    """The buffers of the model itself: those that calibration adds hold what it has seen, and go on."""
    return [name for name, _ in graph.named_buffers()]


def _quantizer(is_dynamic: bool, bits: int = 8) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    class TrainedQuantizer(XNNPACKQuantizer):  # type: ignore[misc]
        """Leaves out the patterns of models in training, which take a quarter of an export to prepare."""

        SUPPORTED_PATTERNS: ClassVar[list[Any]] = [
            pattern
            for pattern in XNNPACKQuantizer.SUPPORTED_PATTERNS
            # XNNPACK has four bits for the weights of linear layers alone.
            if not pattern.is_qat and (bits == 8 or pattern.name == "linear")
        ]

    most = 2 ** (bits - 1) - 1
    # In eight bits symmetric weights leave -128 out; in four every value is needed.
    least = -most if bits == 8 else -most - 1
    config = get_symmetric_quantization_config(
        is_per_channel=True, is_dynamic=is_dynamic, weight_qmin=least, weight_qmax=most
    )
    return TrainedQuantizer().set_global(config)


def _weights_to_int4(module: torch.nn.Module) -> torch.nn.Module:
    """Quantize linear weights to int4 in groups, inputs to int8 while running: what ExecuTorch does to language models.

    A layer whose width no group size divides stays fp32; a model without any that fits is refused.
    """
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    fitting = 0
    for size in INT4_GROUPS:

        def fits(layer: torch.nn.Module, name: str, size: int = size) -> bool:
            plain = isinstance(layer, torch.nn.Linear) and type(layer.weight) is torch.nn.Parameter
            return plain and layer.in_features % size == 0

        found = [name for name, layer in module.named_modules() if fits(layer, name)]
        if found:
            fitting += len(found)
            config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(size))
            quantize_(module, config, filter_fn=fits)
    if not fitting:
        raise InputError(
            "int4 quantizes linear layers, and this model has none whose width is a multiple of 32",
            "Use --dtype int8, which quantizes convolutions too.",
        )
    return unwrap_tensor_subclass(module)


def _vary(leaf: Any, generator: torch.Generator) -> Any:
    """Add noise in proportion to the tensor's own spread; integers (token ids, masks) stay as they are."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.numel() < 2:
        return leaf
    noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float32).to(leaf.dtype)
    return leaf + CALIBRATION_NOISE * leaf.std() * noise
