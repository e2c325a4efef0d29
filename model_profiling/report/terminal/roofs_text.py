"""The roofs of a CPU for people: a table of rates, one of bandwidths, and one of all other kinds of operator."""

from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.roofs.roof_table import BestRate, kind_rows, roof_rows, series_name
from model_profiling.report import numbers
from model_profiling.report.terminal.text_table import table

_SIZES = ("to 32 KiB", "to 512 KiB", "above")


def table_lines(roofs: Roofs) -> list[str]:
    """Return the best of each kind of work, and how sure it is."""
    rates: list[tuple[str, ...]] = [("best rate (GOP/s)", "matrix product", "3x3 convolution", "depthwise", "runs")]
    moved: list[tuple[str, ...]] = [
        ("bandwidth (GB/s)", *(f"{kind} {size}" for kind in ("copy", "transpose") for size in _SIZES))
    ]
    for entry, row in zip(roofs.measurements, roof_rows(roofs), strict=True):
        name = series_name(entry, roofs.measurements)
        rates.append((name, *map(_shown, (row.matrix, row.convolution, row.depthwise)), str(row.executions)))
        moved.append((name, *map(_shown, (*row.copy, *row.transpose))))
    kinds = kind_rows(roofs)
    elements = list(dict.fromkeys(element for kind in kinds for element in kind.best))
    of_kind: list[tuple[str, ...]] = [("best of its kind", *elements, "")]
    of_kind += [(row.kind, *(_shown(row.best.get(element)) for element in elements), row.unit) for row in kinds]
    note = "  in parentheses: MAD of the executions, or half a tick of XNNPACK's clock (1 us) if that is more;"
    tables = [rates, moved, *([of_kind] if kinds else [])]
    return [
        *(line for each in tables for line in (*table(each, words=1), "")),
        note,
        "  sizes are bytes read and written",
    ]


def _shown(best: BestRate | None) -> str:
    return "-" if best is None else f"{numbers.rate(best.rate)} ({numbers.spread(best.spread_percent)})"
