"""Where the time goes: by category, by operator and by place in the graph, adding up to the whole."""

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.timing.categories import CATEGORIES
from model_profiling.analysis.timing.profile import AT_ONCE, RUNTIME, Instance, Part, Profile, Where, median, quantile
from model_profiling.analysis.timing.work import Work
from model_profiling.base.records import by_key
from model_profiling.base.units import shown_ms

# Operators add up to what an execution takes, but for this part of it and this many milliseconds: some of it is outside
# of Method::execute.
_MOST_OFF, _MOST_OFF_MS = 0.1, 0.02
# An operator's undisturbed time is known while it is disturbed in fewer executions than this.
_MOST_PREEMPTED = 0.4


class Spread(msgspec.Struct, frozen=True):
    """Over all executions: median, MAD and p95."""

    median_ms: float
    mad_ms: float
    p95_ms: float


class CategoryTime(msgspec.Struct, frozen=True):
    """A category's time in a typical execution. `Runtime` is what ExecuTorch itself took around the operators."""

    category: Part
    ms: float
    share: float
    instances: int


class SourceLine(msgspec.Struct, frozen=True):
    """Where in PyTorch an operator or delegate call comes from, as far as the ETRecord tells.

    `origin` is the operator the model itself calls there, of which `op` may be a part. Parts of one call have the same
    `debug_handle`, 0 if it is not known.
    """

    module: str
    file: str
    line: int
    code: str
    op: str
    origin: str = ""
    debug_handle: int = 0


def file_line(file: str, line: int) -> str:
    """Return `file:line` with what tells the file: of a package all of it, else the last two parts of the path."""
    _, packages, inside = file.rpartition("/site-packages/")
    return f"{inside if packages else '/'.join(Path(file).parts[-2:])}:{line}" if file else ""


class InstanceTime(msgspec.Struct, frozen=True):
    """One operator at one place of the graph. `work` is None where the .pte does not tell it."""

    name: str
    operator: str
    category: Part
    kind: str
    where: Where
    dtype: str
    algorithm: str
    chain: int
    instruction: int
    ms: float
    share: float
    spread: Spread
    source: SourceLine | None = None
    work: Work | None = None
    # The standard error of `ms`, over launches where there are several.
    error_ms: float = 0.0

    @property
    def _own_source(self) -> SourceLine | None:
        """ExecuTorch's own time belongs to no line, though a delegate call has the first one that it took over."""
        return None if self.where == "runtime" else self.source

    @property
    def module(self) -> str:
        return self._own_source.module if self._own_source is not None else ""

    @property
    def source_line(self) -> str:
        """`file:line`, '' if it is not known."""
        return file_line(self._own_source.file, self._own_source.line) if self._own_source is not None else ""


class OperatorTime(msgspec.Struct, frozen=True):
    """All instances of one operator together."""

    operator: str
    category: Part
    kind: str
    where: Where
    dtype: str
    algorithm: str
    instances: int
    ms: float
    share: float
    spread: Spread


class Breakdown(msgspec.Struct, frozen=True):
    """One experiment's time. `ms` anywhere is the mean of undisturbed times over the same typical executions, so that
    parts sum to `execute_ms`.

    `unreliable` says why it cannot be relied on; '' where it can.
    """

    executions: int
    execute_ms: float
    categories: list[CategoryTime]
    shares_by_where: dict[str, float]
    operators: list[OperatorTime]
    instances: list[InstanceTime]
    unreliable: str = ""
    # In what steps operators of delegates were timed.
    clock_ns: float = 1000.0

    @property
    def ms_by_category(self) -> dict[str, float]:
        return {entry.category: entry.ms for entry in self.categories}

    def category(self, name: str) -> CategoryTime:
        return next(entry for entry in self.categories if entry.category == name)

    @property
    def dominant(self) -> CategoryTime:
        """The category that takes most of the time."""
        return max(self.categories, key=lambda entry: entry.ms)


