"""Rows that unfold: operators that occur several times stand together, and what costs next to nothing stands last."""

from collections.abc import Callable, Sequence

import msgspec

from model_profiling.report import numbers
from model_profiling.report.blocks import Row, Table

# Below this share of the time a row is folded away.
LEAST_SHARE = 0.005
# Makes the row of all that is folded away: its name, and the places of the rows in it.
Rest = Callable[[str, list[int]], Row]


class Foldable(msgspec.Struct, frozen=True):
    """A row, the largest share it has on any side, and the rows it stands for (none: only itself)."""

    cells: Row
    share: float
    members: list[Row] = []

    @property
    def singles(self) -> list[Row]:
        return self.members or [self.cells]


def folded(key: str, columns: tuple[str, ...], rows: Sequence[Foldable], rest: Rest, short: int | None = None) -> Table:
    """Return a table of the rows that cost something; `rest` makes the one row of all others."""
    small = [place for place, row in enumerate(rows) if row.share < LEAST_SHARE]
    if len(small) < 2:
        small = []
    hidden_places = set(small)
    shown = [row for place, row in enumerate(rows) if place not in hidden_places]
    cells = [row.cells for row in shown]
    under = {place: row.members for place, row in enumerate(shown) if row.members}
    if small:
        hidden = [single for place in small for single in rows[place].singles]
        under[len(cells)] = hidden
        cells.append(rest(f"{len(hidden)} more, each under {numbers.share(LEAST_SHARE)} of the time", small))
    return Table(key, columns, cells, short, under)
