"""Labels that fit and do not overprint: how long one is, boxes in pixels, and places for them that are free."""

from collections.abc import Sequence
from typing import NamedTuple


def text_width(text: str) -> float:
    """Return about how many pixels a label takes, rather more than less: letters of 11 pixels."""
    return 6.3 * len(text)


def shortened(text: str, pixels: float) -> str:
    """Return a label that fits; its middle goes, for what tells names apart is mostly at their ends."""
    most = max(int(pixels / text_width("x")), 3)
    tail = most * 3 // 5
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[-tail:]}"


class Box(NamedTuple):
    """A rectangle in pixels; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "Box") -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def inside(self, width: float, height: float) -> bool:
        return self.x >= 0 and self.y >= 0 and self.x + self.width <= width and self.y + self.height <= height


class Flag(NamedTuple):
    """A label beside a mark that goes down from it: the place of the mark, and the label's left end and width."""

    at: float
    x: float
    width: float

    @property
    def leftwards(self) -> bool:
        return self.x < self.at

    def crosses(self, other: "Flag", line: int, its_line: int) -> bool:
        """Return whether this label, or the mark under it, meets another label in its line."""
        if line == its_line and self.x < other.x + other.width and other.x < self.x + self.width:
            return True
        return line <= its_line and other.x < self.at < other.x + other.width


def flag_lines(flags: Sequence[Flag]) -> list[int]:
    """Return in which line each label stands, from the top: none meets another, nor, where that can be, its mark."""
    # Those to the right of their marks from the left on, the others from the right on: each steps below the last.
    order = sorted(range(len(flags)), key=lambda n: (flags[n].leftwards, flags[n].at * (-1) ** flags[n].leftwards))
    lines: dict[int, int] = {}
    for number in order:
        flag, most = flags[number], max(lines.values(), default=-1) + 2
        others = [(flags[n], line) for n, line in lines.items()]
        free = [
            line
            for line in range(most)
            if not any(flag.crosses(other, line, at) or other.crosses(flag, at, line) for other, at in others)
        ]
        lines[number] = free[0] if free else most - 1
    return [lines[number] for number in range(len(flags))]
