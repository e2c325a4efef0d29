"""What is different about the operators of one line in two programs: dtype, operators, kernels, layout, shape."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.timing.breakdown import InstanceTime
from model_profiling.analysis.timing.categories import UNKNOWN
from model_profiling.analysis.timing.profile import NO_CHAIN, Instance
from model_profiling.base.units import counted

What = Literal["dtype", "operators", "kernels", "layout", "delegation", "count", "shape"]
# `PF32` is F32, packed for another kernel.
_PACKED = re.compile(r"P(?=[BFQ])")
_LAYOUT = re.compile(r"\((N[A-Z]*),")
_MOST_SHAPES = 2


class Aspect(msgspec.Struct, frozen=True):
    """One thing that changed, as it was and as it is. Of `operators` only those that went and those that came."""

    what: What
    before: str
    after: str


def base_name(entry: Instance | InstanceTime) -> str:
    """Return the operator without dtype and algorithm, which acceleration may change: `Fully Connected`."""
    return entry.operator.split(" (")[0] if entry.where == "delegated" else entry.operator


def kind_of_work(entry: InstanceTime) -> tuple[str, Hashable]:
    """Return an operator's kind and the size of its work, neither of which depends on dtype; None: not known."""
    kind = entry.kind if entry.kind not in ("", UNKNOWN) else base_name(entry)
    work = entry.work
    if work is None:
        return kind, None
    if work.product is not None:
        return kind, msgspec.structs.astuple(work.product)
    return kind, (round(work.elements), work.inner)


def aspects_of(before: Sequence[InstanceTime], after: Sequence[InstanceTime]) -> list[Aspect]:
    """Return what differs, the most telling first; of what one side does not have, its operators."""
    sides = (before, after)
    names = [Counter(map(base_name, side)) for side in sides]
    found = [_aspect("operators", _named(names[0] - names[1]), _named(names[1] - names[0]))]
    if before and after:
        kept = [[entry for entry in side if base_name(entry) in names[1 - n]] for n, side in enumerate(sides)]
        computing = [[entry for entry in side if entry.category != "Data Movement"] or side for side in sides]
        found = [
            _aspect("dtype", *(_joined(_PACKED.sub("", entry.dtype) for entry in side) for side in computing)),
            _aspect("delegation", *map(_places, sides)),
            *found,
            _aspect("kernels", *_kernels(kept[0], kept[1])),
            _aspect("layout", *(_joined(_layout(entry) for entry in side) for side in kept)),
            _aspect("shape", *(_shapes(side, names[0] == names[1]) for side in sides)),
            _aspect("count", *(str(len(side)) for side in sides)),
        ]
    return [aspect for aspect in found if aspect is not None]


def _aspect(what: What, before: str, after: str) -> Aspect | None:
    # What is not known on one side is no change.
    known = before and after if what in ("dtype", "delegation", "layout", "shape") else True
    return Aspect(what, before, after) if before != after and known else None


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(filter(None, names))))


def _named(names: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items())


def _places(side: Sequence[InstanceTime]) -> str:
    if any(entry.chain == NO_CHAIN for entry in side):
        return ""
    portable = sum(entry.where == "portable" for entry in side)
    if portable in (0, len(side)):
        return "portable" if portable else "delegated"
    return "partly delegated"


def _kernels(before: Sequence[InstanceTime], after: Sequence[InstanceTime]) -> tuple[str, str]:
    """Return the operators whose algorithm or packing differs, by their names; the dtype alone is no other kernel."""
    old, new = (
        {(base_name(entry), bool(_PACKED.match(entry.dtype)), entry.algorithm): entry.operator for entry in side}
        for side in (before, after)
    )
    return _joined(old[key] for key in old.keys() - new.keys()), _joined(new[key] for key in new.keys() - old.keys())


def _layout(entry: InstanceTime) -> str:
    found = _LAYOUT.search(entry.operator) if entry.where == "delegated" and entry.category != "Data Movement" else None
    return found[1] if found else ""


def _shapes(side: Sequence[InstanceTime], same: bool) -> str:
    """Return the products of matrices; of what multiplies none, and has the same operators, how many values it has."""
    computing = [entry for entry in side if entry.category != "Data Movement"] or side
    works = [entry.work for entry in computing if entry.work is not None]
    shown = list(dict.fromkeys(work.size for work in works if work.product is not None))
    if not shown and same and len(works) == len(computing):
        return counted(round(sum(work.elements for work in works)), "value")
    more = f" and {len(shown) - _MOST_SHAPES} more" if len(shown) > _MOST_SHAPES else ""
    return ", ".join(shown[:_MOST_SHAPES]) + more
