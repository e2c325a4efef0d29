"""All that the kit relies on without a promise, in the order in which it is printed."""

import msgspec

from model_profiling.upstream import (
    captured_graphs,
    cpuinfo,
    emission,
    etdump_schema,
    etrecord_contents,
    event_names,
    example_models,
    faster_lowering,
    kernel_calls,
    libraries,
    program_schema,
    ray_worker,
    torch_stubs,
    xnnpack_partitioner,
    xnnpack_passes,
    xnnpack_quantizer,
    xnnpack_schema,
)
from model_profiling.upstream.reliance import Reliance, State, check_reliance

ALL: tuple[Reliance, ...] = (
    *faster_lowering.RELIANCES,
    *captured_graphs.RELIANCES,
    *xnnpack_quantizer.RELIANCES,
    *xnnpack_partitioner.RELIANCES,
    *xnnpack_passes.RELIANCES,
    *emission.RELIANCES,
    *example_models.RELIANCES,
    *program_schema.RELIANCES,
    *xnnpack_schema.RELIANCES,
    *etdump_schema.RELIANCES,
    *etrecord_contents.RELIANCES,
    *event_names.RELIANCES,
    *libraries.RELIANCES,
    *cpuinfo.RELIANCES,
    *kernel_calls.RELIANCES,
    *torch_stubs.RELIANCES,
    *ray_worker.RELIANCES,
)


class RelianceState(msgspec.Struct, frozen=True):
    """A reliance and whether it holds here; `reason` is why not, or why that was not checked."""

    name: str
    project: str
    relies_on: str
    proven: str
    checked: str
    instead: str
    state: State
    reason: str


def reliance_states() -> list[RelianceState]:
    """Check all of them."""
    found = []
    for each in ALL:
        texts = (each.name, each.project, each.relies_on, each.proven, each.checked, each.instead)
        seen = check_reliance(each)
        found.append(RelianceState(*texts, seen.state, seen.reason))
    return found
