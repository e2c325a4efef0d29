"""Data movement: which transposes, copies, packs, pads and converts there are, in which chains, and what each costs."""

import msgspec

from model_profiling.analysis.breakdown import Breakdown, InstanceTime

_MOVEMENT = "Data Movement"


class Chain(msgspec.Struct, frozen=True):
    """Data movement operators in a row. `before` and `after` are the operators it lies between ('' at an end)."""

    operators: list[str]
    ms: float
    share: float
    before: str
    after: str
    # Whether it lies at the edge of a delegate, where XNNPACK and the portable operators want different layouts.
    at_boundary: bool


class InversePair(msgspec.Struct, frozen=True):
    """Two transposes with nothing between them but what does not care about layout: one may undo the other."""

    first: str
    second: str
    between: list[str]
    ms: float
    share: float
    # Where in PyTorch the two come from ('' where XNNPACK put one in itself).
    at: list[str] = []


class DataMovement(msgspec.Struct, frozen=True):
    ms: float
    share: float
    by_kind: dict[str, float]
    chains: list[Chain]
    inverse_pairs: list[InversePair]


def data_movement(breakdown: Breakdown) -> DataMovement:
    """Find the chains and pairs of a breakdown, costliest first; removing one would save its `ms`."""
    steps = [entry for entry in breakdown.instances if entry.where != "runtime"]
    by_kind: dict[str, float] = {}
    for entry in steps:
        if entry.category == _MOVEMENT:
            by_kind[entry.kind] = by_kind.get(entry.kind, 0.0) + entry.ms
    total = breakdown.category(_MOVEMENT)
    return DataMovement(
        ms=total.ms,
        share=total.share,
        by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        chains=sorted(_chains(steps, breakdown.execute_ms), key=lambda chain: -chain.ms),
        inverse_pairs=sorted(_inverse_pairs(steps, breakdown.execute_ms), key=lambda pair: -pair.ms),
    )


def _chains(steps: list[InstanceTime], whole: float) -> list[Chain]:
    found = []
    start = 0
    while start < len(steps):
        end = start
        while end < len(steps) and steps[end].category == _MOVEMENT:
            end += 1
        if end > start:
            members = steps[start:end]
            before = steps[start - 1] if start else None
            after = steps[end] if end < len(steps) else None
            ms = sum(entry.ms for entry in members)
            found.append(
                Chain(
                    operators=[entry.name for entry in members],
                    ms=ms,
                    share=ms / whole if whole else 0.0,
                    before=before.name if before else "",
                    after=after.name if after else "",
                    at_boundary=_at_boundary(before, members, after),
                )
            )
        start = max(end, start + 1)
    return found


def _at_boundary(before: InstanceTime | None, members: list[InstanceTime], after: InstanceTime | None) -> bool:
    inside = {entry.instruction for entry in members}
    neighbours = {entry.instruction if entry else None for entry in (before, after)}
    return len(inside) > 1 or bool(neighbours - inside)


def _inverse_pairs(steps: list[InstanceTime], whole: float) -> list[InversePair]:
    """Neighbouring transposes, looking through reshapes and elementwise operators, which commute with a transpose."""
    found = []
    last: int | None = None
    for index, entry in enumerate(steps):
        if entry.kind == "transpose":
            if last is not None:
                first, between = steps[last], [step.name for step in steps[last + 1 : index]]
                ms = first.ms + entry.ms
                places = [f"{s.file}:{s.line}" for s in (first.source, entry.source) if s is not None]
                found.append(InversePair(first.name, entry.name, between, ms, ms / whole if whole else 0.0, places))
                last = None
            else:
                last = index
        elif entry.kind != "reshape" and entry.category != "Elementwise":
            last = None
    return found