def break_down(
    profile: Profile,
    sources: dict[int, SourceLine] | None = None,
    works: dict[int, Work] | None = None,
    expected_ms: float | None = None,
    preempted: float = 0.0,
) -> Breakdown:
    """Add a profile up; `sources` has the PyTorch line of operators and `works` their work, by their row.

    `expected_ms` is what an execution takes as executions without a tracer tell it, None if they do not; `preempted` is
    the share of these executions that other processes interrupted.
    """
    times = profile.typical / 1e6
    whole = float(times.sum())
    instances = profile.instances
    by_category: dict[Part, list[float]] = {name: [] for name in (*CATEGORIES, RUNTIME)}
    by_where: dict[str, list[float]] = {"delegated": [], "portable": [], "runtime": []}
    for instance, ms in zip(instances, times.tolist(), strict=True):
        by_category[instance.category].append(ms)
        by_where[instance.where].append(ms)
    spreads, errors = _spreads(profile.times), _errors(profile)
    return Breakdown(
        executions=profile.executions,
        execute_ms=whole,
        categories=[
            CategoryTime(name, sum(members), sum(members) / (whole or 1.0), len(members))
            for name, members in by_category.items()
        ],
        shares_by_where={place: sum(members) / (whole or 1.0) for place, members in by_where.items()},
        operators=_operators(profile, times, whole, spreads),
        instances=[
            InstanceTime(
                instance.name,
                *_labels(instance),
                *(instance.chain, instance.instruction, ms, ms / (whole or 1.0), spread),
                source=(sources or {}).get(row),
                work=(works or {}).get(row),
                error_ms=error,
            )
            for row, (instance, ms, spread, error) in enumerate(
                zip(instances, times.tolist(), spreads, errors, strict=True)
            )
        ],
        unreliable=_unreliable(whole, expected_ms, preempted),
        clock_ns=profile.clock_ns,
    )


def _unreliable(whole: float, expected_ms: float | None, preempted: float) -> str:
    """Return why the times of operators cannot be relied on; '' where nothing speaks against them."""
    if expected_ms is not None and abs(whole - expected_ms) > _MOST_OFF * expected_ms + _MOST_OFF_MS:
        return (
            f"the operators add up to {shown_ms(whole)}, but an execution takes {shown_ms(expected_ms)} with the tracer"
        )
    if preempted > _MOST_PREEMPTED:
        return f"other processes preempted {preempted:.0%} of the traced executions"
    return ""


def _operators(
    profile: Profile, times: npt.NDArray[np.float64], whole: float, spreads: list[Spread]
) -> list[OperatorTime]:
    rows = by_key(((instance.operator, instance.where), row) for row, instance in enumerate(profile.instances))
    # The spreads of all sums at once; one by one they would take longer than all else where names are many.
    several = [members for members in rows.values() if len(members) > 1]
    sums = np.array([profile.times[members].sum(axis=0) for members in several]).reshape(
        len(several), profile.executions
    )
    spread_of = {members[0]: spread for members, spread in zip(several, _spreads(sums), strict=True)}
    ms, found = times.tolist(), []
    for members in rows.values():
        first, total = profile.instances[members[0]], sum(ms[row] for row in members)
        spread = spread_of.get(members[0], spreads[members[0]])
        found.append(OperatorTime(*_labels(first), len(members), total, total / (whole or 1.0), spread))
    return sorted(found, key=lambda entry: -entry.ms)


def _labels(instance: Instance) -> tuple[str, Part, str, Where, str, str]:
    """Return what an operator is called and classed as, in the order of InstanceTime and OperatorTime."""
    kind = instance.kind_of
    return instance.operator, instance.category, kind.kind, instance.where, kind.dtype, kind.algorithm


def _errors(profile: Profile) -> list[float]:
    """Return the standard error of each operator's time in milliseconds; one execution tells none."""
    columns = profile.launch_times if len(profile.launches) > 1 else profile.steady
    count = columns.shape[1]
    found = columns.std(axis=1, ddof=1) / count**0.5 if count > 1 else np.zeros(len(columns))
    return [ns / 1e6 for ns in found.tolist()]


def _spreads(ns: npt.NDArray[np.float64]) -> list[Spread]:
    """Return the spread of each row, some rows at a time: a dump may hold ten million of these numbers."""
    found: list[Spread] = []
    step = max(1, AT_ONCE // max(1, ns.shape[1]))
    for start in range(0, len(ns), step):
        ms = ns[start : start + step] / 1e6
        middle = median(ms)
        mad = median(np.abs(ms - middle[:, None]))
        found += map(Spread, middle.tolist(), mad.tolist(), quantile(ms, 0.95).tolist())
    return found
