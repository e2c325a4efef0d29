"""All that the kit relies on without a promise, in the order in which it is printed."""

from model_profiling.upstream import (
    cpuinfo,
    kernel_calls,
    libraries,
    program_schema,
    ray_worker,
    torch_stubs,
    xnnpack_schema,
)
from model_profiling.upstream.reliance import Reliance

ALL: tuple[Reliance, ...] = (
    *program_schema.RELIANCES,
    *xnnpack_schema.RELIANCES,
    *libraries.RELIANCES,
    *cpuinfo.RELIANCES,
    *kernel_calls.RELIANCES,
    *torch_stubs.RELIANCES,
    *ray_worker.RELIANCES,
)
