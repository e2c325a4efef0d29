"""Executions of two sizes in one dump are told apart, and what the system does to some of them does not mix them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from model_profiling.analysis.timing.categories import load_table
from model_profiling.analysis.timing.profile import Instance, Profile, Where, split_sizes

_NAMES = ("update_cache.out", "Fully Connected (NC, F32) GEMM", "native_call_mul.out")


def profile_of(times: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> Profile:
    """A language model's profile with these times of its operators; the last row is the runtime's own."""
    table = load_table()
    instances = []
    for row in range(len(times)):
        name = _NAMES[row % len(_NAMES)]
        where: Where = "runtime" if row == len(times) - 1 else "portable"
        instances.append(Instance(name, name, where, 0, row, table.classify(name, delegated=False)))
    executions = times.shape[1]
    return Profile(tuple(instances), times, np.zeros_like(times), times.sum(axis=0), np.zeros(executions, np.int64))


@st.composite
def dumps(draw: st.DrawFn) -> tuple[Profile, list[list[int]]]:
    """A profile, and the executions of each size in it, the longer ones first.

    Some executions are interrupted, for longer than any of them takes by itself, but no operator in most of them.
    """
    source = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    operators, short = draw(st.integers(5, 60)), draw(st.integers(1, 30))
    long = draw(st.integers(0, 12))
    longer = np.arange(short + long) < long
    source.shuffle(longer)
    # A few operators do not depend on the size, and take little.
    growing = source.random(operators) < 0.8
    growing[: operators // 2 + 1] = True
    base = np.where(growing, np.maximum(source.lognormal(np.log(20_000), 1, operators), 5_000), 8_000)
    times = base[:, None] * source.uniform(0.95, 1.15, (operators, short + long))
    times[np.ix_(growing, longer)] *= draw(st.floats(8, 80))
    for group in (np.flatnonzero(longer), np.flatnonzero(~longer)):
        if len(group) >= 3:
            interrupted = group[source.random(len(group)) < draw(st.floats(0, 1))]
            # Each operator at most once: then its middle time stays.
            for operator, execution in zip(source.permutation(operators), interrupted, strict=False):
                times[operator, execution] += source.uniform(1e6, 5e7)
    sizes = [np.flatnonzero(longer).tolist(), np.flatnonzero(~longer).tolist()]
    return profile_of(times), [size for size in sizes if size]


@settings(max_examples=50)
@given(dumps())
def test_sizes_are_told_apart_however_many_executions_were_interrupted(case: tuple[Profile, list[list[int]]]) -> None:
    profile, sizes = case
    found = [sorted(map(profile.execute.tolist().index, part.execute.tolist())) for part in split_sizes(profile)]
    assert found == sizes


def test_without_a_cache_there_is_one_size() -> None:
    times = np.full((4, 6), 10_000.0)
    times[:, :3] *= 10
    profile = profile_of(times)
    assert len(split_sizes(profile)) == 2
    stateless = tuple(each for each in profile.instances if each.name != _NAMES[0])
    rows = [row for row, each in enumerate(profile.instances) if each in stateless]
    without = Profile(stateless, times[rows], times[rows] * 0, times[rows].sum(axis=0), profile.launch)
    assert len(split_sizes(without)) == 1
