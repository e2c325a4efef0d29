"""What a report is made of: sections of paragraphs, lists, tables, pictures and code, in no particular format.

`markdown` and `html` draw the same blocks, so neither can say what the other does not. All text is plain: names
in it come from files and are not trusted, and each format makes them harmless in its own way.
"""

import msgspec


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


class KeyFigure(msgspec.Struct, frozen=True):
    """One of the few numbers on the first screen: what it is, the number, and what to know of it.

    A `detail` may come after what else the first screen has, where there is little room.
    """

    label: str
    value: str
    note: str = ""
    detail: bool = False


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
    children: list["Branch"] = []
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


class Picture(msgspec.Struct, frozen=True):
    """A chart by the name it has in `charts`; `caption` says how to read it."""

    chart: str
    caption: str


class Code(msgspec.Struct, frozen=True):
    text: str


Block = Paragraph | Bullets | AdviceBlock | Table | Tree | Picture | Code


class Section(msgspec.Struct, frozen=True):
    """Blocks under a title, or without one; `folded` shows only the title until a reader unfolds it (in Markdown)."""

    key: str
    title: str
    blocks: list[Block]
    folded: bool = False


class Report(msgspec.Struct, frozen=True):
    """The first screen (what is wrong with the run, three figures, what to do, what shifted), then sections."""

    title: str
    subtitle: str
    headline: list[str]
    sections: list[Section] = []
    # What a reader must know before all else: what failed or is partial.
    alerts: list[str] = []
    figures: list[KeyFigure] = []
    # What the words of the figures mean.
    legend: str = ""
    actions: list[AdviceBlock] = []
    # Where there is nothing to do, why.
    no_actions: str = ""
    # Whether figures and actions are shown less boldly: they cannot be relied on, as the alerts say.
    subdued: bool = False
    # What SME2 does for the model, or would do.
    sme2: list[KeyFigure] = []

    def section(self, key: str) -> Section | None:
        return next((section for section in self.sections if section.key == key), None)
