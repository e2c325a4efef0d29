"""Which layer loses the accuracy: of a model by its name, from its file, or as it is in memory."""

from collections.abc import Callable
from typing import Any

from model_profiling.analysis.numerics import Numerics
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.on_progress import OnProgress
from model_profiling.platforms.base import Platform
from sme2_kit.exporting import from_memory, from_target


def numerics_of_target(
    request: ExportRequest,
    platform: Platform,
    on_progress: OnProgress,
    force: bool,
    on_cached: Callable[[], None] = lambda: None,
) -> tuple[Numerics, ExportResult]:
    """Export what the request names, unless it is there, and look at its layers."""
    made = from_target(on_progress, force, on_cached)(request, "export")
    from model_profiling.export.graph_pair import loader
    from model_profiling.numerics.measuring import measure_numerics

    return measure_numerics(request, made, loader(request), platform, on_progress), made


def numerics_of_module(
    module: Any,
    example_inputs: Any,
    request: ExportRequest,
    platform: Platform,
    on_progress: OnProgress,
) -> Numerics:
    """Export a module in memory and look at its layers."""
    made = from_memory(module, example_inputs, None, on_progress)(request, "export")
    from model_profiling.export.in_memory import loader
    from model_profiling.numerics.measuring import measure_numerics

    load = loader(request.model, module, example_inputs, None)
    return measure_numerics(request, made, load, platform, on_progress)
