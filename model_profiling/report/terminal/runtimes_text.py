"""Several runtimes side by side, for the terminal."""

from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
from model_profiling.report import change_words, numbers, runtime_words, words
from model_profiling.report.terminal.style import wrapped
from model_profiling.report.terminal.text_table import table

_MOST_LINES = 6


def as_lines(found: RuntimeComparison) -> list[str]:
    """Return the table, then what has to be read with it."""
    measured = runtime_words.measured(found)
    lines = [f"{runtime_words.subject(found)}; {runtime_words.order(found)}", ""]
    rows = [runtime_words.cells(row, found.baseline) for row in measured]
    lines += table([runtime_words.COLUMNS, *rows], words=1, left={5}, optional=(4,))
    for row in found.rows:
        lines += [f"  {runtime_words.not_measured(row)}", f"    {row.hint}"] if row.reason else []
    lines += [f"  {note}" for note in runtime_words.notes(found)]
    said = {runtime_words.settings(row): row for row in reversed(measured) if row.settings}
    lines += [f"  {row.label}: {settings}" for settings, row in reversed(said.items())]
    busy = words.busy_sentence([row.comparison for row in measured if row.comparison is not None])
    lines += [line for row in measured for line in _by_line(row)]
    if findings := runtime_words.findings(found):
        lines += ["", *(f"  {wrapped(finding)}" for finding in findings)]
    return lines + ([f"  warning: {busy}"] if busy else []) + [f"  {caveat}" for caveat in found.caveats]


def _by_line(row: RuntimeRow) -> list[str]:
    """Return the lines that a runtime does in other time than the baseline, adding up to the whole."""
    changes = row.changes
    if changes is None:
        return []
    notes = [f"  {wrapped(note)}" for note in changes.notes]
    sides = (changes.before, changes.after)
    if not changes.told:
        return ["", f"  {runtime_words.no_line(changes)}", *notes]
    rows = change_words.difference_rows(changes, min(_MOST_LINES, len(changes.told)))
    cells = [(each.name, numbers.ms(each.before_ms), numbers.ms(each.after_ms), each.difference) for each in rows]
    said = [
        f"  {wrapped(f'{change_words.part_place(part)}: {change_words.in_both(part, sides)}')}"
        for part in changes.told[:_MOST_LINES]
    ]
    head = ("where they differ most, profiled", *sides, "difference")
    return ["", *table([head, *cells], words=1), "", *said, *notes]
