"""`compare` on a terminal: the lines and modules that changed most, and what the whole difference consists of."""

from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.base.printing import tell
from model_profiling.report import change_words, numbers
from model_profiling.report.terminal.style import Style, wrapped
from model_profiling.report.terminal.text_table import table

_MOST_PARTS, _MOST_MODULES = 6, 5


def show_changes(changes: ProgramChanges, most: int = _MOST_PARTS) -> None:
    """Print the largest changes, adding up to the whole; one line where nothing changed."""
    style = Style.of_stdout()
    notes = [f"  {style.dim('note')}  {wrapped(note, 8)}" for note in changes.notes]
    if not changes.different:
        tell("\n".join([f"  {wrapped(change_words.unchanged_sentence(changes))}", *notes]) + "\n")
        return
    lines = ["", *_parts(changes, most), *_modules(changes)]
    lines.append(f"  {style.dim(f'before: {changes.before}, now: {changes.after}, traced; intervals hold together')}")
    tell("\n".join([*lines, *notes]) + "\n")


def _parts(changes: ProgramChanges, most: int) -> list[str]:
    rows = change_words.difference_rows(changes, most)
    cells = [(row.name, numbers.ms(row.before_ms), numbers.ms(row.after_ms), row.difference) for row in rows]
    lines = table([("what changed most", "before", "now", "difference"), *cells], words=1)
    said = [f"  {wrapped(row.what)}" for row in rows if row.what]
    return [*lines, "", *said, ""]


def _modules(changes: ProgramChanges) -> list[str]:
    """Return modules where there are more changes than are listed one by one, and fewer modules than changes."""
    if not len(changes.told) > _MOST_PARTS or not 1 < len(changes.modules) < len(changes.told):
        return []
    rows = [("by module", "before", "now", "difference")]
    for module in changes.modules[:_MOST_MODULES]:
        times = (numbers.ms(module.before_ms), numbers.ms(module.after_ms))
        rows.append((module.module, *times, change_words.difference_text(module)))
    if rest := changes.modules[_MOST_MODULES:]:
        sums = [sum(getattr(each, side) for each in rest) for side in ("before_ms", "after_ms", "difference_ms")]
        rows.append(
            (
                f"{len(rest)} other{'s' if len(rest) > 1 else ''}",
                numbers.ms(sums[0]),
                numbers.ms(sums[1]),
                f"{sums[2]:+.3f} ms",
            )
        )
    return [*table(rows, words=1), ""]
