"""Two programs as they are compared: forged operators with lines, sizes and times in several launches."""

from collections.abc import Sequence
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np

from model_profiling.analysis.compare.comparison import PairComparison, compare_profiles
from model_profiling.analysis.compare.program_changes import ProfiledProgram, ProgramChanges, program_changes
from model_profiling.analysis.run.program_pair import ProgramPair
from model_profiling.analysis.timing.breakdown import SourceLine, break_down
from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.latency import compare
from model_profiling.analysis.timing.profile import Instance, Profile, Where
from model_profiling.analysis.timing.work import Product, Work
from model_profiling.store.run_directory import Turn

_TABLE = load_table()
LAUNCHES, _RUNS = 6, 3


class Op(NamedTuple):
    """An operator of a forged program; one without code is not linked to a line."""

    name: str
    ns: float = 50_000.0
    module: str = ""
    code: str = ""
    line: int = 1
    rows: int = 64
    where: Where = "delegated"
    file: str = "net.py"


CONV, FC, ADD = "Convolution (NHWC, F32) IGEMM", "Fully Connected (NC, F32) GEMM", "Add (ND, F32)"
TRANSPOSE = "Transpose (ND, X32)"
OPERATORS = st.builds(
    Op,
    st.sampled_from([CONV, FC, ADD, TRANSPOSE, "Mystery (ND)"]),
    st.floats(500, 1e6),
    st.sampled_from(["", "a", "a.b", "a.b.0", "c", ".".join("d" * 400)]),
    st.sampled_from(["", "y = f(x)", "y = g(x)"]),
    st.integers(1, 4),
    st.sampled_from([1, 64, 128]),
    st.sampled_from(("delegated", "portable")),
    st.just("net.py"),
)
PROGRAMS = st.lists(OPERATORS, max_size=15)


def network(blocks: int) -> list[Op]:
    """Return blocks of a convolution, a linear layer and an addition, each with its lines."""
    found = []
    for n in range(blocks):
        found += [
            Op(CONV, 80_000, f"blocks.{n}.conv", "x = self.conv(x)", 10),
            Op(FC, 40_000, f"blocks.{n}.linear", "y = self.linear(x)", 11),
            Op(ADD, 10_000, f"blocks.{n}", "return x + y", 12),
        ]
    return found


def side(
    name: str, program: Sequence[Op], generator: np.random.Generator, noise: float = 0.01, launches: int = LAUNCHES
) -> ProfiledProgram:
    """Return a program as it was measured; ExecuTorch takes some time around its operators, too."""
    ops = [*program, Op("delegate call", 20_000.0, where="runtime")]
    instances, sources, works = [], {}, {}
    for row, op in enumerate(ops):
        kind = _TABLE.classify(op.name, op.where == "delegated")
        instances.append(Instance(op.name, op.name, op.where, 0, 0, kind))
        if op.code:
            sources[row] = SourceLine(op.module, op.file, op.line, op.code, op.name)
        product = Product(op.rows, 64, 64) if kind.category in ("CONV", "GEMM") else None
        works[row] = Work("fp32", 0, op.rows * 256, op.rows * 256, product)
    true = np.array([op.ns for op in ops])
    luck = generator.lognormal(0, noise, (len(ops), launches, 1))
    times = (true[:, None, None] * luck * (1 + 0.003 * generator.standard_normal((len(ops), launches, _RUNS)))).reshape(
        len(ops), -1
    )
    starts = np.cumsum(times, axis=0) - times
    profile = Profile(tuple(instances), times, starts, times.sum(axis=0), np.repeat(np.arange(launches), _RUNS))
    return ProfiledProgram(name, profile, break_down(profile, sources, works))


def pair(
    before: Sequence[Op],
    after: Sequence[Op],
    names: tuple[str, str] = ("A", "B"),
    seed: int = 0,
    noise: float = 0.01,
    launches: int = LAUNCHES,
) -> ProgramPair:
    """Return two programs as `compare` finds them when it measured both in turns."""
    generator = np.random.default_rng(seed)
    old, new = side(names[0], before, generator, noise, launches), side(names[1], after, generator, noise, launches)
    compared = PairComparison(
        compare((old.name, _turns(old.profile)), (new.name, _turns(new.profile)), True),
        compare_profiles(old, new, True),
        changes=program_changes(old, new, True),
    )
    return ProgramPair(compared, old, new)


def _turns(profile: Profile) -> list[Turn]:
    launches = profile.execute.reshape(len(profile.launches), -1).astype(int).tolist()
    return [Turn(launch, float(launch), ns, launch=launch) for launch, ns in enumerate(launches)]


def changes(before: Sequence[Op], after: Sequence[Op], seed: int = 0, noise: float = 0.01) -> ProgramChanges:
    generator = np.random.default_rng(seed)
    return program_changes(side("A", before, generator, noise), side("B", after, generator, noise), True)
