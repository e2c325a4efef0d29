"""CSV: every operator of every execution, and every operator added up."""

import csv
import io
import re
from collections.abc import Iterable

import msgspec

from model_profiling.analysis.compare.comparison import ProfileComparison, instance_groups
from model_profiling.analysis.compare.operator_scaling import CurveOperators
from model_profiling.analysis.process.scaling import Scaling
from model_profiling.analysis.roofs.roofline import GroupWork, Roofline, group_work, roofs_by_row
from model_profiling.analysis.sme2.xnntrace import TracedKernel
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.analysis.timing.profile import Profile
from model_profiling.base.visible import visible

_KIND = ("operator", "category", "kind", "where", "dtype", "algorithm")
_SPENT = ("ms", "share", "median_ms", "mad_ms", "p95_ms")
KERNEL_COLUMNS = ("kernel", "purpose", "instructions", "count")
TIMELINE_COLUMNS = ("run", "index", "name", *_KIND, "chain", "instruction", "start_ms", "duration_ms")
CHANGE_COLUMNS = (
    "before", "after", "category", "kind", "where", "instruction",
    "before_ms", "after_ms", "before_share", "after_share", "ratio", "low", "high", "module", "source_line",
)  # fmt: skip
OPERATOR_COLUMNS = (*_KIND, "instances", *_SPENT)
INSTANCE_COLUMNS = ("index", "name", *_KIND, "chain", "instruction", *_SPENT)
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
    # What is the same for an operator in every execution is made once for all of them.
    described = []
    for index, x in enumerate(profile.instances):
        kind = x.kind_of
        head = (index, x.name, x.operator, x.category, kind.kind, x.where, kind.dtype, kind.algorithm)
        described.append(csv_text((), [(*head, x.chain, x.instruction)]).strip("\n"))
    chosen = list(executions)
    starts, times = ((columns[:, chosen] / 1e6).T.tolist() for columns in (profile.starts, profile.times))
    lines = [csv_text(TIMELINE_COLUMNS, ())]
    for run, began, took in zip(chosen, starts, times, strict=True):
        rows = zip(described, began, took, strict=True)
        lines += [f"{run},{text},{start:.6f},{time:.6f}\n" for text, start, time in rows]
    return "".join(lines)


def operators_csv(breakdown: Breakdown, roofline: Roofline | None = None) -> str:
    """Return one line per operator, all its places in the graph together with their work, costliest first."""
    roofs, columns = roofs_by_row(roofline), (*OPERATOR_COLUMNS, *WORK_COLUMNS)
    groups = instance_groups(breakdown)
    rows = (_row(columns, o, o.spread, group_work(breakdown, places, roofs)) for o, places in groups)
    return csv_text(columns, rows)


def instances_csv(breakdown: Breakdown, roofline: Roofline | None = None) -> str:
    """Return one line per place in the graph, in order: its time, its work, and how near to its roof it is."""
    roofs, columns = roofs_by_row(roofline), (*INSTANCE_COLUMNS, *WORK_COLUMNS, "module", "source_line")
    rows = (
        _row(columns, x, x.spread, work, index=index, module=x.module, source_line=x.source_line)
        for index, x in enumerate(breakdown.instances)
        for work in [group_work(breakdown, [index], roofs)]
    )
    return csv_text(columns, rows)


def changes_csv(comparison: ProfileComparison) -> str:
    """Return one line per operator of two profiles: before, after, ratio and interval."""
    return csv_text(CHANGE_COLUMNS, (_row(CHANGE_COLUMNS, x, x.change) for x in comparison.operators))


def threads_csv(scaling: Scaling) -> str:
    """Return one line per number of threads of each side; speedups are against the fewest."""
    rows = (
        _row(THREAD_COLUMNS, p, switched_off=" ".join(curve.disabled), best=int(p.threads == curve.best))
        for curve in scaling.curves
        for p in curve.points
    )
    return csv_text(THREAD_COLUMNS, rows)


def operator_threads_csv(curves: Iterable[CurveOperators]) -> str:
    """Return one line per operator and number of threads; the speedup is that of `many` threads against the fewest."""
    rows = (
        _row(OPERATOR_THREAD_COLUMNS, o, experiment=experiment, threads=threads, ms=ms, many=curve.many)
        for curve in curves
        for o in curve.operators
        for experiment, threads, ms in zip(curve.experiments, curve.threads, o.ms, strict=True)
    )
    return csv_text(OPERATOR_THREAD_COLUMNS, rows)


def kernels_csv(kernels: Iterable[TracedKernel]) -> str:
    """Return one line per kernel of a trace log."""
    return csv_text(KERNEL_COLUMNS, (_row(KERNEL_COLUMNS, kernel) for kernel in kernels))


def _row(columns: Iterable[str], *sources: msgspec.Struct, **given: object) -> list[object]:
    """Return each column as `given`, or as the first source that has it: six digits of a fraction, '' of an unknown."""
    fields = dict(given)
    for source in sources:
        fields = msgspec.structs.asdict(source) | fields
    values = [fields[name] for name in columns]
    return ["" if value is None else f"{value:.6f}" if isinstance(value, float) else value for value in values]


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
