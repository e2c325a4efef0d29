"""All that the kit relies on without a promise, in the order in which it is printed."""

from model_profiling.upstream import program_schema, ray_worker, xnnpack_schema
from model_profiling.upstream.reliance import Reliance

ALL: tuple[Reliance, ...] = (
    *program_schema.RELIANCES,
    *xnnpack_schema.RELIANCES,
    *ray_worker.RELIANCES,
)
