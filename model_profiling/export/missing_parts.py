"""What an export goes without, because this version of torch or ExecuTorch is not as the kit knows it."""

from collections.abc import Iterator

from model_profiling.base.dtypes import dtype_of
from model_profiling.base.rewrites import LAYOUT
from model_profiling.export.request import ExportRequest
from model_profiling.upstream import (
    captured_graphs,
    emission,
    etrecord_contents,
    faster_lowering,
    xnnpack_partitioner,
    xnnpack_passes,
)
from model_profiling.upstream.reliance import Reliance, holds, require, why_not
from model_profiling.upstream.xnnpack_quantizer import PATTERNS


def missing_parts(request: ExportRequest) -> list[str]:
    """Return one line for everything that an export relies on and that is not there, with what happened instead."""
    return [*filter(None, (faster_lowering.why_slower(), *map(why_not, _relied_on(request))))]


def require_for_numerics(request: ExportRequest) -> None:
    """Refuse to look at layers where their values, or the layers of the fp32 model, cannot be had."""
    needed = [emission.TAPS, captured_graphs.OPERATORS, captured_graphs.FLAT_INPUTS]
    if dtype_of(request.dtype).quantized == "graph":
        needed.append(captured_graphs.PROVENANCE)
    for each in needed:
        require(each)


def _relied_on(request: ExportRequest) -> Iterator[Reliance]:
    yield captured_graphs.OPERATORS
    yield captured_graphs.NESTED
    yield etrecord_contents.ETRECORD
    if dtype_of(request.dtype).quantized:
        yield emission.QUANTIZED_KERNELS
    if dtype_of(request.dtype).quantized == "graph":
        yield PATTERNS
    if request.backend == "xnnpack":
        yield from xnnpack_partitioner.RELIANCES
        if LAYOUT in request.rewrites and holds(captured_graphs.OPERATORS):
            yield xnnpack_passes.LAYOUT_LOWERING
