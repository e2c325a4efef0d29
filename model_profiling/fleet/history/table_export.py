"""The history as a table for other programs: Parquet for DuckDB and pandas, or CSV."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_profiling.base import files
from model_profiling.base.errors import SetupError
from model_profiling.base.installation import install_command
from model_profiling.fleet.history.history_records import MeasurementRow
from model_profiling.report.files.tables import csv_text

COLUMNS = MeasurementRow.__struct_fields__
Rows = Sequence[MeasurementRow]
_NUMBERS = ("median_ms", "mad_ms", "first_result_ms", "sme2_coverage_percent")
_COUNTS = ("threads", "executions", "peak_bytes")


def as_csv(rows: Rows) -> bytes:
    """Return the rows as CSV. What is not known is empty; text that looks like a formula begins with a quote."""
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


def write(rows: Rows, path: Path, parquet: bool) -> None:
    files.write_bytes(path, as_parquet(rows) if parquet else as_csv(rows))
