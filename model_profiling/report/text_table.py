"""Tables for the terminal: aligned columns, in a form that fits where the terminal is narrow."""

from collections.abc import Collection, Sequence

from model_profiling.base.printing import columns, fitted_line

Row = tuple[str, ...]
_INDENT = "  "
_GAP = "  "
# A column of words that is narrower than this reads worse than another form of the table.
_NARROWEST_WORDS = 16
# More rows than this do not read well side by side.
_MOST_SIDE_BY_SIDE = 4


def table(
    rows: Sequence[Row],
    words: int,
    left: Collection[int] = (),
    optional: Collection[int] = (),
    header: bool = True,
    width: int | None = None,
) -> list[str]:
    """Align columns: the first `words` columns and those in `left` to the left, numbers to the right.

    Where that is wider than the terminal (`width`, for those who know better), `optional` columns are left out; then
    words are wrapped; then rows become columns; and at last each row is written as a few lines.
    """
    width = columns() if width is None else width
    texts = {*range(words), *left}
    lines = _aligned(rows, texts)
    if width is None or _fits(lines, width):
        return lines
    kept = [column for column in range(len(rows[0])) if column not in optional]
    rows = [tuple(row[column] for column in kept) for row in rows]
    texts = {place for place, column in enumerate(kept) if column in texts}
    turned = [*zip(*rows, strict=True)] if header and len(rows) - 1 <= _MOST_SIDE_BY_SIDE else []
    forms = [_aligned(rows, texts), _wrapped(rows, texts, width), _aligned(turned, range(len(rows))) if turned else []]
    return next((lines for lines in forms if lines and _fits(lines, width)), None) or _stacked(rows, header, width)


def _fits(lines: Sequence[str], width: int) -> bool:
    return all(len(line) <= width for line in lines)


def _aligned(rows: Sequence[Row], texts: Collection[int]) -> list[str]:
    columns = []
    for number, column in enumerate(zip(*rows, strict=True)):
        form = f"{'<' if number in texts else '>'}{max(map(len, column))}"
        columns.append([f"{cell:{form}}" for cell in column])
    return [_INDENT + _GAP.join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _wrapped(rows: Sequence[Row], texts: Collection[int], width: int) -> list[str]:
    """Return the table with its widest column of words on several lines; nothing if there is no room for that."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widest = max(texts, key=lambda column: widths[column])
    room = width - len(_INDENT) - sum(widths) - len(_GAP) * (len(widths) - 1) + widths[widest]
    if room < _NARROWEST_WORDS:
        return []
    split: list[Row] = []
    for row in rows:
        for number, part in enumerate(fitted_line(row[widest], room, 2)):
            cells = row if number == 0 else ("",) * len(row)
            split.append((*cells[:widest], part, *cells[widest + 1 :]))
    return _aligned(split, texts)


def _stacked(rows: Sequence[Row], header: bool, width: int) -> list[str]:
    """Return each row as its name and, below, its other cells, each with its column's name."""
    labels = rows[0] if header else ("",) * len(rows[0])
    lines = fitted_line(f"{_INDENT}{labels[0]}", width, 2) if labels[0] else []
    for row in rows[1:] if header else rows:
        lines += fitted_line(f"{_INDENT}{row[0]}", width, 2)
        cells = [" ".join(filter(None, pair)) for pair in zip(labels[1:], row[1:], strict=True) if pair[1].strip()]
        line = ""
        for number, cell in enumerate(cells):
            text = " ".join(cell.split()) + ("," if number < len(cells) - 1 else "")
            if line and len(line) + 1 + len(text) > width:
                lines += fitted_line(line, width, 2)
                line = ""
            line = f"{line} {text}" if line else f"{_INDENT * 2}{text}"
        lines += fitted_line(line, width, 2) if line else []
    return lines
