"""What changed between two experiments: the lines of PyTorch whose time differs most, adding up to the whole."""

from collections.abc import Sequence

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import change_words, numbers
from model_profiling.report.blocks import Block, Name, Number, Paragraph, Row, Section, Table
from model_profiling.report.change_words import DifferenceRow

_MOST_PARTS, _MOST_MODULES, _MOST_UNFOLDED = 10, 8, 500


def section(run: RunView) -> Section | None:
    """Return what each comparison's difference consists of; of several numbers of threads, that of the first."""
    blocks: list[Block] = []
    for found in run.changes:
        if run.repeats(found.before, found.after):
            continue
        before, after = run.sides(found.before, found.after)
        if blocks:
            blocks.append(Paragraph(f"{before} and {after}:"))
        if not found.different:
            said = change_words.unchanged_sentence(found)
            blocks.append(Paragraph(f"{said[0].upper()}{said[1:]}."))
        else:
            linked = any(part.module or part.source_line for part in found.parts)
            times = (before, after, "difference (95 % interval)")
            # The same program with and without a feature may differ in nothing but time.
            what = ["what changed"] if any(part.aspects for part in found.different) else []
            columns = ("line" if linked else "operator", *times, *what)
            blocks.append(_table(columns, change_words.difference_rows(found, _MOST_PARTS)))
            if modules := change_words.module_rows(found, _MOST_MODULES):
                blocks.append(_table(("module", *times), modules))
        blocks += [Paragraph(f"{run.labelled(note[0].upper() + note[1:])}.") for note in found.notes]
    if not blocks:
        return None
    if any(isinstance(block, Table) for block in blocks):
        blocks.append(
            Paragraph(
                "Rows add up to the whole. Times are of traced executions, and all intervals of a comparison hold "
                "together. ~ means that the interval does not show a difference."
            )
        )
    return Section("changes", "What changed", blocks)


def short(run: RunView) -> list[str]:
    """Return a sentence for each comparison that has lines, with the largest of their changes."""
    lines = [found for found in run.changes if any(part.source_line for part in found.told)]
    shown = [found for found in lines if not run.repeats(found.before, found.after)]
    return [f"largest changes: {change_words.largest_sentence(found)}" for found in shown]


def _table(columns: tuple[str, ...], rows: Sequence[DifferenceRow]) -> Table:
    # What cannot be told from noise needs no list.
    told = {place: row.parts[:_MOST_UNFOLDED] for place, row in enumerate(rows) if all(part.told for part in row.parts)}
    under = {
        place: [_row(change_words.part_row(part), len(columns)) for part in parts]
        for place, parts in told.items()
        if len(parts) > 1
    }
    return Table("changes", columns, [_row(row, len(columns)) for row in rows], under=under)


def _row(row: DifferenceRow, cells: int) -> Row:
    alone = row.parts[0] if len(row.parts) == 1 and row.what else None
    what = (change_words.what_changed(alone) or "nothing but the time") if alone is not None else ""
    return (
        Name(row.name) if alone is not None else row.name,
        Number(numbers.ms(row.before_ms), row.before_ms),
        Number(numbers.ms(row.after_ms), row.after_ms),
        Number(row.difference, row.after_ms - row.before_ms),
        what.replace(" -> ", " → "),
    )[:cells]
