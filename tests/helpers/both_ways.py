"""Programs lowered faster and in the stock way: what comes of both must be the same, byte for byte."""

from typing import Any

import pytest

from model_profiling.base.dtypes import dtype_of
from model_profiling.export.host import host_untouched
from model_profiling.export.lower.capture_and_lower import capture_prepared
from model_profiling.export.lower.lowering import emit, lower, lowering_of
from model_profiling.export.prepare.preparation import prepare, quantize
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest
from model_profiling.export.stages import Stages
from model_profiling.models.loading import LoadedModel
from model_profiling.upstream.faster_lowering import FASTER, STOCK_VARIABLE


def assert_same_both_ways(loaded: LoadedModel, request: ExportRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepare a model once, lower it in both ways, and compare all that an export keeps of it."""
    made = []
    with kept_off_terminal(loud=False), host_untouched(request.seed):
        prepared = prepare(loaded, request)
        if dtype_of(request.dtype).quantized:
            prepared = quantize(prepared, request)
        for stock, way in (("0", FASTER), ("1", f"stock: {STOCK_VARIABLE} is set")):
            monkeypatch.setenv(STOCK_VARIABLE, stock)
            # Each time: sizes that are known only at run time do not survive a copy of the graph.
            captured, _ = capture_prepared(prepared, request, Stages())
            made.append(_all_of(captured, request, way))
    assert made[0] == made[1]


def _all_of(program: Any, request: ExportRequest, way: str) -> tuple[Any, ...]:
    lowered = lower(program, **lowering_of(request))
    assert lowered.way.startswith(way)
    emitted = emit(lowered).program
    found = lowered.nodes, lowered.delegation, lowered.reasons, lowered.keeps_images
    return (bytes(emitted.buffer), emitted.debug_handle_map, emitted.delegate_map, *found)
