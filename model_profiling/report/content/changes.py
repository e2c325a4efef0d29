"""What changed between two experiments: the lines of PyTorch whose time differs most, adding up to the whole."""

from collections.abc import Sequence

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import change_words
from model_profiling.report.blocks import Block, Name, Paragraph, Row, Section, Table
from model_profiling.report.change_words import DifferenceRow

_MOST_PARTS, _MOST_MODULES, _MOST_UNFOLDED = 10, 8, 500
_LEGEND = (
    "Rows add up to the whole; times are traced, and all intervals of a comparison hold together. Where nothing is "
    "said to have changed, operators and shapes are the same; only the time changed. ~: no difference seen."
)


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
            modules = change_words.module_rows(found, _MOST_MODULES)
            blocks += [_table(("module", *times), modules)] if modules else []
        blocks += [Paragraph(f"{run.labelled(note[0].upper() + note[1:])}.") for note in found.notes]
    if not blocks:
        return None
    blocks += [Paragraph(_LEGEND)] if any(isinstance(block, Table) for block in blocks) else []
    largest = [change_words.largest_sentence(found, 1) for found in run.changes]
    return Section("changes", "What changed", blocks, True, next(filter(None, largest), "no line by more than noise"))


def _table(columns: tuple[str, ...], rows: Sequence[DifferenceRow]) -> Table:
    # What cannot be told from noise needs no list.
    under = {
        place: [_row(change_words.part_row(part), len(columns)) for part in row.parts[:_MOST_UNFOLDED]]
        for place, row in enumerate(rows)
        if len(row.parts) > 1 and all(part.told for part in row.parts)
    }
    return Table("changes", columns, [_row(row, len(columns)) for row in rows], under=under)


def _row(row: DifferenceRow, cells: int) -> Row:
    alone = row.parts[0] if len(row.parts) == 1 and row.name == change_words.part_name(row.parts[0]) else None
    what = change_words.what_changed(alone) if alone is not None else ""
    name = Name(row.name) if alone is not None else row.name
    return (name, *row.cells, what.replace(" -> ", " → "))[:cells]
