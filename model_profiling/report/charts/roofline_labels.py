"""Where the labels of a roofline go: beside their line or dot where that is free, else a key of a legend."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from model_profiling.report.charts.frame import text_width
from model_profiling.report.charts.placing import Box, Taken

_LETTER = 12.0
# How far from its line a label is, so that a sloped one does not touch it either.
_BESIDE = 11.0
# Steps along a line in which a free place is looked for.
_STEPS = 24


class Roof(NamedTuple):
    """A line in pixels, from its left to its right end, and its name."""

    name: str
    start: tuple[float, float]
    end: tuple[float, float]


class Marker(NamedTuple):
    """A dot in pixels."""

    x: float
    y: float
    radius: float

    @property
    def box(self) -> Box:
        return Box(self.x - self.radius, self.y - self.radius, 2 * self.radius, 2 * self.radius)


class Label(NamedTuple):
    """A text about its middle, turned by `angle` degrees; a text far from its dot has a line to `marker`."""

    text: str
    x: float
    y: float
    angle: float = 0.0
    marker: Marker | None = None

    @property
    def boxes(self) -> list[Box]:
        """What it covers: boxes along it, as many as follow its slope."""
        length, half = text_width(self.text), _LETTER / 2
        if not self.angle:
            return [Box(self.x - length / 2, self.y - half, length, _LETTER)]
        turn, count = math.radians(self.angle), max(2, math.ceil(length / half))
        middles = (length * (n / (count - 1) - 0.5) for n in range(count))
        return [
            Box(
                self.x + m * math.cos(turn) - half + 1,
                self.y + m * math.sin(turn) - half + 1,
                2 * half - 2,
                2 * half - 2,
            )
            for m in middles
        ]


class Labels(NamedTuple):
    """The labels of a picture, and roofs by the letters that stand for them."""

    placed: list[Label]
    letters: dict[str, str]


def place_labels(
    width: float, height: float, roofs: Sequence[Roof], obstacles: Sequence[Box], numbered: Sequence[Marker]
) -> Labels:
    """Return roofs by their names and dots by their numbers. A roof whose name has no place gets a letter; what has
    no place at all is left to the legend."""
    taken = Taken(width, height, [*obstacles, *(box for roof in roofs for box in _covered(roof))])
    placed: list[Label] = []
    letters: dict[str, str] = {}
    for roof in roofs:
        found = _first_free(taken, _along(roof, roof.name))
        if found is None:
            letter = chr(ord("A") + len(letters))
            letters[letter] = roof.name
            found = _first_free(taken, _along(roof, letter))
        placed += [found] if found is not None else []
    for number, dot in enumerate(numbered, 1):
        found = _first_free(taken, _around(dot, str(number)))
        placed += [found] if found is not None else []
    return Labels(placed, letters)


def _first_free(taken: Taken, candidates: Iterator[Label]) -> Label | None:
    labels = list(candidates)
    at = taken.place(label.boxes for label in labels)
    return labels[at] if at is not None else None


def _covered(roof: Roof) -> list[Box]:
    """Return a line as boxes of a few pixels; a flat one as a single box."""
    (x0, y0), (x1, y1) = roof.start, roof.end
    if y0 == y1:
        return [Box(x0, y0 - 1, x1 - x0, 2)]
    count = max(2, math.ceil(math.hypot(x1 - x0, y1 - y0) / 3))
    return [Box(x0 + (x1 - x0) * n / count - 1, y0 + (y1 - y0) * n / count - 1, 2, 2) for n in range(count + 1)]


def _along(roof: Roof, text: str) -> Iterator[Label]:
    """Offer places above and below a line: on a flat one from the right end, on a sloped one from the left."""
    (x0, y0), (x1, y1) = roof.start, roof.end
    angle, length = math.atan2(y1 - y0, x1 - x0), math.hypot(x1 - x0, y1 - y0)
    half = text_width(text) / 2 + 4
    beside = _BESIDE if y0 != y1 else _LETTER / 2 + 2
    for step in range(_STEPS + 1):
        along = half + (length - 2 * half) * step / _STEPS
        along = along if y0 != y1 else length - along
        for side in (beside, -beside):
            x = x0 + along * math.cos(angle) + side * math.sin(angle)
            y = y0 + along * math.sin(angle) - side * math.cos(angle)
            yield Label(text, x, y, math.degrees(angle))


def _around(dot: Marker, text: str) -> Iterator[Label]:
    """Offer places around a dot; those farther away have a line to it."""
    for ring in (0.0, 9.0, 20.0, 32.0, 46.0):
        reach = dot.radius + _LETTER / 2 + 2 + ring
        for part in range(16):
            turn = math.pi * (part / 8 - 0.25)
            yield Label(
                text, dot.x + reach * math.cos(turn), dot.y + reach * math.sin(turn), 0.0, dot if ring else None
            )
