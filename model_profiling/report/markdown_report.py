"""Markdown: a whole report, for a repository, a review or a wiki."""

from collections.abc import Mapping

from model_profiling.report.blocks import (
    Advice,
    Block,
    Bullets,
    Cell,
    Code,
    Figure,
    Link,
    Name,
    Number,
    Paragraph,
    Picture,
    Report,
    Table,
    Tree,
    address,
)
from model_profiling.report.content.findings import NOTE
from model_profiling.report.content.modules import flat
from model_profiling.report.markdown import code, text

# A tree cannot be folded here: all but the costliest parts are left to the page.
_MOST_BRANCHES = 24
# Markdown drops spaces at the beginning of a cell, but not this one.
_INDENT = "\u2003"


def render(report: Report, pictures: Mapping[str, str]) -> str:
    """The report as Markdown; `pictures` says which file each chart is in, relative to where the text will lie."""
    lines = [f"# {text(report.title)}", "", text(report.subtitle), *_first_screen(report)]
    for section in report.sections:
        lines += ["", f"## {text(section.title)}"]
        lines += _blocks(section.blocks, pictures)
    return "\n".join(lines) + "\n"


def _first_screen(report: Report) -> list[str]:
    lines = ["", *(f"- {text(sentence)}" for sentence in report.alerts)] if report.alerts else []
    if report.figures:
        lines += ["", *_figures(report.figures, report.subdued)]
    if report.legend:
        lines += ["", text(report.legend)]
    if report.actions or report.no_actions:
        lines += ["", "## What to do next", *_blocks(list(report.actions), {})]
        lines += ["", text(NOTE if report.actions else report.no_actions)]
    return lines + [line for sentence in report.headline for line in ("", text(sentence))]


def _figures(figures: list[Figure], subdued: bool) -> list[str]:
    """One row of numbers under their names, bold unless subdued, and below each what to know of it."""
    rows = [[f.label for f in figures], [f.value for f in figures], [f.note for f in figures]]
    labels, values, notes = ([text(cell) for cell in row] for row in rows)
    return [
        _row(labels),
        "|" + "---|" * len(figures),
        _row(values if subdued else [f"**{value}**" for value in values]),
        _row(notes),
    ]


def _blocks(blocks: list[Block] | list[Advice], pictures: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    place = 0
    for block in blocks:
        # Findings that follow each other are one numbered list.
        place = place + 1 if isinstance(block, Advice) else 0
        lines += _block(block, pictures, place)
    return lines


def _block(block: Block, pictures: Mapping[str, str], place: int) -> list[str]:
    """A block with the blank line before it that Markdown wants; `place` is that of a finding in its list."""
    match block:
        case Paragraph(words):
            return ["", text(words)]
        case Bullets(items):
            return ["", *(f"- {text(item)}" for item in items)]
        case Code(lines):
            # Indented, because no text can end such a block early.
            return ["", *(f"    {line}" for line in lines.splitlines())]
        case Picture(chart, caption):
            return ["", f"![{text(caption)}]({pictures[chart]})"] if chart in pictures else []
        case Advice():
            return _advice(block, place)
        case Table():
            return _table(block)
        case Tree():
            return _tree(block)


def _advice(advice: Advice, place: int) -> list[str]:
    at = f" at {code(advice.place)}" if advice.place else ""
    lines = ["", f"{place}. **{text(advice.title)}**{at} ({text(advice.worth)}). {text(advice.next_step)}"]
    # What belongs to an item begins where its text does.
    indent = " " * len(f"{place}. ")
    return lines + [f"{indent}- {text(item)}" for item in advice.evidence]


def _table(table: Table) -> list[str]:
    rule = "|" + "|".join("---:" if table.is_number(column) else "---" for column in range(len(table.columns))) + "|"
    shown = table.rows if table.short is None else table.rows[: table.short]
    rows = [_row([_cell(cell) for cell in cells]) for cells in shown]
    lines = ["", _row([text(column) for column in table.columns]), rule, *rows]
    left = len(table.rows) - len(shown)
    return [*lines, "", f"and {left} more, which the HTML page lists."] if left else lines


def _tree(tree: Tree) -> list[str]:
    branches = list(flat(tree.root))
    # No part costs more than what it is a part of, so that none is without that.
    least = sorted((branch.share for _, branch in branches), reverse=True)[:_MOST_BRANCHES][-1]
    columns = ["part of the model", *tree.columns]
    lines = ["", _row([text(column) for column in columns]), "|---|" + "---:|" * len(tree.columns)]
    shown = [item for item in branches if item[1].share >= least]
    for depth, branch in shown:
        words = " ".join(part for part in (_cell(branch.name), _cell(branch.detail)) if part)
        lines.append(_row([_INDENT * depth + words, *(_cell(cell) for cell in branch.cells)]))
    left = len(branches) - len(shown)
    return [*lines, "", f"and {left} more, which the HTML page lists."] if left else lines


def _row(cells: list[str]) -> str:
    """A row of cells that are Markdown already."""
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell) -> str:
    match cell:
        case Number(shown, _, href):
            return f"[{text(shown)}]({address(href)})" if href else text(shown)
        case Link(words, href):
            return f"[{text(words)}]({address(href)})"
        case Name(name):
            return code(name)
        case str(words):
            return text(words)
