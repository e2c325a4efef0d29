"""Rows of a result: typed records in a sequence that becomes a table anywhere."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import SetupError
from model_profiling.base.visible import visible

T = TypeVar("T", bound=msgspec.Struct)
_MOST_ROWS = 20


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


class Records(Sequence[T], Generic[T]):
    """Rows that can be looked at, counted and turned into a table: `to_dicts()`, `to_pandas()`, `to_csv(path)`."""

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

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV, which any spreadsheet reads, and say where."""
        from model_profiling.report.files.tables import csv_text

        columns = self._rows[0].__struct_fields__ if self._rows else ()
        rows = ([row.get(name) for name in columns] for row in self.to_dicts())
        plain = (["; ".join(map(str, value)) if isinstance(value, list) else value for value in row] for row in rows)
        files.write_text(Path(path), csv_text(columns, plain))
        return Path(path)

    def filter(self, **fields: Any) -> "Records[T]":
        """Return the rows whose fields have these values: `run.operators.filter(category="CONV")`."""
        return Records(row for row in self if all(getattr(row, name) == value for name, value in fields.items()))

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
