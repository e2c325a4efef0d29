"""Executions of one method on inputs of different sizes: a language model's prefill and decode in one ETDump.

Their operators are the same, and only their times tell them apart. Averaged together they would say nothing.
"""

import numpy as np
import numpy.typing as npt

from model_profiling.analysis.profile import Profile

# A method whose inputs vary in size keeps something between executions: a cache.
_CACHES = ("update_cache", "kv_cache", "custom_sdpa", "index_put", "copy_")
# Executions of one size are nearer to each other than this; and of two sizes most operators are as far apart.
_GAP = 1.5
_OPERATORS_GAP = 1.25
_MOST_OF_THE_TIME = 0.6


def split_sizes(profile: Profile) -> list[Profile]:
    """The executions of each size, those that took longest first; the profile as it is where there is one size."""
    if profile.executions < 2 or not _keeps_a_cache(profile):
        return [profile]
    order = np.argsort(-profile.execute, kind="stable")
    cuts = np.flatnonzero(profile.execute[order[:-1]] > _GAP * profile.execute[order[1:]]) + 1
    groups = np.split(order, cuts)
    joined = [groups[0]]
    for group in groups[1:]:
        if _another_size(profile, joined[-1], group):
            joined.append(group)
        else:
            joined[-1] = np.concatenate([joined[-1], group])
    return [profile.only(np.sort(group)) for group in joined] if len(joined) > 1 else [profile]


def said_sizes(parts: list[Profile]) -> str:
    """`1 execution of 75.9 ms, 11 of 1.1 ms`."""
    return ", ".join(f"{part.executions} of {float(np.median(part.execute)) / 1e6:.3g} ms" for part in parts)


def _keeps_a_cache(profile: Profile) -> bool:
    return any(word in instance.operator for instance in profile.instances for word in _CACHES)


def _another_size(profile: Profile, longer: npt.NDArray[np.int64], shorter: npt.NDArray[np.int64]) -> bool:
    """Whether most operators took longer: where a few did, something else happened to them."""
    before, after = (np.median(profile.times[:, group], axis=1) for group in (longer, shorter))
    grown = before > _OPERATORS_GAP * np.maximum(after, 1.0)
    return bool(before[grown].sum() > _MOST_OF_THE_TIME * max(before.sum(), 1.0))
