"""What a report is made of: sections of paragraphs, lists, tables, pictures and code, in no particular format.

Markdown and the HTML page draw the same blocks, so neither can say what the other does not. All text is plain: names
in it come from files and are not trusted, and each format makes them harmless in its own way.
"""

import msgspec


class Number(msgspec.Struct, frozen=True):
    """A cell that shows a number: as it is written, and the exact value it stands for (None: cannot be said)."""

    shown: str
    value: float | None


Cell = str | Number


class Paragraph(msgspec.Struct, frozen=True):
    text: str


class Bullets(msgspec.Struct, frozen=True):
    items: list[str]


class Advice(msgspec.Struct, frozen=True):
    """One finding: what, what it would gain, its evidence, and what to do."""

    title: str
    gain: str
    evidence: list[str]
    next_step: str


class Table(msgspec.Struct, frozen=True):
    """`key` names it for whoever looks for it; `short` is how many rows fit a page that cannot scroll or filter."""

    key: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    short: int | None = None

    def is_number(self, column: int) -> bool:
        return bool(self.rows) and all(isinstance(row[column], Number) for row in self.rows)


class Picture(msgspec.Struct, frozen=True):
    """A chart by the name it has in `charts`; `caption` says how to read it."""

    chart: str
    caption: str


class Code(msgspec.Struct, frozen=True):
    text: str


Block = Paragraph | Bullets | Advice | Table | Picture | Code


class Section(msgspec.Struct, frozen=True):
    key: str
    title: str
    blocks: list[Block]


class Report(msgspec.Struct, frozen=True):
    """A title, the few sentences everyone reads, and sections."""

    title: str
    subtitle: str
    headline: list[str]
    sections: list[Section] = []

    def section(self, key: str) -> Section | None:
        return next((section for section in self.sections if section.key == key), None)
