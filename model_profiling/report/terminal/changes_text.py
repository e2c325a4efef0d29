"""`compare` on a terminal: the lines and modules that changed most, and what the whole difference consists of."""

from collections.abc import Sequence

from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.base.printing import tell
from model_profiling.report import change_words, numbers
from model_profiling.report.terminal.style import Style, wrapped
from model_profiling.report.terminal.text_table import table

_MOST_PARTS, _MOST_MODULES = 6, 5


def show_changes(changes: ProgramChanges, most: int = _MOST_PARTS) -> None:
    """Print the largest changes, adding up to the whole; one line where nothing changed."""
    tell("\n".join(change_lines(changes, Style.of_stdout(), most)) + "\n")


def change_lines(changes: ProgramChanges, style: Style, most: int = _MOST_PARTS) -> list[str]:
    notes = [f"  {style.dim('note')}  {wrapped(note, 8)}" for note in changes.notes]
    if not changes.different:
        return [f"  {wrapped(change_words.unchanged_sentence(changes))}", *notes]
    lines = ["", *_parts(changes, most), *_modules(changes)]
    lines.append(f"  {style.dim(f'before: {changes.before}, now: {changes.after}, traced; intervals hold together')}")
    return [*lines, *notes]


def _parts(changes: ProgramChanges, most: int) -> list[str]:
    rows = change_words.difference_rows(changes, most)
    said = [f"  {wrapped(row.what)}" for row in rows if row.what]
    return [*_table("what changed most", rows), "", *said, ""]


def _modules(changes: ProgramChanges) -> list[str]:
    """Return modules where there are more changes than are listed one by one."""
    rows = change_words.module_rows(changes, _MOST_MODULES) if len(changes.told) > _MOST_PARTS else []
    return [*_table("by module", rows), ""] if rows else []


def _table(title: str, rows: Sequence[change_words.DifferenceRow]) -> list[str]:
    cells = [(row.name, numbers.ms(row.before_ms), numbers.ms(row.after_ms), row.difference) for row in rows]
    return table([(title, "before", "now", "difference"), *cells], words=1)
