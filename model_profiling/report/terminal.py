"""The terminal: a report as aligned text, of which a command shows the first screen."""

import os
import sys
import textwrap
from collections.abc import Sequence

import msgspec

from model_profiling.base.printing import columns, paint, tell
from model_profiling.report import blocks
from model_profiling.report.text_table import table

# Of sentences where the output is no terminal; nobody reads longer lines.
_WIDTH = 100
# What one sees at once.
SCREEN_LINES = 25
_LABEL = 11
_LEAST_ROWS = 3
# As many rows as anyone reads in a terminal; the page and the CSV have all.
_MOST_ROWS, _MOST_BRANCHES, _LONGEST_PART = 30, 24, 72
_WARNING, _WRONG = 33, 31


class Style(msgspec.Struct, frozen=True):
    """How to write on this output: with colours or without."""

    colour: bool

    @classmethod
    def of_stdout(cls) -> "Style":
        tty = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        return cls(colour=tty and not os.environ.get("NO_COLOR"))

    def paint(self, code: int, text: str) -> str:
        return paint(code, text) if self.colour and text else text

    def bold(self, text: str) -> str:
        return self.paint(1, text)


def show(report: blocks.Report, detail: blocks.Detail = "short") -> None:
    tell(render(report, Style.of_stdout(), detail))


def render(report: blocks.Report, style: Style, detail: blocks.Detail = "short", lines: int = SCREEN_LINES) -> str:
    """Return a report as text; of its first screen at most so many `lines`, which a table is cut for."""
    colour = _WRONG if report.wrong else _WARNING
    alerts = [style.paint(colour, line) for alert in report.alerts for line in _wrapped(alert, 0, 4)]
    called = ", ".join(filter(None, (report.title, report.subtitle)))
    title = [style.bold(line) for line in _wrapped(called, 0, 4)] if called else []
    found = [*alerts, *title] if report.wrong else [*title, *alerts]
    found += [""] if report.opening and found else []
    found += _opening(report.opening, style, lines - len(found) if detail == "short" else None)
    if detail != "short":
        found += [line for sentence in report.headline for line in ("", *_wrapped(sentence))]
        found += ["", *_wrapped(report.legend)] if report.legend else []
        found += _blocks(list(report.findings), style)
        found += [line for section in report.sections for line in _section(section, style)]
    return "\n".join(found) + "\n"


