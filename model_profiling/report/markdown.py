"""Markdown: blocks as text for a repository, a review, a wiki or a CI system. Nothing else writes Markdown."""

import re
from collections.abc import Iterator, Mapping

from model_profiling.report.blocks import (
    AdviceBlock,
    Block,
    Branch,
    Bullets,
    Cell,
    Code,
    KeyFigure,
    Link,
    Name,
    Number,
    Paragraph,
    Picture,
    Report,
    Section,
    Table,
    Tree,
    address,
)
from model_profiling.report.words import ADVICE_NOTE, SME2_TITLE

# A tree cannot be folded here: all but the costliest parts are left to the page.
_MOST_BRANCHES = 24
# Markdown drops spaces at the beginning of a cell, but not this one.
_INDENT = "\u2003"


def render(report: Report, pictures: Mapping[str, str] | None = None, level: int = 1) -> str:
    """Return a report as Markdown.

    `pictures` says which file each chart is in, relative to where the text will lie; `level` is that of the title.
    """
    lines = [f"{'#' * level} {text(report.title)}"]
    lines += ["", text(report.subtitle)] if report.subtitle else []
    lines += _first_screen(report)
    for section in report.sections:
        lines += _section(section, pictures or {}, level + 1)
    return "\n".join(lines) + "\n"


def _section(section: Section, pictures: Mapping[str, str], level: int) -> list[str]:
    lines = _blocks(section.blocks, pictures)
    if section.folded:
        import html

        return ["", f"<details><summary>{html.escape(section.title)}</summary>", *lines, "", "</details>"]
    return ["", f"{'#' * level} {text(section.title)}", *lines] if section.title else lines


def _first_screen(report: Report) -> list[str]:
    lines = ["", *(f"- {text(sentence)}" for sentence in report.alerts)] if report.alerts else []
    if report.figures:
        lines += ["", *_figures(report.figures, report.subdued)]
    if report.legend:
        lines += ["", text(report.legend)]
    if report.sme2:
        lines += ["", f"## {SME2_TITLE}", ""]
        lines += [f"- {text(f.label)}: **{text(f.value)}** ({text(f.note)})" for f in report.sme2]
    if report.actions or report.no_actions:
        lines += ["", "## What to do next", *_blocks(list(report.actions), {})]
        lines += ["", text(ADVICE_NOTE if report.actions else report.no_actions)]
    return lines + [line for sentence in report.headline for line in ("", text(sentence))]


def _figures(figures: list[KeyFigure], subdued: bool) -> list[str]:
    """Return one row of numbers under their names, bold unless subdued, and below each what to know of it."""
    rows = [[f.label for f in figures], [f.value for f in figures], [f.note for f in figures]]
    labels, values, notes = ([text(cell) for cell in row] for row in rows)
    return [
        _row(labels),
        "|" + "---|" * len(figures),
        _row(values if subdued else [f"**{value}**" for value in values]),
        _row(notes),
    ]


def _blocks(blocks: list[Block] | list[AdviceBlock], pictures: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    place = 0
    for block in blocks:
        # Findings that follow each other are one numbered list.
        place = place + 1 if isinstance(block, AdviceBlock) else 0
        lines += _block(block, pictures, place)
    return lines


def _block(block: Block, pictures: Mapping[str, str], place: int) -> list[str]:
    """Return a block with the blank line before it that Markdown wants; `place` is that of a finding in its list."""
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
        case AdviceBlock():
            return _advice(block, place)
        case Table():
            return _table(block)
        case Tree():
            return _tree(block)


def _advice(advice: AdviceBlock, place: int) -> list[str]:
    at = f" in {code(advice.place)}" if advice.place else ""
    worth = f" ({text(advice.worth)})" if advice.worth else ""
    lines = ["", f"{place}. **{text(advice.title)}**{at}{worth}. {text(advice.next_step)}"]
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
    branches = list(_flat(tree.root))
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


def _flat(branch: Branch, depth: int = 0) -> Iterator[tuple[int, Branch]]:
    """Yield a tree's rows in order, each with its depth."""
    yield depth, branch
    for child in branch.children:
        yield from _flat(child, depth + 1)


def _row(cells: list[str]) -> str:
    """Return a row of cells that are Markdown already."""
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


# A word that is an identifier, an option or a path (it has an underscore, a dot or colons within, or begins with
# dashes), with the punctuation around it.
_TELLING = r"(?=--[a-z]|[^_\s]*_|[\w/:~-]*(?:[A-Za-z]\w+\.[A-Za-z]\w|\w::\w))"
_IDENTIFIER = re.compile(rf"""([("']*)({_TELLING}[\w./:~+@=-]+?)([)"'.,;:!?]*)""")
# What the kit itself writes as code; a name in it is as harmless there as elsewhere.
_CODE = re.compile(r"`([^`<>|]+)`")


def text(value: str) -> str:
    """Make untrusted text plain in Markdown: no markup, no table breaks, no new lines; identifiers as code."""
    # Splitting by a pattern with one group alternates between what is around it and the group.
    parts = _CODE.split(" ".join(value.split()))
    words = "".join(code(part) if number % 2 else _words(part) for number, part in enumerate(parts))
    return f"\\{words}" if words.startswith("#") else words


def _words(value: str) -> str:
    return " ".join(_word(word) for word in value.split(" "))


def _word(word: str) -> str:
    found = _IDENTIFIER.fullmatch(word)
    return f"{found[1]}`{found[2]}`{found[3]}" if found and found[2] else _escaped(word)


def _escaped(value: str) -> str:
    for character in "\\`*_{}[]<>|":
        value = value.replace(character, "\\" + character)
    return value


def code(value: str) -> str:
    """Return untrusted text as code in a table or a sentence; nothing in it can end the code or the cell."""
    value = " ".join(value.split())
    if not value:
        return ""
    if any(character in value for character in "`<>|"):
        return _escaped(value)
    return f"`{value}`"
