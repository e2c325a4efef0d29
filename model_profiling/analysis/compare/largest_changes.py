"""The largest changes between two programs, short enough to be kept with a result."""

import msgspec

from model_profiling.analysis.compare.program_changes import ModuleChange, PartChange, ProgramChanges

MOST_CHANGES = 5
_OTHERS = "others"


def largest(changes: ProgramChanges, most: int = MOST_CHANGES) -> ProgramChanges:
    """Return the same with all parts but the largest changes as one, and so of modules: both still add up."""
    shown = changes.different[:most]
    seen = set(map(id, shown))
    rest = [part for part in changes.parts if id(part) not in seen]
    parts = [msgspec.structs.replace(part, before_rows=[], after_rows=[]) for part in shown]
    if rest:
        sums = _sums(rest)
        parts.append(
            PartChange("", "", "", "others", rest[0].category, *sums, None, None, [], [], [], [], parts=len(rest))
        )
    modules, left = changes.modules[:most], changes.modules[most:]
    if left:
        modules = [*modules, ModuleChange(_OTHERS, *_sums(left), None, None, sum(module.parts for module in left))]
    return msgspec.structs.replace(changes, parts=parts, modules=modules)


def _sums(those: list[PartChange] | list[ModuleChange]) -> tuple[float, float, float]:
    before, after = (sum(getattr(each, side) for each in those) for side in ("before_ms", "after_ms"))
    return before, after, after - before
