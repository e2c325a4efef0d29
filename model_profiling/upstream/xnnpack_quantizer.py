"""XNNPACK's quantizer with fewer patterns."""

from collections.abc import Callable
from typing import Any

from model_profiling.upstream.reliance import PROVEN_BOTH, Reliance, holds


def quantizer(linear_only: bool, is_linear: Callable[[Any], bool], allowed: Callable[[Any], bool]) -> Any:
    """Return XNNPACK's quantizer for the operators that `allowed` allows, or of these the linear layers only.

    Without the patterns of models in training, which take a quarter of an export to prepare.
    """
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    if not holds(PATTERNS):
        only = (lambda node: allowed(node) and is_linear(node)) if linear_only else allowed
        return XNNPACKQuantizer().set_filter_function(only)

    class TrainedQuantizer(XNNPACKQuantizer):  # type: ignore[misc]
        SUPPORTED_PATTERNS = [  # noqa: RUF012 - as its base has it
            pattern
            for pattern in XNNPACKQuantizer.SUPPORTED_PATTERNS
            if not pattern.is_qat and (not linear_only or pattern.name == "linear")
        ]

    return TrainedQuantizer().set_filter_function(allowed)


def _check() -> str:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    patterns = {each.name: each.is_qat for each in XNNPACKQuantizer.SUPPORTED_PATTERNS}
    known = patterns.get("linear") is False and patterns.get("conv") is False and patterns.get("conv_bn") is True
    return "" if known else "XNNPACKQuantizer has no SUPPORTED_PATTERNS with names and is_qat"


PATTERNS = Reliance(
    "quantizer-patterns",
    "ExecuTorch",
    "XNNPACKQuantizer.SUPPORTED_PATTERNS lists what it quantizes, by name, and what is for training (is_qat)",
    PROVEN_BOTH,
    "the list has linear layers and convolutions, and one of a convolution in training",
    _check,
    "all patterns are prepared, which takes longer and quantizes the same",
)
RELIANCES = (PATTERNS,)
