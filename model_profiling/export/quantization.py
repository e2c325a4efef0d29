"""PT2E static quantization: a float model becomes int8 with XNNPACK's own quantizer."""

from typing import Any

import torch
import torch.utils._pytree as pytree

CALIBRATION_RUNS = 4
CALIBRATION_NOISE = 0.05


def quantize(
    module: torch.nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], dynamic_shapes: Any, seed: int
) -> torch.nn.Module:
    """Quantize weights per channel and activations per tensor, symmetric int8, calibrated on the example inputs."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    graph = torch.export.export(module, inputs, keywords, dynamic_shapes=dynamic_shapes).module()
    prepared = prepare_pt2e(graph, quantizer)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        prepared(*inputs, **keywords)
        # One sample alone makes ranges that clip the next one; a few seeded variations around it widen them a little.
        # This is enough for timing. Accuracy on real data needs calibration on real data.
        for _ in range(CALIBRATION_RUNS):
            varied, varied_keywords = pytree.tree_map(lambda leaf: _vary(leaf, generator), (inputs, keywords))
            prepared(*varied, **varied_keywords)
    return convert_pt2e(prepared)


def _vary(leaf: Any, generator: torch.Generator) -> Any:
    """Add noise in proportion to the tensor's own spread; integers (token ids, masks) stay as they are."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.numel() < 2:
        return leaf
    noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float32).to(leaf.dtype)
    return leaf + CALIBRATION_NOISE * leaf.std() * noise
