"""Rows of a result: typed records in a sequence that becomes a table anywhere."""

import html
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec

from model_profiling.analysis.compare.program_changes import ModuleChange, PartChange, ProgramChanges
from model_profiling.analysis.process.scaling import ThreadPoint
from model_profiling.base.errors import SetupError
from model_profiling.base.visible import visible

T = TypeVar("T", bound=msgspec.Struct)
# What a row leaves open where no time was measured.
_TIMES = ("ms", "share", "median_ms", "mad_ms", "p95_ms")
_MOST_ROWS = 20


class OperatorRow(msgspec.Struct, frozen=True):
    """One operator of one experiment, all its places in the graph together. Times are None where none were measured.

    The work is that of all places: `m`, `n`, `k` and `count` of the matrix product where they are the same everywhere,
    sums of bytes and multiply-accumulates, `intensity` in operations per byte, `rate` in `rate_unit`. `of_roof` is the
    part of the best rate of its CPU that it reaches, as `sme2_kit.roofs` measured that. None is not known.
    """

    experiment: str
    operator: str
    category: str
    kind: str
    where: str
    dtype: str
    algorithm: str
    instances: int
    ms: float | None
    share: float | None
    median_ms: float | None
    mad_ms: float | None
    p95_ms: float | None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    count: int | None = None
    multiply_accumulates: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    weight_bytes: int | None = None
    intensity: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    of_roof: float | None = None
    headroom_ms: float | None = None


class CategoryRow(msgspec.Struct, frozen=True):
    """One category of one experiment. Times are None where none were measured."""

    experiment: str
    category: str
    ms: float | None
    share: float | None
    instances: int


class ModuleRow(msgspec.Struct, frozen=True):
    """A part of the model in one experiment: the model, a module, a line of PyTorch, or the operators of one name in a
    line. `depth` is how deep it lies in the tree; what has no line says `why`. A part's time is the sum of those of
    the parts one deeper below it. Times are None where none were measured."""

    experiment: str
    depth: int
    kind: str
    name: str
    module: str
    file: str
    line: int
    code: str
    category: str
    operators: int
    ms: float | None
    share: float | None
    why: str


class LatencyRow(msgspec.Struct, frozen=True):
    """The latency of one experiment; None where it has none, and `status` and `warnings` say why."""

    experiment: str
    status: str
    source: str
    runs: int | None = None
    launches: int | None = None
    median_ms: float | None = None
    mad_ms: float | None = None
    mean_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    cv_percent: float | None = None
    outliers: int | None = None
    warnings: list[str] = []


class StartupRow(msgspec.Struct, frozen=True):
    """How one experiment starts: medians over launches in milliseconds, each part with its 95 % interval (`low_ms`,
    `high_ms`; None where launches are too few). `part` is process, program, method, inputs, first_inference,
    first_result or ending; `page_cache` is warm, cold, partly warm or not known."""

    experiment: str
    part: str
    median_ms: float
    low_ms: float | None
    high_ms: float | None
    launches: int
    page_cache: str


class MemoryRow(msgspec.Struct, frozen=True):
    """What the processes of one experiment hold in memory, in bytes; None where it is not known, and `unknown` says
    why. `planned_bytes` and `constant_bytes` are what the .pte says by itself."""

    experiment: str
    unknown: str
    workspace: str
    weight_cache: str
    planned_bytes: int | None
    constant_bytes: int | None
    processes: int | None = None
    peak_bytes: int | None = None
    peak_source: str = ""
    before_load_bytes: int | None = None
    after_load_bytes: int | None = None
    after_first_bytes: int | None = None
    after_last_bytes: int | None = None
    load_bytes: int | None = None
    packing_bytes: int | None = None
    first_inference_bytes: int | None = None
    executions: int | None = None
    growth_bytes: int | None = None
    growth_per_execution_bytes: float | None = None
    leak: bool | None = None


class ThreadRow(ThreadPoint, frozen=True, kw_only=True):
    """One number of threads of a run that measured several.

    `speedup` is how many times faster it is than the fewest threads of the same experiment, `efficiency` that for each
    thread that was added, `best` whether it is the fewest threads that no other number is faster than. `on_off` is how
    many times faster it is than the experiment with features off. `low` and `high` bound a ratio; None is not known.
    """

    disabled: list[str]
    best: bool
    on_off: float | None = None
    on_off_low: float | None = None
    on_off_high: float | None = None


