"""CSV: every operator of every execution, and every operator added up."""

import csv
import io
import re
from collections.abc import Iterable

import msgspec

from model_profiling.analysis.compare.comparison import Change, ProfileComparison
from model_profiling.analysis.compare.grouping import instance_groups
from model_profiling.analysis.compare.operator_scaling import CurveOperators
from model_profiling.analysis.process.scaling import Scaling
from model_profiling.analysis.roofs.group_work import GroupWork, group_work, roofs_by_row
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.sme2.xnntrace import TracedKernel
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime, OperatorTime
from model_profiling.analysis.timing.profile import Instance, Profile
from model_profiling.base.visible import visible

KERNEL_COLUMNS = ("kernel", "purpose", "instructions", "count")
TIMELINE_COLUMNS = (
    "run", "index", "name", "operator", "category", "kind", "where", "dtype", "algorithm",
    "chain", "instruction", "start_ms", "duration_ms",
)  # fmt: skip
CHANGE_COLUMNS = (
    "before", "after", "category", "kind", "where", "instruction",
    "before_ms", "after_ms", "before_share", "after_share", "ratio", "low", "high",
)  # fmt: skip
OPERATOR_COLUMNS = (
    "operator", "category", "kind", "where", "dtype", "algorithm", "instances",
    "ms", "share", "median_ms", "mad_ms", "p95_ms",
)  # fmt: skip
INSTANCE_COLUMNS = (
    "index", "name", "operator", "category", "kind", "where", "dtype", "algorithm", "chain", "instruction",
    "ms", "share", "median_ms", "mad_ms", "p95_ms",
)  # fmt: skip
WORK_COLUMNS = GroupWork.__struct_fields__
THREAD_COLUMNS = (
    "experiment", "switched_off", "threads", "median_ms", "speedup", "low", "high", "verdict", "efficiency", "best",
)  # fmt: skip
OPERATOR_THREAD_COLUMNS = (
    "experiment", "operator", "category", "where", "instances", "threads", "ms", "many", "speedup", "low", "high",
    "scales",
)  # fmt: skip


def timeline_csv(profile: Profile, executions: Iterable[int]) -> str:
    """Return one line per operator and execution; a runtime line is what ExecuTorch took for itself there."""
    described = [_described(index, instance) for index, instance in enumerate(profile.instances)]
    chosen = list(executions)
    starts, times = ((columns[:, chosen] / 1e6).T.tolist() for columns in (profile.starts, profile.times))
    lines = [csv_text(TIMELINE_COLUMNS, ())]
    for run, began, took in zip(chosen, starts, times, strict=True):
        rows = zip(described, began, took, strict=True)
        lines += [f"{run},{text},{start:.6f},{time:.6f}\n" for text, start, time in rows]
    return "".join(lines)


def _described(index: int, instance: Instance) -> str:
    """Return what is the same for an operator in every execution, as CSV: made once for all of them."""
    kind = instance.kind_of
    head = (index, instance.name, instance.operator, instance.category, kind.kind, instance.where)
    return csv_text((), [(*head, kind.dtype, kind.algorithm, instance.chain, instance.instruction)]).strip("\n")


def operators_csv(breakdown: Breakdown, roofline: Roofline | None = None) -> str:
    """Return one line per operator, all its places in the graph together with their work, costliest first."""
    roofs = roofs_by_row(roofline)
    rows = (
        (
            *(o.operator, o.category, o.kind, o.where, o.dtype, o.algorithm, o.instances, *map(_number, _values(o))),
            *_work(group_work(breakdown, places, roofs)),
        )
        for o, places in instance_groups(breakdown)
    )
    return csv_text((*OPERATOR_COLUMNS, *WORK_COLUMNS), rows)


def instances_csv(breakdown: Breakdown, roofline: Roofline | None = None) -> str:
    """Return one line per place in the graph, in order: its time, its work, and how near to its roof it is."""
    roofs = roofs_by_row(roofline)
    rows = (
        (
            *(row, x.name, x.operator, x.category, x.kind, x.where, x.dtype, x.algorithm, x.chain, x.instruction),
            *(*map(_number, _values(x)), *_work(group_work(breakdown, [row], roofs))),
        )
        for row, x in enumerate(breakdown.instances)
    )
    return csv_text((*INSTANCE_COLUMNS, *WORK_COLUMNS), rows)


def _work(work: GroupWork) -> list[object]:
    """Return whole numbers as they are, others with six digits, nothing for what is not known."""
    return [_maybe(value) if isinstance(value, float | None) else value for value in msgspec.structs.astuple(work)]


def _values(entry: OperatorTime | InstanceTime) -> tuple[float, ...]:
    return entry.ms, entry.share, entry.spread.median_ms, entry.spread.mad_ms, entry.spread.p95_ms


def _number(value: float) -> str:
    return f"{value:.6f}"


def changes_csv(comparison: ProfileComparison) -> str:
    """Return one line per operator of two profiles: before, after, ratio and interval."""
    rows = (
        (x.before, x.after, x.category, x.kind, x.where, x.instruction, *map(_maybe, _change_values(x.change)))
        for x in comparison.operators
    )
    return csv_text(CHANGE_COLUMNS, rows)


def threads_csv(scaling: Scaling) -> str:
    """Return one line per number of threads of each side; speedups are against the fewest."""
    rows = (
        (
            *(p.experiment, " ".join(curve.disabled), p.threads, _number(p.median_ms), _number(p.speedup)),
            *(_maybe(p.low), _maybe(p.high), p.verdict, _number(p.efficiency), int(p.threads == curve.best)),
        )
        for curve in scaling.curves
        for p in curve.points
    )
    return csv_text(THREAD_COLUMNS, rows)


def operator_threads_csv(curves: Iterable[CurveOperators]) -> str:
    """Return one line per operator and number of threads; the speedup is that of `many` threads against the fewest."""
    rows = (
        (
            *(experiment, o.operator, o.category, o.where, o.instances, threads, _maybe(ms), curve.many),
            *(*map(_maybe, (o.speedup, o.low, o.high)), o.scales),
        )
        for curve in curves
        for o in curve.operators
        for experiment, threads, ms in zip(curve.experiments, curve.threads, o.ms, strict=True)
    )
    return csv_text(OPERATOR_THREAD_COLUMNS, rows)


def kernels_csv(kernels: Iterable[TracedKernel]) -> str:
    """Return one line per kernel of a trace log."""
    return csv_text(KERNEL_COLUMNS, ((k.kernel, k.purpose, k.instructions, k.count) for k in kernels))


def _change_values(change: Change) -> tuple[float | None, ...]:
    shares = (change.before_ms, change.after_ms, change.before_share, change.after_share)
    return (*shares, change.ratio, change.low, change.high)


def _maybe(value: float | None) -> str:
    return "" if value is None else _number(value)


# What a spreadsheet takes for the beginning of a formula; a negative number is none.
_FORMULA = ("=", "+", "-", "@", "|", "%")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?")


def csv_text(columns: tuple[str, ...], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV. What a spreadsheet would take for a formula is made plain text: names are not ours."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if columns:
        writer.writerow(columns)
    writer.writerows([_plain(cell) for cell in row] for row in rows)
    return buffer.getvalue()


def _plain(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    # A control character could end a cell, or hide what its text begins with.
    text = visible(cell)
    return "'" + text if text.lstrip()[:1] in _FORMULA and not _NUMBER.fullmatch(text) else text
