"""What history answers with, of single runs and of all models; needs nothing heavy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import SetupError
from model_profiling.base.installation import install_command
from model_profiling.store.labels import Revision


class HistoryRun(msgspec.Struct, frozen=True):
    """One run. `problem` says why it cannot be read; then the rest is empty. `median_ms` is by experiment, without
    those that have no latency."""

    path: str
    kind: Literal["latest", "earlier"]
    created: str
    label: str
    model: str
    dtype: str
    variant: str
    platform: str
    device: str
    timing: str
    status: str
    revision: Revision
    labels: dict[str, str]
    kit_version: str
    sha256: str
    median_ms: dict[str, float]
    problem: str = ""
    # Versions of ExecuTorch that ran it, those that are known.
    executorch: list[str] = []


class Point(msgspec.Struct, frozen=True):
    """One run in a series. `report` is the page of the run, '' if there is none; `spread_ms` is the median absolute
    deviation of its executions."""

    created: str
    median_ms: float
    spread_ms: float
    executions: int
    label: str
    revision: Revision
    labels: dict[str, str]
    kit_version: str
    sha256: str
    path: str
    report: str = ""
    # The version of ExecuTorch that ran it; '' if it is not known.
    executorch: str = ""


class MeasurementRow(msgspec.Struct, frozen=True):
    """One experiment of one run, flat: a row of what `history export` writes. `labels` are JSON; None is not known."""

    created: str
    model: str
    dtype: str
    variant: str
    platform: str
    device: str
    experiment: str
    threads: int
    features_off: str
    phase: str
    timing: str
    latency_source: str
    median_ms: float | None
    mad_ms: float | None
    executions: int | None
    first_result_ms: float | None
    peak_bytes: int | None
    sme2_coverage_percent: float | None
    commit: str
    branch: str
    dirty: bool | None
    label: str
    labels: str
    kit_version: str
    status: str
    model_sha256: str
    path: str
    executorch: str = ""


class TopOperator(msgspec.Struct, frozen=True):
    """An operator over the latest run of every model: its time in all of them, and in which it takes most."""

    operator: str
    category: str
    ms: float
    share: float
    models: int
    most_in: str
    most_ms: float


class ModelCoverage(msgspec.Struct, frozen=True):
    """How much of a model's CONV and GEMM work runs on SME2 in the latest run that tells; `percent` is None where none
    does, and `unknown` says why."""

    model: str
    dtype: str
    variant: str
    percent: float | None
    experiment: str
    unknown: str
    path: str


COLUMNS = MeasurementRow.__struct_fields__
Rows = Sequence[MeasurementRow]
_NUMBERS = ("median_ms", "mad_ms", "first_result_ms", "sme2_coverage_percent")
_COUNTS = ("threads", "executions", "peak_bytes")


def as_csv(rows: Rows) -> bytes:
    """Return the rows as CSV. What is not known is empty; text that looks like a formula begins with a quote."""
    from model_profiling.report.files.tables import csv_text

    return files.text_bytes(csv_text(COLUMNS, ([getattr(row, name) for name in COLUMNS] for row in rows)))


def as_parquet(rows: Rows) -> bytes:
    """Return the same with types; `created` is a timestamp."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise SetupError(
            "Parquet needs the Python package pyarrow", f"Run `{install_command('history')}`, or use --csv."
        ) from None
    arrays: dict[str, Any] = {}
    for name in COLUMNS:
        values = [getattr(row, name) for row in rows]
        if name in _NUMBERS:
            arrays[name] = pyarrow.array(values, pyarrow.float64())
        elif name in _COUNTS:
            arrays[name] = pyarrow.array(values, pyarrow.int64())
        elif name == "dirty":
            arrays[name] = pyarrow.array(values, pyarrow.bool_())
        else:
            texts = [None if value is None else str(value).encode("utf-8", "replace").decode() for value in values]
            arrays[name] = pyarrow.array(texts, pyarrow.string())
    arrays["created"] = arrays["created"].cast(pyarrow.timestamp("us", tz="UTC"))
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(arrays), sink)
    return bytes(sink.getvalue())


def write_rows(rows: Rows, path: Path, parquet: bool) -> None:
    files.write_bytes(path, as_parquet(rows) if parquet else as_csv(rows))
