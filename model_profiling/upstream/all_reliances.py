"""All that the kit relies on without a promise, in the order in which it is printed."""

import importlib

import msgspec

from model_profiling.upstream import faster_lowering
from model_profiling.upstream.reliance import TABLE, Reliance, RelianceText, State, check_reliance

_NAMES = (
    "captured_graphs xnnpack_lowering emission example_models program_schema xnnpack_schema etdump_schema "
    "names_in_files libraries torch_stubs ray_worker"
)
_MODULES = [importlib.import_module(f"{__package__}.{name}") for name in _NAMES.split()]
_CHECKED = {each.name: each for module in _MODULES for each in vars(module).values() if isinstance(each, Reliance)}
ALL: tuple[Reliance, ...] = (*faster_lowering.RELIANCES, *(_CHECKED[name] for name in TABLE))


class RelianceState(RelianceText, frozen=True):
    """A reliance and whether it holds here; `reason` is why not, or why that was not checked."""

    state: State
    reason: str


def reliance_states() -> list[RelianceState]:
    """Check all of them."""
    texts = ((each, {name: getattr(each, name) for name in RelianceText.__struct_fields__}) for each in ALL)
    return [RelianceState(**said, **msgspec.structs.asdict(check_reliance(each))) for each, said in texts]