class OperatorThreadRow(msgspec.Struct, frozen=True):
    """One operator with one number of threads. `speedup` is that of `many` threads, the most for which there are CPUs,
    against the fewest; `scales` says whether more threads make it faster."""

    experiment: str
    operator: str
    category: str
    where: str
    instances: int
    threads: int
    ms: float | None
    many: int
    speedup: float | None
    low: float | None
    high: float | None
    lost_ms: float
    scales: str


class AdviceRow(msgspec.Struct, frozen=True):
    """Something worth doing for one experiment. `gain` is the predicted speedup of the whole, None where only measuring
    it tells; a finding about start-up or memory gains none, and `measured` says what it costs."""

    experiment: str
    rule: str
    title: str
    gain: float | None
    ms: float
    share: float
    saved_ms: float
    next_step: str
    evidence: list[str]
    rewrite: str
    measured: str = ""


class KernelRow(msgspec.Struct, frozen=True):
    """One CONV or GEMM operator of an experiment with a kernel trace; `why_not` says why it does not run on SME2."""

    experiment: str
    operator: str
    category: str
    instruction: int
    level: str
    kernels: list[str]
    multiply_accumulates: int | None
    shape: str
    why_not: str
    module: str = ""
    source_line: str = ""


class RunSpeedup(msgspec.Struct, frozen=True):
    """How many times faster the accelerated experiment of a run is (`after` against `before`), with its 95 % interval.

    What is not known is None, and `verdict` is then "unknown". `reliable` says whether one may act on it, `note` what
    to know of it: why it is not known, or what disturbed it. As text it is the verdict that a terminal shows.
    """

    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    reliable: bool
    note: str
    before: str = ""
    after: str = ""
    shown: str = "unknown"

    def __str__(self) -> str:
        return f"{self.shown} ({self.note})"


def row_of(type_: type[T], *sources: msgspec.Struct | None, timed: bool = True, **given: Any) -> T:
    """Return a row whose fields are `given`, or those of the same name of the first source that has one."""
    for source in sources:
        known = source.__struct_fields__ if source is not None else ()
        names = [name for name in type_.__struct_fields__ if name in known and name not in given]
        given |= {name: getattr(source, name) for name in names}
    return type_(**given if timed else given | {name: None for name in _TIMES if name in given})


class Records(Sequence[T], Generic[T]):
    """Rows that can be looked at, counted and turned into a table: `to_dicts()`, `to_pandas()`."""

    def __init__(self, rows: Iterable[T]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Records[T]": ...
    def __getitem__(self, index: int | slice) -> "T | Records[T]":
        return Records(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash((type(self), len(self._rows)))  # rows hold lists, which have no hash

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as plain data: what JSON can hold."""
        return [msgspec.to_builtins(row) for row in self._rows]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas.DataFrame, which needs pandas to be installed."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ModuleNotFoundError as error:
            raise SetupError(f"a DataFrame needs {error.name}, which is not installed", "pip install pandas") from None
        rows = self.to_dicts()
        columns = list(self._rows[0].__struct_fields__) if self._rows else None
        return pandas.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        kind = type(self._rows[0]).__name__ if self._rows else "row"
        return f"<{len(self)} x {kind}>"

    def _repr_html_(self) -> str:
        if not self._rows:
            return "<p>no rows</p>"
        rows = self.to_dicts()
        columns = list(rows[0])
        table = html_table(columns, [[_cell(row.get(name)) for name in columns] for row in rows[:_MOST_ROWS]])
        rest = len(rows) - _MOST_ROWS
        return table + (f"<p>and {rest} more rows</p>" if rest > 0 else "")


class Changes(Records[ProgramChanges]):
    """What the difference of each compared pair consists of; `parts`, `modules` and `told` are those of all pairs."""

    @property
    def parts(self) -> Records[PartChange]:
        """Every line or operator, the largest difference of a pair first; those of a pair add up to its whole."""
        return Records(part for each in self for part in each.parts)

    @property
    def modules(self) -> Records[ModuleChange]:
        """The same by module."""
        return Records(module for each in self for module in each.modules)

    @property
    def told(self) -> Records[PartChange]:
        """Parts whose difference can be told from noise."""
        return Records(part for each in self for part in each.told)


def escaped(text: str) -> str:
    """Return text for a page: what is markup is shown, and so is what cannot be seen."""
    return html.escape(visible(text))


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a plain table; names in it come from files and are not trusted."""
    head = "".join(f"<th>{escaped(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "; ".join(str(item) for item in value) if isinstance(value, list) else str(value)
