"""Which layer loses the accuracy: of a model by its name, from its file, or as it is in memory."""

from typing import Any

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.platforms.base import Platform


def numerics_of(
    request: ExportRequest,
    made: ExportResult,
    platform: Platform,
    on_progress: OnProgress,
    in_memory: tuple[Any, Any] | None = None,
    trial: bool = True,
) -> Numerics:
    """Look at the layers of what was exported for a request; `in_memory` is its module with the example inputs.

    `trial`: what would be recommended is exported and run, too.
    """
    from model_profiling.export.numerics.measuring import measure_numerics

    if in_memory is not None:
        from model_profiling.export import in_memory as memory

        load = memory.loader(request.model, *in_memory, None)
    else:
        from model_profiling.export.numerics.graph_pair import loader

        load = loader(request)
    return measure_numerics(request, made, load, platform, on_progress, trial=trial)
