"""A profile: the time of every operator in every execution, and named overhead, adding up to `Method::execute`.

Parents are never added to their children. What a parent took beyond its children has a name of its own: a delegate
call's own time, an operator call's own time, the method's own time. So the rows of a profile sum to the whole, in
every execution, exactly.
"""

import functools
import itertools
import math
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.timing.categories import Category, CategoryTable, OperatorClass, strip_instance
from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key
from model_profiling.formats import etdump
from model_profiling.upstream.names_in_files import DELEGATE_CALL, OPERATOR_CALL

Where = Literal["delegated", "portable", "runtime"]
# What time is counted under: a category of operators, or ExecuTorch itself.
Part = Literal[Category, "Runtime"]
Nanoseconds = npt.NDArray[np.float64]

RUNTIME: Literal["Runtime"] = "Runtime"
# The chain of an operator of another runtime, which has no delegates and no chains of instructions.
NO_CHAIN = -1
# What each parent took for itself.
_OWN_TIME = {DELEGATE_CALL: "delegate call", OPERATOR_CALL: "operator call", etdump.EXECUTE: "method"}
# An operator's time in one execution counts as disturbed if it is this many standard deviations off its median (as the
# median deviation tells it), and also this part of it and this many nanoseconds: XNNPACK's clock steps by 1000.
_DEVIATIONS, _PART, _STEPS_NS = 5.0, 0.1, 2000.0
XNNPACK_CLOCK_NS = 1000.0
_STANDARD = 1.4826
# Numbers that are sorted together.
AT_ONCE = 1 << 20
# Of two executions nobody can say which one was disturbed.
_LEAST_EXECUTIONS = 3
# Executions of one method on inputs of different sizes: a language model's prefill and decode in one ETDump.
#
# Their operators are the same, and only their times tell them apart. Averaged together they would say nothing.
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


class Instance(msgspec.Struct, frozen=True):
    """One operator at one place of the graph. `name` is as the dump prints it, `operator` is without its number."""

    name: str
    operator: str
    where: Where
    chain: int
    instruction: int
    kind_of: OperatorClass

    @property
    def kind(self) -> str:
        return self.kind_of.kind

    @property
    def category(self) -> Part:
        return RUNTIME if self.where == "runtime" else self.kind_of.category


