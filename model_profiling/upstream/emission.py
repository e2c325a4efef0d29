"""What is needed to emit a program: kernels of quantization, buffers with values, and taps."""

import importlib
import inspect
from typing import Any

from model_profiling.upstream.reliance import PROVEN_BOTH, Reliance, holds, require

_QUANTIZED = "executorch.kernels.quantized"


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


def _check_taps() -> str:
    from executorch.devtools import intermediate_output_tap as taps

    takes = list(inspect.signature(taps.tap_intermediate_outputs_).parameters)[:2]
    return (
        "" if takes[:1] == ["ep"] and callable(taps.strip_taps_) else "tap_intermediate_outputs_ takes other arguments"
    )


QUANTIZED_KERNELS = Reliance(
    "quantized-kernels",
    "ExecuTorch",
    f"importing {_QUANTIZED} registers out variants of quantize and dequantize",
    PROVEN_BOTH,
    "it is imported, and the out variant is there",
    _check_quantized,
    "programs that quantize or dequantize outside of delegates cannot be exported",
)
INITIAL_VALUES = Reliance(
    "initial-values",
    "ExecuTorch",
    "InitializedMutableBufferPass stores the values of buffers that a program changes",
    PROVEN_BOTH,
    "it takes names of buffers",
    _check_initial_values,
    "a model that changes buffers which are not zero at first is refused: its program would begin with zeros",
)
TAPS = Reliance(
    "output-taps",
    "ExecuTorch",
    "executorch.devtools.intermediate_output_tap hands out values from inside of delegates",
    PROVEN_BOTH,
    "the functions take what they are given",
    _check_taps,
    "numerics is refused: values from inside of delegates cannot be had",
)
RELIANCES = (QUANTIZED_KERNELS, INITIAL_VALUES, TAPS)
