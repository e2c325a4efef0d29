"""Several runtimes side by side, for the terminal."""

from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
from model_profiling.base.units import shown_mib, shown_ms
from model_profiling.report import change_words, numbers, words
from model_profiling.report.terminal.style import wrapped
from model_profiling.report.terminal.text_table import table

_UNKNOWN = "unknown"
_MOST_LINES = 6


def as_lines(found: RuntimeComparison) -> list[str]:
    """Return the table, then what has to be read with it."""
    base = next((row.label for row in found.rows if row.name == found.baseline), "")
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    head = ("runtime", "median (95 % interval)", "times as fast", "start-up", "peak memory", "outputs")
    measured = [row for row in found.rows if row.latency is not None]
    lines = [f"{found.model}, {found.dtype}, {threads}; fastest first" + (f", against {base}" if base else ""), ""]
    lines += table([head, *(_row(row, found.baseline) for row in measured)], words=1, left={5}, optional=(4,))
    for row in found.rows:
        lines += [f"  {row.label}: not measured: {row.reason}", f"    {row.hint}"] if row.reason else []
    lines += [f"  {row.label}: {note}" for row in measured for note in row.notes]
    lines += [f"  outputs are held against {found.reference}"] if found.reference else []
    said = {_settings(row): row for row in reversed(measured) if row.settings}
    lines += [f"  {row.label}: {settings}" for settings, row in reversed(said.items())]
    compared = [row.comparison for row in measured if row.comparison is not None]
    busy = words.busy_sentence(compared)
    lines += [line for row in measured for line in _by_line(row)]
    return lines + ([f"  warning: {busy}"] if busy else []) + [f"  {caveat}" for caveat in found.caveats]


def _by_line(row: RuntimeRow) -> list[str]:
    """Return the lines that a runtime does in other time than the baseline, adding up to the whole."""
    changes = row.changes
    if changes is None:
        return []
    notes = [f"  {wrapped(note)}" for note in changes.notes]
    sides = (changes.before, changes.after)
    if not changes.told:
        return ["", f"  {' and '.join(sides)}: no line differs by more than noise, or it is not known", *notes]
    rows = change_words.difference_rows(changes, min(_MOST_LINES, len(changes.told)))
    cells = [(each.name, numbers.ms(each.before_ms), numbers.ms(each.after_ms), each.difference) for each in rows]
    said = [
        f"  {wrapped(f'{change_words.part_place(part)}: {change_words.in_both(part, sides)}')}"
        for part in changes.told[:_MOST_LINES]
    ]
    head = ("where they differ most, profiled", *sides, "difference")
    return ["", *table([head, *cells], words=1), "", *said, *notes]


def _settings(row: RuntimeRow) -> str:
    return "; ".join(f"{name}: {value}" for name, value in row.settings.items())


def _row(row: RuntimeRow, baseline: str) -> tuple[str, ...]:
    assert row.latency is not None
    bounds = (row.latency.median_ms, row.latency.low_ms, row.latency.high_ms)
    return (
        row.label,
        numbers.bounded_ms(*bounds),
        "1" if row.name == baseline else _times(row),
        shown_ms(row.startup.median_ms) if row.startup is not None else _UNKNOWN,
        shown_mib(row.peak_bytes) if row.peak_bytes is not None else _UNKNOWN,
        _outputs(row),
    )


def _times(row: RuntimeRow) -> str:
    """Return `1.42 (1.40 to 1.44)`, `~` where no difference is seen, or nothing of what is not ranked."""
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
