"""What is needed to emit a program: kernels of quantization, buffers with values, and taps."""

import importlib
from typing import Any

from model_profiling.upstream.reliance import holds, lacking, reliance, require

_QUANTIZED = "executorch.kernels.quantized"
_TAPS = "executorch.devtools.intermediate_output_tap"


def register_quantized_kernels() -> None:
    """Register the out variants of quantize and dequantize, for those that no delegate takes."""
    if holds(QUANTIZED_KERNELS):
        importlib.import_module(_QUANTIZED)


def initial_values_pass(names: list[str]) -> Any:
    """Return the pass that stores what these buffers hold at first; ExecuTorch takes them to be zero."""
    require(INITIAL_VALUES)
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    return InitializedMutableBufferPass(names)


def tap(program: Any, wanted: set[str]) -> tuple[Any, list[str]]:
    """Return a program that also hands out the values of these nodes, and their names in the order of its outputs."""
    from executorch.devtools.intermediate_output_tap import tap_intermediate_outputs_

    program, specs = tap_intermediate_outputs_(program, (lambda node: node.name in wanted, "FULL_TENSOR"))
    return program, [spec.node_name for spec in specs]


def strip_taps(edge: Any) -> None:
    """Take the operators of taps out of a lowered program; its outputs stay."""
    from executorch.devtools.intermediate_output_tap import strip_taps_

    strip_taps_(edge)


def _check_quantized() -> str:
    importlib.import_module(_QUANTIZED)
    import torch

    there = hasattr(torch.ops.quantized_decomposed.quantize_per_tensor, "out")
    return "" if there else f"{_QUANTIZED} registers no out variant of quantize_per_tensor"


def _check_initial_values() -> str:
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    patterns = getattr(InitializedMutableBufferPass(["a name"]), "patterns", None)
    return "" if patterns == ["a name"] else "InitializedMutableBufferPass does not take names of buffers"


QUANTIZED_KERNELS = reliance("quantized-kernels", _check_quantized)
INITIAL_VALUES = reliance("initial-values", _check_initial_values)
TAPS = reliance("output-taps", lambda: lacking(f"{_TAPS}:tap_intermediate_outputs_(ep)", f"{_TAPS}:strip_taps_"))
