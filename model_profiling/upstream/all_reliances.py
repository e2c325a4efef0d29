"""All that the kit relies on without a promise, in the order in which it is printed."""

from model_profiling.upstream import (
    captured_graphs,
    emission,
    example_models,
    faster_lowering,
    ray_worker,
    xnnpack_partitioner,
    xnnpack_passes,
    xnnpack_quantizer,
)
from model_profiling.upstream.reliance import Reliance

ALL: tuple[Reliance, ...] = (
    *faster_lowering.RELIANCES,
    *captured_graphs.RELIANCES,
    *xnnpack_quantizer.RELIANCES,
    *xnnpack_partitioner.RELIANCES,
    *xnnpack_passes.RELIANCES,
    *emission.RELIANCES,
    *example_models.RELIANCES,
    *ray_worker.RELIANCES,
)
