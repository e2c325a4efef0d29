"""Which operators of one program call other kernels under another ExecuTorch, as two kernel traces tell."""

import msgspec

from model_profiling.analysis.compare.aspects import numbered
from model_profiling.analysis.sme2.kernel_assignment import KernelEvidence


class KernelChange(msgspec.Struct, frozen=True):
    """An operator with other kernels, by their names; a side on which it called none, or is not there, has none."""

    operator: str
    instruction: int
    before: list[str]
    after: list[str]


class KernelComparison(msgspec.Struct, frozen=True):
    """The operators of two experiments that call other kernels, of so many; `unknown` says why nobody can tell."""

    before: str
    after: str
    operators: int | None
    changed: list[KernelChange]
    unknown: str = ""


def compare_kernels(
    before: tuple[str, KernelEvidence | None], after: tuple[str, KernelEvidence | None], no_trace: str = ""
) -> KernelComparison:
    """Compare two traces operator by operator; `no_trace` says why there is none where one is missing."""
    (one, old), (other, new) = before, after
    why = no_trace or "there is no kernel trace"
    unknown = why if old is None or new is None else old.unknown or new.unknown
    if unknown or old is None or new is None:
        return KernelComparison(one, other, None, [], unknown)
    sides = [
        # The n-th of a kind within an instruction, whatever dtype it runs in.
        numbered((each.execution, each.instruction, each.name.split(" (")[0]) for each in evidence.operators)
        for evidence in (old, new)
    ]
    changed = []
    for place in sides[0] | sides[1]:
        was, now = (
            evidence.operators[side[place]] if place in side else None
            for evidence, side in zip((old, new), sides, strict=True)
        )
        kernels = [sorted({call.kernel for call in each.kernels}) if each else [] for each in (was, now)]
        either = now or was
        assert either is not None
        if kernels[0] != kernels[1]:
            changed.append(KernelChange(either.name, either.instruction, *kernels))
    return KernelComparison(one, other, len(sides[0] | sides[1]), changed)
