"""Markdown: blocks as text for a repository, a review, a wiki or a CI system. Nothing else writes Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence

from model_profiling.report import blocks
from model_profiling.report.words import ADVICE_NOTE

# A tree cannot be folded here: all but the costliest parts are left to the page.
_MOST_BRANCHES = 24
# Markdown drops spaces at the beginning of a cell, but not this one.
_INDENT = "\u2003"


def render(
    report: blocks.Report, pictures: Mapping[str, str] | None = None, level: int = 1, detail: blocks.Detail = "whole"
) -> str:
    """Return a report as Markdown; of usual detail, folded sections are a line each.

    `pictures` says which file each chart is in, relative to where the text will lie; `level` is that of the title.
    """
    pictures = pictures or {}
    lines = [f"{'#' * level} {text(report.title)}", *_paragraphs(report.subtitle)]
    lines += ["", *(f"- {text(sentence)}" for sentence in report.alerts)] if report.alerts else []
    for group in report.opening:
        facts = [line for each in group if isinstance(each, blocks.Fact) for line in _fact(each)]
        lines += ["", *facts] if facts else []
        lines += [line for each in group if isinstance(each, blocks.Table) for line in _table(each)]
    lines += _block(report.picture, pictures, 0) if report.picture is not None else []
    lines += _paragraphs(report.legend, *report.headline)
    if report.findings:
        lines += ["", f"{'#' * (level + 1)} What to do next", *_blocks(report.findings, {}), "", text(ADVICE_NOTE)]
    closed = [section for section in report.sections if section.folded and detail == "usual"]
    for section in report.sections:
        lines += _section(section, pictures, level + 1) if section not in closed and not section.widget else []
    if closed:
        lines += ["", f"{'#' * (level + 1)} In the page", ""]
        lines += [f"- {': '.join(filter(None, (text(each.title), text(each.result))))}" for each in closed]
    return "\n".join(lines) + "\n"


def _paragraphs(*said: str) -> list[str]:
    return [line for sentence in said if sentence for line in ("", text(sentence))]


def _fact(fact: blocks.Fact) -> list[str]:
    """Return a fact as an item of a list, the number bold, and its rows below it."""
    said = " ".join(filter(None, (code(fact.lead), f"**{text(fact.value)}**" if fact.value else "", text(fact.note))))
    rows = [f"  - {text(' '.join(filter(None, (fact.row_label, *row))))}" for row in fact.rows]
    return [f"- {text(fact.label)}: {said}".rstrip(), *rows]


def _section(section: blocks.Section, pictures: Mapping[str, str], level: int) -> list[str]:
    lines = _blocks(section.blocks, pictures)
    if section.folded and not section.result:
        import html

        title = html.escape(section.title)
        return ["", f"<details><summary>{' '.join(title.split())}</summary>", *lines, "", "</details>"]
    heading = ["", f"{'#' * level} {text(section.title)}", *_paragraphs(section.result)]
    return [*heading, *lines] if section.title else lines


def _blocks(body: Sequence[blocks.Block], pictures: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    place = 0
    for block in body:
        # Findings that follow each other are one numbered list.
        place = place + 1 if isinstance(block, blocks.AdviceBlock) else 0
        lines += _block(block, pictures, place)
    return lines


def _block(block: blocks.Block, pictures: Mapping[str, str], place: int) -> list[str]:
    """Return a block with the blank line before it that Markdown wants; `place` is that of a finding in its list."""
    match block:
        case blocks.Paragraph(words):
            return ["", text(words)]
        case blocks.Bullets(items):
            return ["", *(f"- {text(item)}" for item in items)]
        case blocks.Code(lines):
            # Indented, because no text can end such a block early.
            return ["", *(f"    {line}" for line in lines.splitlines())]
        case blocks.Picture(chart, caption):
            return ["", f"![{text(caption)}]({pictures[chart]})"] if chart in pictures else []
        case blocks.AdviceBlock():
            at = f" in {code(block.place)}" if block.place else ""
            worth = f" ({text(block.worth)})" if block.worth else ""
            said = f"{place}. **{text(block.title)}**{at}{worth}. {text(block.next_step)}"
            # What belongs to an item begins where its text does.
            indent = " " * len(f"{place}. ")
            return ["", said, *(f"{indent}- {text(item)}" for item in block.evidence)]
        case blocks.Table():
            return _table(block)
        case blocks.Tree():
            shown, left = block.costliest(_MOST_BRANCHES)
            rows = []
            for depth, branch in shown:
                words = " ".join(filter(None, (_cell(branch.name), _cell(branch.detail))))
                rows.append([_INDENT * depth + words, *map(_cell, branch.cells)])
            return _lines(["part of the model", *block.columns], ["---", *["---:"] * len(block.columns)], rows, left)


def _table(table: blocks.Table) -> list[str]:
    rules = ["---:" if table.is_number(column) else "---" for column in range(len(table.columns))]
    shown = table.rows[: table.short]
    return _lines(table.columns, rules, [map(_cell, cells) for cells in shown], len(table.rows) - len(shown))


def _lines(columns: Sequence[str], rules: list[str], rows: Iterable[Iterable[str]], left: int) -> list[str]:
    """Return a table of cells that are Markdown already."""
    made = [f"| {' | '.join(cells)} |" for cells in (map(text, columns), *rows)]
    more = ["", f"and {left} more, which the HTML page lists."] if left else []
    return ["", made[0], f"|{'|'.join(rules)}|", *made[1:], *more]


def _cell(cell: blocks.Cell) -> str:
    match cell:
        case blocks.Number(shown, _, href):
            return f"[{text(shown)}]({blocks.address(href)})" if href else text(shown)
        case blocks.Link(words, href):
            return f"[{text(words)}]({blocks.address(href)})"
        case blocks.Name(name):
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
    said = (code(part) if n % 2 else " ".join(map(_word, part.split(" "))) for n, part in enumerate(parts))
    words = "".join(said)
    return f"\\{words}" if words.startswith("#") else words


def _word(word: str) -> str:
    found = _IDENTIFIER.fullmatch(word)
    return f"{found[1]}`{found[2]}`{found[3]}" if found and found[2] else _escaped(word)


def _escaped(value: str) -> str:
    return re.sub(r"[\\`*_{}\[\]<>|]", r"\\\g<0>", value)


def code(value: str) -> str:
    """Return untrusted text as code in a table or a sentence; nothing in it can end the code or the cell."""
    value = " ".join(value.split())
    return f"`{value}`" if value and not set(value) & set("`<>|") else _escaped(value)
