"""Two forged programs as a page shows them: compared, with the graphs of both sides."""

from collections.abc import Sequence

import numpy as np

from model_profiling.analysis.compare.comparison import PairComparison, compare_profiles
from model_profiling.analysis.compare.program_changes import Side, program_changes
from model_profiling.analysis.run.program_pair import ProgramPair, ProgramSide
from model_profiling.analysis.timing.latency import compare
from model_profiling.store.run_directory import Turn
from tests.helpers.program_forge import LAUNCHES, Op, side

NAMES = ("A", "B")


def forged_pair(
    before: Sequence[Op], after: Sequence[Op], seed: int = 0, noise: float = 0.01, launches: int = LAUNCHES
) -> ProgramPair:
    generator = np.random.default_rng(seed)
    sides = side(before, generator, noise, launches), side(after, generator, noise, launches)
    named = [(name, *each) for name, each in zip(NAMES, sides, strict=True)]
    compared = PairComparison(
        compare((NAMES[0], _turns(sides[0])), (NAMES[1], _turns(sides[1])), paired=True),
        compare_profiles(named[0], named[1], True),
        changes=program_changes(NAMES, *sides, True),
    )
    return ProgramPair(compared, *(ProgramSide(name, *each, None) for name, each in zip(NAMES, sides, strict=True)))


def _turns(measured: Side) -> list[Turn]:
    profile = measured[0]
    launches = profile.execute.reshape(len(profile.launches), -1).astype(int).tolist()
    return [Turn(launch, 0.0, ns, launch=launch) for launch, ns in enumerate(launches)]
