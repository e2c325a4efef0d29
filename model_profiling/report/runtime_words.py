"""Several runtimes side by side, in words: the terminal and the page say the same of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from model_profiling.analysis.compare.slower_lines import slower_lines
from model_profiling.base.units import counted
from model_profiling.report import change_words, numbers
from model_profiling.runtimes.runtime_table import EXECUTORCH

if TYPE_CHECKING:
    from model_profiling.analysis.compare.program_changes import ProgramChanges
    from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
    from model_profiling.analysis.compare.slower_lines import SlowerLine

UNKNOWN = "unknown"
COLUMNS = ("runtime", "median (95 % interval)", "times as fast", "start-up", "peak memory", "outputs")
_MOST_FINDINGS = 8


class RuntimeCells(NamedTuple):
    """A runtime that was measured, as COLUMNS have it."""

    label: str
    median: str
    times: str
    startup: str
    memory: str
    outputs: str


def baseline(found: RuntimeComparison) -> RuntimeRow | None:
    """Return the row that the others are compared with."""
    return next((row for row in found.rows if row.name == found.baseline), None)


def measured(found: RuntimeComparison) -> list[RuntimeRow]:
    return [row for row in found.rows if row.latency is not None]


def subject(found: RuntimeComparison) -> str:
    """Return `toy_cnn, fp32, 1 thread`; of a file of another tool nobody says the dtype."""
    dtype = [found.dtype] if found.dtype != UNKNOWN else []
    return ", ".join([found.model, *dtype, counted(found.threads, "thread")])


def order(found: RuntimeComparison) -> str:
    """Return `fastest first, against ExecuTorch 1.5.0`."""
    base = baseline(found)
    return "fastest first" + (f", against {base.label}" if base is not None else "")


def cells(row: RuntimeRow, base: str) -> RuntimeCells:
    """Return what is said of a runtime that was measured; `base` is the name of the baseline."""
    assert row.latency is not None
    start = row.startup
    return RuntimeCells(
        row.label,
        numbers.bounded_ms(row.latency.median_ms, row.latency.low_ms, row.latency.high_ms),
        "1" if row.name == base else _times(row),
        numbers.ms(start.median_ms) if start is not None else UNKNOWN,
        numbers.mebibytes(row.peak_bytes) if row.peak_bytes is not None else UNKNOWN,
        _outputs(row),
    )


def _times(row: RuntimeRow) -> str:
    """Return `1.42x (1.40 to 1.44)`, `~` where no difference is seen, or why there is no such number."""
    found = row.comparison
    if found is None:
        return "not ranked"
    if found.high is None:
        return "too few runs"
    if found.verdict == "no difference seen":
        return f"~ ({numbers.interval(found.low, found.high)})"
    return numbers.bounded_speedup(found.ratio, found.low, found.high)


def _outputs(row: RuntimeRow) -> str:
    if row.outputs is None:
        return "the reference" if row.ranked else "not compared"
    if row.outputs.verdict == "agrees":
        return "agree"
    return f"differ by {row.outputs.error_of_reference}"


def not_measured(row: RuntimeRow) -> str:
    return f"{row.label}: not measured: {row.reason}"


def notes(found: RuntimeComparison) -> list[str]:
    """Return what has to be read with the numbers."""
    said = [f"{row.label}: {note}" for row in measured(found) for note in row.notes]
    return [*said, *([f"outputs are held against {found.reference}"] if found.reference else [])]


def settings(row: RuntimeRow) -> str:
    return "; ".join(f"{name}: {value}" for name, value in row.settings.items())


def no_line(changes: ProgramChanges) -> str:
    return f"{changes.before} and {changes.after}: no line differs by more than noise, or it is not known"


def findings(found: RuntimeComparison) -> list[str]:
    """Return the lines of the model that ExecuTorch does more slowly than another runtime, a sentence each."""
    base = baseline(found)
    if base is None or base.runtime != EXECUTORCH:
        return []
    said = []
    for row in found.rows:
        if row.changes is None or row.comparison is None or not row.comparison.reliable:
            continue
        lines, sides = slower_lines(row.changes), (row.changes.before, row.changes.after)
        said += [_finding(line, sides) for line in lines[:_MOST_FINDINGS]]
        if left := len(lines) - _MOST_FINDINGS:
            said += [f"{sides[0]} takes longer than {sides[1]} at {counted(left, 'more line')}"] if left > 0 else []
    return said


def _finding(line: SlowerLine, sides: tuple[str, str]) -> str:
    first, modules = line.parts[0], {part.module for part in line.parts}
    did = next((aspect for aspect in first.aspects if aspect.what == "operators"), None)
    both = did is not None and did.before and did.after
    what = f" for `{did.before}` (`{did.after}` there)" if did is not None and both else ""
    where = f"in {len(modules)} modules" if len(modules) > 1 else f"in `{first.module}`" if first.module else ""
    times = f"{_number(line.ratio)} times as long as {sides[1]}"
    ms = f"{numbers.ms(line.before_ms)} against {numbers.ms(line.after_ms)}, profiled"
    ms += f"; at least {_number(line.least)} times"
    place = " ".join(filter(None, [f"at {first.source_line}", where]))
    end = "" if both else f": {change_words.in_both(first, sides)}"
    return f"{sides[0]} takes {times}{what} {place} ({ms}){end}"


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
