"""Markdown: a whole report, for a repository, a review or a wiki."""

from collections.abc import Mapping

from model_profiling.report.blocks import Advice, Block, Bullets, Cell, Code, Number, Paragraph, Picture, Report, Table
from model_profiling.report.markdown import row, text


def render(report: Report, pictures: Mapping[str, str]) -> str:
    """The report as Markdown; `pictures` says which file each chart is in, relative to where the text will lie."""
    lines = [f"# {text(report.title)}", "", text(report.subtitle), ""]
    lines += [f"- {text(sentence)}" for sentence in report.headline]
    for section in report.sections:
        lines += ["", f"## {text(section.title)}"]
        place = 0
        for block in section.blocks:
            # Findings that follow each other are one numbered list.
            place = place + 1 if isinstance(block, Advice) else 0
            lines += _block(block, pictures, place)
    return "\n".join(lines) + "\n"


def _block(block: Block, pictures: Mapping[str, str], place: int) -> list[str]:
    """A block with the blank line before it that Markdown wants; `place` is that of a finding in its list."""
    match block:
        case Paragraph(words):
            return ["", text(words)]
        case Bullets(items):
            return ["", *(f"- {text(item)}" for item in items)]
        case Code(code):
            # Indented, because no text can end such a block early.
            return ["", *(f"    {line}" for line in code.splitlines())]
        case Picture(chart, caption):
            return ["", f"![{text(caption)}]({pictures[chart]})"] if chart in pictures else []
        case Advice(title, gain, evidence, next_step):
            lines = ["", f"{place}. **{text(title)}** (predicted gain {gain}). {text(next_step)}"]
            # What belongs to an item begins where its text does.
            indent = " " * len(f"{place}. ")
            return lines + [f"{indent}- {text(item)}" for item in evidence]
        case Table():
            return _table(block)


def _table(table: Table) -> list[str]:
    rule = "|" + "|".join("---:" if table.is_number(column) else "---" for column in range(len(table.columns))) + "|"
    shown = table.rows if table.short is None else table.rows[: table.short]
    lines = ["", row(list(table.columns)), rule, *(row([_shown(cell) for cell in cells]) for cells in shown)]
    left = len(table.rows) - len(shown)
    return [*lines, "", f"and {left} more, which the HTML page lists."] if left else lines


def _shown(cell: Cell) -> str:
    return cell.shown if isinstance(cell, Number) else cell
