"""What a report is made of: sections of paragraphs, lists, tables, pictures and code, in no particular format.

Terminal, Markdown and HTML draw the same blocks, so none can say what the others do not. All text is plain: names
in it come from files and are not trusted, and each format makes them harmless in its own way.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

# How much of a report is shown: the first screen; what fits a text that is read from top to bottom; or all of it.
Detail = Literal["short", "usual", "whole"]


class Number(msgspec.Struct, frozen=True):
    """A cell that shows a number: as it is written, and the exact value it stands for (None: cannot be said)."""

    shown: str
    value: float | None
    # Where it leads, as of `Link`; '' for nowhere.
    href: str = ""


class Name(msgspec.Struct, frozen=True):
    """A cell that shows an identifier: an operator, an experiment, a file."""

    text: str


class Link(msgspec.Struct, frozen=True):
    """A cell that leads to a file: its path relative to where the page will lie."""

    text: str
    href: str


def address(href: str) -> str:
    """Return a relative path as an address: quoted, so that it is no script and ends no attribute or link."""
    from urllib.parse import quote

    return quote(href, safe="/.~")


Cell = str | Number | Name | Link
Row = tuple[Cell, ...]
T = TypeVar("T")


class Fact(msgspec.Struct, frozen=True):
    """A thing to know under its label: the number and what to know of it, and `rows` of aligned words below.

    `lead` stands before the number; `row_label` before the first row. A page shows what is a `card` in large type.
    """

    label: str
    value: str = ""
    note: str = ""
    lead: str = ""
    rows: list[tuple[str, ...]] = []
    row_label: str = ""
    card: bool = False

    @property
    def text(self) -> str:
        """The line without its label; an identifier that leads stands apart."""
        said = " ".join(part for part in (self.value, self.note) if part)
        return "  ".join(part for part in (self.lead, said) if part)


class Paragraph(msgspec.Struct, frozen=True):
    text: str


class Bullets(msgspec.Struct, frozen=True):
    items: list[str]


class AdviceBlock(msgspec.Struct, frozen=True):
    """One finding: what, its evidence, what to do; what it costs and where it is, if the title does not say that."""

    title: str
    worth: str
    evidence: list[str]
    next_step: str
    place: str = ""


class Table(msgspec.Struct, frozen=True):
    """`key` names it for whoever looks for it; `short` is how many rows fit a page that cannot scroll or filter.

    Rows may unfold: `under` has, by its place, the rows that a row stands for. The page can sort and filter the
    rows of a `sortable` one.
    """

    key: str
    columns: tuple[str, ...]
    rows: list[Row]
    short: int | None = None
    under: dict[int, list[Row]] = {}
    sortable: bool = False

    @classmethod
    def of(
        cls, key: str, columns: Mapping[str, Callable[[T], Cell]], records: Iterable[T], short: int | None = None
    ) -> "Table":
        """Return a table with a row for each record; `columns` say under which name which part of it stands."""
        rows = [tuple(cell(record) for cell in columns.values()) for record in records]
        return cls(key, tuple(columns), rows, short)

    def is_number(self, column: int) -> bool:
        return bool(self.rows) and all(isinstance(row[column], Number) for row in self.rows)


class Branch(msgspec.Struct, frozen=True):
    """A row of a tree: an identifier, a few words, numbers, and what it unfolds to."""

    name: Name
    detail: str | Name
    cells: tuple[Number, ...]
    # The part of the whole that it is, and the colour that part has in pictures.
    share: float
    category: str
    children: "list[Branch]" = []
    # Whether it is unfolded to begin with.
    opened: bool = False
    # Whether it is hidden where a reader asks for what is of interest alone.
    minor: bool = False


class Tree(msgspec.Struct, frozen=True):
    """Rows that unfold level by level; `columns` are those of the cells. The page can hide minor branches: `filter` is
    what that is called, '' for trees that have none."""

    key: str
    columns: tuple[str, ...]
    root: Branch
    filter: str = ""

    def costliest(self, most: int) -> tuple[list[tuple[int, Branch]], int]:
        """Return about `most` rows that cost most, in order and with their depth, and how many are left out."""
        branches = list(_flat(self.root))
        # No part costs more than what it is a part of, so that none is without that.
        least = sorted((branch.share for _, branch in branches), reverse=True)[:most][-1]
        shown = [item for item in branches if item[1].share >= least]
        return shown, len(branches) - len(shown)


def _flat(branch: Branch, depth: int = 0) -> Iterator[tuple[int, Branch]]:
    """Yield a tree's rows in order, each with its depth."""
    yield depth, branch
    for child in branch.children:
        yield from _flat(child, depth + 1)


class Picture(msgspec.Struct, frozen=True):
    """A chart by the name it has in `charts`; `caption` says how to read it."""

    chart: str
    caption: str


class Code(msgspec.Struct, frozen=True):
    text: str


Block = Paragraph | Bullets | AdviceBlock | Table | Tree | Picture | Code


class Section(msgspec.Struct, frozen=True):
    """Blocks under a title, or without one. One that is `folded` shows its title and `result`, its outcome in a line,
    until a reader unfolds it; a text of usual detail has no more of it than that. A `widget` is one to work with, which
    only a page has: its markup and scripts are called so."""

    key: str
    title: str
    blocks: list[Block] = []
    folded: bool = False
    result: str = ""
    widget: Literal["", "whatif", "timeline", "graph"] = ""


class Report(msgspec.Struct, frozen=True):
    """What is said of a result, in no format. The first screen comes first: what is wrong (`alerts`), then groups of
    facts with at most one table among them; then sentences, findings, and sections."""

    title: str
    subtitle: str = ""
    headline: list[str] = []
    sections: list[Section] = []
    alerts: list[str] = []
    opening: list[list[Fact | Table]] = []
    # Below the first screen: a picture, what the words mean, what to do and what that stands on.
    picture: Picture | None = None
    legend: str = ""
    findings: list[AdviceBlock] = []
    # Whether the first alert makes everything else void: it stands before the title.
    wrong: bool = False

    @property
    def facts(self) -> list[Fact]:
        return [each for group in self.opening for each in group if isinstance(each, Fact)]

    def section(self, key: str) -> Section | None:
        return next((section for section in self.sections if section.key == key), None)

    def with_facts(self, *facts: Fact) -> "Report":
        """Return the report with a last group of facts, as where it was written."""
        return msgspec.structs.replace(self, opening=[*self.opening, list(facts)])


def bullets(items: Iterable[str]) -> list[Block]:
    """Return a list of what there is to say; no block where there is nothing."""
    found = list(items)
    return [Bullets(found)] if found else []


def words_of(cell: Cell) -> str:
    """Return a cell as plain text."""
    return cell.shown if isinstance(cell, Number) else cell if isinstance(cell, str) else cell.text


def plain_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [tuple(map(words_of, row)) for row in rows]