def _opening(groups: Sequence[Sequence[blocks.Fact | blocks.Table]], style: Style, room: int | None) -> list[str]:
    """Return the groups of the first screen with a line between them; the table has what the facts leave."""
    drawn = [
        [_fact(each, style) if isinstance(each, blocks.Fact) else each for each in group] for group in groups if group
    ]
    taken = sum(len(part) for group in drawn for part in group if isinstance(part, list)) + max(0, len(drawn) - 1)
    tables = [part for group in drawn for part in group if isinstance(part, blocks.Table)]
    left = None if room is None else max(_LEAST_ROWS, (room - taken) // max(1, len(tables)) - 1)
    found: list[str] = []
    for group in drawn:
        found += [""] if found else []
        for part in group:
            found += _opening_table(part, left) if isinstance(part, blocks.Table) else part
    return found


def _fact(fact: blocks.Fact, style: Style) -> list[str]:
    """Return `label  lead  value note`, and its rows below the line or, where there is none, beside the label."""
    label = f"{fact.label:<{_LABEL - 1}} " if fact.label else " " * _LABEL
    lines = _wrapped(label + fact.text, 0, _LABEL) if fact.text else []
    if lines and style.colour and fact.value:
        lines[0] = lines[0].replace(fact.value, style.bold(fact.value), 1)
    rows = _aligned(fact.rows)
    if rows and not lines:
        rows[0] = label + rows[0][_LABEL:]
    elif rows and fact.row_label:
        rows[0] = f"  {fact.row_label}".ljust(_LABEL - 1) + " " + rows[0][_LABEL:]
    return [*lines, *(part for row in rows for part in _wrapped(row, 0, _LABEL + 2))]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    places = range(max(map(len, rows), default=0))
    widths = [max((len(row[n]) for row in rows if n < len(row) - 1), default=0) for n in places]
    number = [all(row[n][:1].isdigit() for row in rows if n < len(row)) for n in places]

    def aligned(n: int, cell: str, last: int) -> str:
        return cell.rjust(widths[n]) if number[n] else cell.ljust(widths[n] if n < last else 0)

    return [
        " " * _LABEL + "  ".join(aligned(n, cell, len(row) - 1) for n, cell in enumerate(row)).rstrip() for row in rows
    ]


def _opening_table(block: blocks.Table, most: int | None) -> list[str]:
    rows, texts = blocks.plain_rows(block.rows), _texts(block)
    shown = rows[: most - 1] if most is not None and len(rows) > most else rows
    lines = table([block.columns, *shown], 1, texts, width=_room())
    # A cell with many words makes rows of several lines: as many rows as there is room for.
    wraps = most is not None and len(lines) > most + 1
    while wraps and most is not None and len(lines) > most and len(shown) > 1:
        shown = shown[:-1]
        lines = table([block.columns, *shown], 1, texts, width=_room())
    # Rows stand below their title.
    return _with_more([lines[0][2:], *lines[1:]], len(rows) - len(shown))


def _section(section: blocks.Section, style: Style) -> list[str]:
    if section.widget:
        return []
    title = f"{section.title}: {section.result}" if section.result else section.title
    return ["", *(style.bold(line) for line in _wrapped(title)), *_blocks(section.blocks, style)]


def _blocks(several: Sequence[blocks.Block], style: Style) -> list[str]:
    return [line for block in several for line in _block(block, style)]


def _block(block: blocks.Block, style: Style) -> list[str]:
    match block:
        case blocks.Paragraph(words):
            return ["", *_wrapped(words.replace("`", ""), 2)]
        case blocks.Bullets(items):
            return ["", *(line for item in items for line in _wrapped(f"- {item.replace('`', '')}", 2, 4))]
        case blocks.Code(code):
            return ["", *(f"    {line}" for line in code.splitlines())]
        case blocks.AdviceBlock():
            place = f"{block.place}: " if block.place else ""
            title = f"{block.title} ({block.worth})" if block.worth else block.title
            under = [f"{place}{block.next_step}", *(f"- {item}" for item in block.evidence)]
            first = [style.bold(line) for line in _wrapped(title, 2, 4)]
            return ["", *first, *(line for text in under for line in _wrapped(text, 4, 6))]
        case blocks.Table():
            rows = blocks.plain_rows(block.rows[: block.short or _MOST_ROWS])
            lines = table([block.columns, *rows], 1, _texts(block), width=columns())
            return _with_more(["", *lines], len(block.rows) - len(rows))
        case blocks.Tree():
            shown, left = block.costliest(_MOST_BRANCHES)
            rows = []
            for depth, each in shown:
                words = "  " * depth + " ".join(filter(None, (each.name.text, blocks.words_of(each.detail))))
                words = words if len(words) <= _LONGEST_PART else f"{words[: _LONGEST_PART - 3]}..."
                rows.append((words, *map(blocks.words_of, each.cells)))
            lines = table([("part of the model", *block.columns), *rows], 1, width=columns())
            return _with_more(["", *lines], left)
        case _:
            return []


def _with_more(lines: list[str], left: int) -> list[str]:
    return [*lines, *([f"  and {left} more"] if left else [])]


def _texts(block: blocks.Table) -> set[int]:
    """Return the columns of words, which are aligned to the left."""
    numbers = {n for n in range(len(block.columns)) if any(isinstance(row[n], blocks.Number) for row in block.rows)}
    return set(range(len(block.columns))) - numbers


def _wrapped(text: str, indent: int = 0, hanging: int = 0) -> list[str]:
    """Return a sentence in lines that fit; one that fits keeps its spaces."""
    room = _room()
    line = " " * indent + text
    if len(line) <= room:
        return [line]
    hanging = hanging if room > 3 * hanging else min(hanging, 2)
    first = line[: len(line) - len(line.lstrip())]
    label = line[:_LABEL] if hanging == _LABEL else ""
    body = line[len(label) :] if label else line.strip()
    indents = (label or first, " " * max(hanging, indent))
    wrapper = textwrap.TextWrapper(room, *indents, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(body) or [line]


def _room() -> int:
    return min(columns() or _WIDTH, _WIDTH)
