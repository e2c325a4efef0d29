"""All that the kit relies on without a promise, in the order in which it is printed."""

from typing import Any

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

_LOWERING = (faster_lowering, captured_graphs, xnnpack_quantizer, xnnpack_partitioner, xnnpack_passes, emission)
_FILES = (example_models, program_schema, xnnpack_schema, etdump_schema, etrecord_contents, event_names)
_PROCESSES = (libraries, cpuinfo, kernel_calls, torch_stubs, ray_worker)
_MODULES: tuple[Any, ...] = (*_LOWERING, *_FILES, *_PROCESSES)
ALL: tuple[Reliance, ...] = tuple(each for module in _MODULES for each in module.RELIANCES)


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
    texts = [(each.name, each.project, each.relies_on, each.proven, each.checked, each.instead) for each in ALL]
    checks = map(check_reliance, ALL)
    return [RelianceState(*said, seen.state, seen.reason) for said, seen in zip(texts, checks, strict=True)]
