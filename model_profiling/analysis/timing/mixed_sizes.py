"""Executions of one method on inputs of different sizes: a language model's prefill and decode in one ETDump.

Their operators are the same, and only their times tell them apart. Averaged together they would say nothing.
"""

import numpy as np
import numpy.typing as npt

from model_profiling.analysis.timing.profile import Nanoseconds, Profile, median

# A method whose inputs vary in size keeps something between executions: a cache.
_CACHES = ("update_cache", "kv_cache", "custom_sdpa", "index_put", "copy_")
# Executions of one size are nearer to each other than this; a single one may be slow for other reasons.
_GAP = 2.0
_GAP_OF_ONE = 3.0
# Of two sizes most operators are this far apart.
_OPERATORS_GAP = 1.5
_MOST_OPERATORS = 0.5
# Shorter ones are not timed well enough.
_TIMED_NS = 2000.0


def split_sizes(profile: Profile) -> list[Profile]:
    """Return the executions of each size, longest in all first; the profile itself where there is one size."""
    keeps_a_cache = any(word in instance.operator for instance in profile.instances for word in _CACHES)
    if profile.executions < 2 or not keeps_a_cache:
        return [profile]
    scale = _scale(profile)
    order = np.argsort(-scale, kind="stable")
    cuts = np.flatnonzero(scale[order[:-1]] > _OPERATORS_GAP * scale[order[1:]]) + 1
    groups = np.split(order, cuts)
    joined = [groups[0]]
    for group in groups[1:]:
        if _another_size(profile, joined[-1], group):
            joined.append(group)
        else:
            joined[-1] = np.concatenate([joined[-1], group])
    return [profile.only(np.sort(group)) for group in joined] if len(joined) > 1 else [profile]


def describe_sizes(parts: list[Profile]) -> str:
    """Return `1 execution of 75.9 ms, 11 of 1.1 ms`."""
    return ", ".join(f"{part.executions} of {_middle(part.execute[None])[0] / 1e6:.3g} ms" for part in parts)


def _middle(rows: Nanoseconds) -> Nanoseconds:
    return median(np.sort(rows, axis=1))


def _operators(profile: Profile) -> npt.NDArray[np.bool_]:
    return np.array([instance.where != "runtime" for instance in profile.instances])


def _scale(profile: Profile) -> Nanoseconds:
    """Return how many times its shortest time the middle operator of each execution took.

    The whole of an execution may be long because the system interrupted it; that is in one operator, or in few.
    """
    times = profile.times[_operators(profile) & (profile.times.max(axis=1) > _TIMED_NS)]
    if not len(times):
        return np.ones(profile.executions)
    return _middle((times / np.maximum(times.min(axis=1, keepdims=True), 1)).T)


def _another_size(profile: Profile, longer: npt.NDArray[np.int64], shorter: npt.NDArray[np.int64]) -> bool:
    """Return whether most operators took longer; where only a few did, something else happened to them."""
    least = _GAP_OF_ONE if min(len(longer), len(shorter)) == 1 else _GAP
    before, after = (_middle(profile.times[:, group]) for group in (longer, shorter))
    if before.sum() < least * after.sum():
        return False
    timed = (before > _TIMED_NS) & _operators(profile)
    grown = before[timed] > _OPERATORS_GAP * after[timed]
    return bool(grown.mean() > _MOST_OPERATORS) if len(grown) else False