class Profile(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`times[i, e]` is what instance i took in execution e, `starts[i, e]` when it began after the method did."""

    instances: tuple[Instance, ...]
    times: Nanoseconds
    starts: Nanoseconds
    execute: Nanoseconds
    # Which launch each execution belongs to: those of one process share where its memory lies.
    launch: npt.NDArray[np.int64]

    @property
    def executions(self) -> int:
        return len(self.execute)

    @functools.cached_property
    def clock_ns(self) -> float:
        """In what steps operators of delegates were timed: XNNPACK counts whole microseconds, unless it is shown a
        faster clock, as by the kit's runner."""
        inside = self.times[[instance.where == "delegated" for instance in self.instances]]
        return 1.0 if (inside % XNNPACK_CLOCK_NS).any() else XNNPACK_CLOCK_NS

    @functools.cached_property
    def steady(self) -> Nanoseconds:
        """`times` with what disturbed single operators left out: interrupted once, an operator counts as in the others.

        A disturbance is in one operator, or in few, so that each operator is undisturbed in most executions even where
        hardly any execution is. Whatever is computed from this adds up, in each execution and on average.
        """
        return _undisturbed(self.times)

    @functools.cached_property
    def typical(self) -> Nanoseconds:
        """What each instance takes in a typical execution: the mean of `steady` over the middle half of executions by
        their undisturbed total. All rows are of the same executions, so they add up, and to the median total, also
        where the clock changes and the mean of all executions is none that occurs."""
        totals = self.steady.sum(axis=0)
        count = max(1, (self.executions + 1) // 2)
        first = (self.executions - count) // 2
        middle = np.sort(np.argsort(totals, kind="stable")[first : first + count])
        result: Nanoseconds = self.steady[:, middle].mean(axis=1)
        return result

    @functools.cached_property
    def launch_times(self) -> Nanoseconds:
        """What each instance took in each launch, a column for each: the mean of its undisturbed times there."""
        parts = [self.times[:, self.launch == launch] for launch in self.launches.tolist()]
        result: Nanoseconds = np.stack([_undisturbed(part).mean(axis=1) for part in parts], axis=1)
        return result

    @property
    def launches(self) -> npt.NDArray[np.int64]:
        """The numbers of the launches, in order."""
        return np.array(sorted(set(self.launch.tolist())), dtype=np.int64)

    def without_times(self) -> "Profile":
        """Return the same operators with no time at all: what is left of a run whose clock means nothing."""
        return Profile(self.instances, self.times * 0, self.starts * 0, self.execute * 0, self.launch)

    def with_launches(self, launches: dict[int, int]) -> "Profile":
        """Return the profile with executions assigned to launches, in order; what one has too many is its warm-up.

        Only the dump of a runner that is not the kit's still holds warm-up executions.
        """
        counts = np.array(list(launches.values()), dtype=np.int64)
        extra, rest = divmod(self.executions - int(counts.sum()), max(1, len(counts)))
        if rest or extra < 0 or not len(counts):
            return self
        launch = np.repeat(np.array(list(launches), dtype=np.int64), counts + extra)
        first = np.concatenate(([0], np.cumsum(counts + extra)[:-1]))
        kept = np.arange(self.executions) - np.repeat(first, counts + extra) >= extra
        return Profile(self.instances, self.times[:, kept], self.starts[:, kept], self.execute[kept], launch[kept])

    def only(self, chosen: npt.NDArray[np.int64]) -> "Profile":
        """Return the profile of some of its executions."""
        times, starts = self.times[:, chosen], self.starts[:, chosen]
        return Profile(self.instances, times, starts, self.execute[chosen], self.launch[chosen])


def _undisturbed(times: Nanoseconds) -> Nanoseconds:
    """Return each row with its disturbed times replaced by the mean of the others, some rows at a time.

    The middle is the lower of two: what disturbs only adds time, and may have hit just half of the executions.
    """
    result: Nanoseconds = times.copy()
    executions = times.shape[1]
    step = max(1, AT_ONCE // max(1, executions))
    for start in range(0, len(result) if executions >= _LEAST_EXECUTIONS else 0, step):
        rows = result[start : start + step]
        middle = lower_median(rows)
        off = np.abs(rows - middle)
        spread = _STANDARD * lower_median(off)
        disturbed = off > np.maximum(np.maximum(_DEVIATIONS * spread, _PART * np.abs(middle)), _STEPS_NS)
        if disturbed.any():
            mean = np.where(disturbed, 0.0, rows).sum(axis=1) / (~disturbed).sum(axis=1)
            np.copyto(rows, mean[:, None], where=disturbed)
    return result


def lower_median(rows: Nanoseconds) -> Nanoseconds:
    """Return the median of each row, as a column; of two the lower."""
    at = (rows.shape[1] - 1) // 2
    result: Nanoseconds = np.partition(rows, at, axis=1)[:, at : at + 1]
    return result


def profiles(dump: etdump.Etdump, table: CategoryTable, nesting: etdump.Nesting | None = None) -> list[Profile]:
    """Return one profile per method of the dump (told apart by operators), the longest in all first."""
    nesting = nesting or etdump.nest(dump)
    if len(nesting) == 0:
        raise InputError(f"{dump.path} contains no execution", "Run the model at least once with the tracer attached.")
    rows = _rows(dump, nesting)
    found = [_profile(dump, nesting, rows, members, table) for members in _alike(rows)]
    return sorted(found, key=lambda profile: -float(profile.execute.sum()))


class _Rows(msgspec.Struct, frozen=True, eq=False):
    """Events that become rows of a profile, in order, execution after execution."""

    event: npt.NDArray[np.int64]
    # Execution e has the rows `bounds[e]` up to `bounds[e + 1]`.
    bounds: npt.NDArray[np.int64]
    key: npt.NDArray[np.int64]
    own: Nanoseconds


def _rows(dump: etdump.Etdump, nesting: etdump.Nesting) -> _Rows:
    """Return every event of an execution with its own time: what it took less what its children took."""
    events = dump.events
    duration = events.duration.astype(np.float64)
    own = duration.copy()
    inside = nesting.execution >= 0
    child = inside & (nesting.call >= 0)
    own -= np.bincount(nesting.call[child], weights=duration[child], minlength=len(own))
    top = inside & (nesting.call < 0)
    top[nesting.executions] = False
    parent = nesting.executions[nesting.execution[top]]
    own -= np.bincount(parent, weights=duration[top], minlength=len(own))
    event = np.flatnonzero(inside)
    label, chain = events.label[event].astype(np.int64), events.chain[event].astype(np.int64)
    least = int(chain.min())
    chains = int(chain.max()) - least + 1
    if len(dump.strings) * chains < 1 << 31:
        label = label * chains + (chain - least)
    else:
        # Chains are numbered from 0; a file that says otherwise is damaged, and is read all the same.
        _, label = np.unique((label << 32) | chain.astype(np.uint32), return_inverse=True)
    key = (label << 32) | events.instruction[event].astype(np.uint32)
    counts = np.bincount(nesting.execution[event], minlength=len(nesting))
    return _Rows(event, np.concatenate(([0], np.cumsum(counts))), key, own[event])


def _alike(rows: _Rows) -> list[npt.NDArray[np.int64]]:
    """Return executions that ran the same operators in the same order, together: a method is nothing else in a dump."""
    counts = np.diff(rows.bounds)
    if (counts == counts[0]).all():
        keys = rows.key.reshape(len(counts), -1)
        if (keys == keys[0]).all():
            return [np.arange(len(counts))]
    bounds = enumerate(itertools.pairwise(rows.bounds.tolist()))
    signatures = by_key((rows.key[first:last].tobytes(), execution) for execution, (first, last) in bounds)
    return [np.array(members) for members in signatures.values()]


def _profile(
    dump: etdump.Etdump, nesting: etdump.Nesting, rows: _Rows, members: npt.NDArray[np.int64], table: CategoryTable
) -> Profile:
    # Only what belongs to this method is touched: looking through the whole dump for each would be quadratic.
    first = rows.bounds[members]
    chosen = first[:, None] + np.arange(rows.bounds[members[0] + 1] - first[0])
    event = rows.event[chosen]
    execute = dump.events.take(nesting.executions[members])
    operators = dump.events.take(event[0])
    columns = (operators.label, operators.delegated, operators.chain, operators.instruction)
    instances = tuple(
        _instance(dump.strings[label], delegated, chain, instruction, table)
        for label, delegated, chain, instruction in zip(*(column.tolist() for column in columns), strict=True)
    )
    starts = (dump.events.start[event] - execute.start[:, None]).view(np.int64)
    return Profile(
        instances=instances,
        times=np.ascontiguousarray(rows.own[chosen].T),
        starts=np.ascontiguousarray(starts.astype(np.float64).T),
        execute=execute.duration.astype(np.float64),
        launch=np.zeros(len(members), dtype=np.int64),
    )


def _instance(label: str, delegated: bool, chain: int, instruction: int, table: CategoryTable) -> Instance:
    if delegated:
        operator = strip_instance(label)
        kind = table.classify_operator(operator, True)
        return Instance(label, operator, "delegated", chain, instruction, kind)
    if label in _OWN_TIME or label in etdump.CALLS:
        name = _OWN_TIME.get(label, label.lower().replace("_", " "))
        return Instance(name, name, "runtime", chain, instruction, OperatorClass("Other", "overhead", "", ""))
    operator = strip_instance(label)
    return Instance(operator, operator, "portable", chain, instruction, table.classify_operator(operator, False))


# numpy's own of these two load masked arrays, which takes longer than most dumps do.
def median(rows: Nanoseconds) -> Nanoseconds:
    """Return the middle of each row."""
    ordered, size = np.sort(rows, axis=1), rows.shape[1]
    result: Nanoseconds = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
    return result


def quantile(rows: Nanoseconds, share: float) -> Nanoseconds:
    """Return what `share` of each row is below, on a straight line between neighbours, as numpy has it."""
    ordered, place = np.sort(rows, axis=1), share * (rows.shape[1] - 1)
    low, high = ordered[:, math.floor(place)], ordered[:, min(math.floor(place) + 1, rows.shape[1] - 1)]
    part = place - math.floor(place)
    # From the nearer end, so that nothing is rounded past it.
    result: Nanoseconds = low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
    return result


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
    return ", ".join(f"{part.executions} of {median(part.execute[None])[0] / 1e6:.3g} ms" for part in parts)


def _operators(profile: Profile) -> npt.NDArray[np.bool_]:
    return np.array([instance.where != "runtime" for instance in profile.instances])


def _scale(profile: Profile) -> Nanoseconds:
    """Return how many times its shortest time the middle operator of each execution took.

    The whole of an execution may be long because the system interrupted it; that is in one operator, or in few.
    """
    times = profile.times[_operators(profile) & (profile.times.max(axis=1) > _TIMED_NS)]
    if not len(times):
        return np.ones(profile.executions)
    return median((times / np.maximum(times.min(axis=1, keepdims=True), 1)).T)


def _another_size(profile: Profile, longer: npt.NDArray[np.int64], shorter: npt.NDArray[np.int64]) -> bool:
    """Return whether most operators took longer; where only a few did, something else happened to them."""
    least = _GAP_OF_ONE if min(len(longer), len(shorter)) == 1 else _GAP
    before, after = (median(profile.times[:, group]) for group in (longer, shorter))
    if before.sum() < least * after.sum():
        return False
    timed = (before > _TIMED_NS) & _operators(profile)
    grown = before[timed] > _OPERATORS_GAP * after[timed]
    return bool(grown.mean() > _MOST_OPERATORS) if len(grown) else False
