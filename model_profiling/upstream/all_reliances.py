"""All that the kit relies on without a promise, in the order in which it is printed."""

from model_profiling.upstream import ray_worker
from model_profiling.upstream.reliance import Reliance

ALL: tuple[Reliance, ...] = (*ray_worker.RELIANCES,)
