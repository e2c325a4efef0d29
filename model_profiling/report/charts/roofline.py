"""The roofline: operators by operations per byte and by rate, under the roofs that were measured on their CPU.

Names of roofs stand where nothing else is; operators with most headroom have numbers, which a legend below explains.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from model_profiling.analysis.roofs.roof_rates import PRODUCT, roof_kind
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, linear, log_ticks, nominal
from model_profiling.report.charts.placing import Box, shortened, text_width
from model_profiling.report.drawing.theme import Theme, colour_scale

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
        x, y, size = self.x - half + 1, self.y - half + 1, 2 * half - 2
        return [Box(x + m * math.cos(turn), y + m * math.sin(turn), size, size) for m in middles]


class Labels(NamedTuple):
    """The labels of a picture, and roofs by the letters that stand for them."""

    placed: list[Label]
    letters: dict[str, str]


def place_labels(
    width: float, height: float, roofs: Sequence[Roof], obstacles: Sequence[Box], numbered: Sequence[Marker]
) -> Labels:
    """Return roofs by their names and dots by their numbers. A roof whose name has no place gets a letter; what has
    no place at all is left to the legend."""
    taken = [*obstacles, *(box for roof in roofs for box in _covered(roof))]
    placed: list[Label] = []
    letters: dict[str, str] = {}

    def place(candidates: Iterator[Label]) -> bool:
        for label in candidates:
            if all(box.inside(width, height) and not any(map(box.overlaps, taken)) for box in label.boxes):
                placed.append(label)
                taken.extend(label.boxes)
                return True
        return False

    for roof in roofs:
        if not place(_along(roof, roof.name)):
            letter = chr(ord("A") + len(letters))
            letters[letter] = roof.name
            place(_along(roof, letter))
    for number, dot in enumerate(numbered, 1):
        place(_around(dot, str(number)))
    return Labels(placed, letters)


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
            x, y = dot.x + reach * math.cos(turn), dot.y + reach * math.sin(turn)
            yield Label(text, x, y, 0.0, dot if ring else None)


_HEIGHT = 330
_MARGIN = 70
# Operators that get a number, and those among them that are above their roof.
_NUMBERED, _NUMBERED_ABOVE = 8, 2
# Areas of dots, in pixels, from those that take no time to the one that takes longest.
_SIZES = (30.0, 260.0)
# The area of a ring, and the width of a dash.
_RING, _DASH = 340.0, 20
# Okabe and Ito's vermillion: what is above its roof.
_ABOVE = "#D55E00"
# Where the legend begins, below the axis and its title, and how high its lines are.
_LEGEND_TOP, _LEGEND_LINE = 52, 15
# Where it begins in a narrow picture, which has its whole width for it.
_LEGEND_LEFT = -36


class RooflineSide(msgspec.Struct, frozen=True):
    """One experiment: what to call it, its operators and their roofs."""

    label: str
    breakdown: Breakdown
    roofline: Roofline


class _Area(msgspec.Struct, frozen=True):
    """The part of the plane that is drawn, and its size."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int

    def pixels(self, intensity: float, rate: float) -> tuple[float, float]:
        """Return where a point is, from the left and from the top."""
        across, up = (math.log(v / a) / math.log(b / a) for v, (a, b) in ((intensity, self.x), (rate, self.y)))
        return self.width * across, _HEIGHT * (1 - up)


def roofline(sides: Sequence[RooflineSide], width: int, theme: Theme, title: str) -> Spec | None:
    """Return operators that multiply matrices as dots, hollow before and filled now; None without any."""
    dots = [dot for place, side in enumerate(sides) for dot in _dots(side, filled=place == len(sides) - 1)]
    if not dots:
        return None
    ceilings, bandwidth = _ceilings(sides), sides[-1].roofline.bandwidth
    area = _area(dots, [rate for _, rate in ceilings], bandwidth, width - _MARGIN)
    x = {"field": "intensity", **linear(*area.x, type="log")}
    y = {"field": "rate", **linear(*area.y, type="log")}
    lines = _lines(ceilings, bandwidth, area)
    named = _named(dots)
    labels = _labels(lines, dots, named, area)
    # Dashes are operators that are held against their own kind: a depthwise convolution reaches no flat line. Rings are
    # around operators that are faster than their roof, which a roof should not allow.
    own, above = ([dot for dot in dots if key in dot] for key in ("own_roof", "above"))
    dash = {"orient": "horizontal", "size": _DASH, "thickness": 1.4, "color": theme.quiet}
    ring = {"shape": "circle", "size": _RING, "strokeWidth": 2, "color": _ABOVE, "opacity": 1}
    axes = {
        "x": {**x, "axis": {"title": "operations per byte", "values": log_ticks(*area.x)}},
        "y": {**y, "axis": {"title": "rate (GOP/s)", "values": log_ticks(*area.y)}},
    }
    layers = [
        *(_rule(line.start, line.end, theme.quiet, 1.4) for line in lines),
        layer("tick", own, {"x": x, "y": {**y, "field": "own_roof"}}, **dash),
        _marks(dots, [side.label for side in sides], axes, width, theme),
        layer("point", above, {"x": x, "y": y}, **ring),
        *_texts(labels, theme),
        *_legend(labels, named, len(above), width, len(sides)),
    ]
    spec: Spec = {"width": area.width, "height": _HEIGHT, "layer": layers}
    dashes = "; dashes: roofs of their own" if own else ""
    subtitle = f"Dots: operators that multiply matrices, larger where they take longer; lines: measured roofs{dashes}"
    short = f"Dots: operators; lines: measured roofs{dashes}"
    return frame(spec, theme, width, title, subtitle if width >= WIDE else short)


def _dots(side: RooflineSide, filled: bool) -> list[Values]:
    found: list[Values] = []
    for entry in (each for each in side.roofline.operators if each.intensity and each.rate > 0):
        instance = side.breakdown.instances[entry.row]
        place = {"intensity": entry.intensity, "rate": entry.rate, "ms": instance.ms}
        names = {"category": instance.category, "side": side.label, "operator": instance.name}
        roof: Values = {"roof": numbers.of_roof(entry.of_roof), "headroom_ms": entry.headroom_ms}
        roof |= {"above": True} if entry.of_roof > numbers.ABOVE_ROOF else {}
        work = instance.work
        own = work and roof_kind(instance.operator, instance.kind, work, instance.where) != PRODUCT
        roof |= {"own_roof": entry.roof} if own else {}
        found.append({**place, **names, "filled": filled, **roof})
    return sorted(found, key=lambda dot: -float(dot["ms"]))


def _ceilings(sides: Sequence[RooflineSide]) -> list[tuple[str, float]]:
    """Return the best rates by type; where both sides compute in one type, each is told by its side."""
    elements = [element for side in sides for element in side.roofline.peaks]
    peaks = ((element, rate, f", {side.label}") for side in sides for element, rate in side.roofline.peaks.items())
    names = {f"{x} {numbers.rate(rate)} GOP/s{of if elements.count(x) > 1 else ''}": rate for x, rate, of in peaks}
    return list(names.items())


def _area(dots: list[Values], ceilings: list[float], bandwidth: list[float], width: int) -> _Area:
    intensities, rates = ([float(dot[name]) for dot in dots] for name in ("intensity", "rate"))
    # The ridge, where memory stops to matter, is in the picture.
    ridges = [rate / slope for rate in ceilings for slope in bandwidth if slope > 0]
    right = max(2 * max(intensities), 3 * min(ridges, default=1.0))
    left = min([*intensities, *ridges]) / 3
    own = [float(dot["own_roof"]) for dot in dots if "own_roof" in dot]
    return _Area((left, right), (min([*rates, *own]) / 2, 1.7 * max([*rates, *own, *ceilings])), width)


def _lines(ceilings: list[tuple[str, float]], bandwidth: list[float], area: _Area) -> list[Roof]:
    """Return flat lines for the multipliers and sloped ones for memory, in pixels."""
    found = [Roof(name, area.pixels(area.x[0], rate), area.pixels(area.x[1], rate)) for name, rate in ceilings]
    top = max((rate for _, rate in ceilings), default=area.y[1])
    for words, slope in zip(("near memory", "far memory"), dict.fromkeys(bandwidth), strict=False):
        start, end = max(area.x[0], area.y[0] / slope), min(area.x[1], top / slope)
        if start < end:
            name = f"{words} {numbers.rate(slope)} GB/s"
            found.append(Roof(name, area.pixels(start, start * slope), area.pixels(end, end * slope)))
    return found


def _named(dots: list[Values]) -> list[Values]:
    """Return the dots that get a number: those that would gain most, and the first that are above their roof."""
    most = sorted((dot for dot in dots if dot["filled"]), key=lambda dot: -float(dot["headroom_ms"]))
    above = [dot for dot in most if "above" in dot][:_NUMBERED_ABOVE]
    return [dot for dot in most if "above" not in dot][: _NUMBERED - len(above)] + above


def _labels(lines: list[Roof], dots: list[Values], named: list[Values], area: _Area) -> Labels:
    """Return where the names of roofs and the numbers of operators stand."""
    longest = max(float(dot["ms"]) for dot in dots) or 1.0

    def marker(dot: Values) -> Marker:
        size = _RING if "above" in dot else _SIZES[0] + (_SIZES[1] - _SIZES[0]) * float(dot["ms"]) / longest
        return Marker(*area.pixels(float(dot["intensity"]), float(dot["rate"])), math.sqrt(size / math.pi) + 2)

    dashes = [area.pixels(float(dot["intensity"]), float(dot["own_roof"])) for dot in dots if "own_roof" in dot]
    obstacles = [*(marker(dot).box for dot in dots), *(Box(x - _DASH / 2, y - 1, _DASH, 2) for x, y in dashes)]
    return place_labels(area.width, _HEIGHT, lines, obstacles, [marker(dot) for dot in named])


def _rule(start: tuple[float, float], end: tuple[float, float], color: str, width: float) -> Spec:
    """Draw a line between two places in pixels."""
    ends = zip(("x", "y", "x2", "y2"), (*start, *end), strict=True)
    return layer("rule", [{}], {channel: {"value": at} for channel, at in ends}, strokeWidth=width, color=color)


def _text(text: str, x: float, y: float, **mark: Any) -> Spec:
    return layer("text", [{}], {"x": {"value": x}, "y": {"value": y}}, text=text, **mark)


def _texts(labels: Labels, theme: Theme) -> list[Spec]:
    """Draw labels where they were placed, with a line to those that are far from their dot."""
    far = [(label, label.marker) for label in labels.placed if label.marker is not None]
    return [
        *(_rule((label.x, label.y), (dot.x, dot.y), theme.grid, 1) for label, dot in far),
        *(_text(each.text, each.x, each.y, baseline="middle", angle=each.angle % 360) for each in labels.placed),
    ]


def _legend(labels: Labels, named: list[Values], above: int, width: int, sides: int) -> list[Spec]:
    """Return the lines below the picture: what letters, numbers and rings stand for."""
    wide, left = width >= WIDE, 0 if width >= WIDE else _LEGEND_LEFT
    room, lines = width - _MARGIN - left, [f"{letter}: {name}" for letter, name in labels.letters.items()]
    for number, dot in enumerate(named, 1):
        roof = "above its roof" if "above" in dot else f"{dot['roof']} of its roof"
        rest = f", {numbers.ms(dot['ms'])}, {roof}"
        # Layout and type are what a narrow picture leaves out of a name.
        name = dot["operator"] if wide else re.sub(r" \([^()]*\)", "", dot["operator"])
        lines.append(f"{number}: {shortened(name, room - text_width(rest) - 20)}{rest}")
    if above:
        means = ": a roof measured on a busy machine, a nearer cache or a wrong count of operations"
        lines.append(f"rings: {above} above the roof{means if wide else ', see the text'}")
    # A narrow picture has the legend of its sides between.
    top = _HEIGHT + _LEGEND_TOP + (28 if not wide and sides > 1 else 0)
    return [_text(shortened(text, room), left, top + n * _LEGEND_LINE, align="left") for n, text in enumerate(lines)]


def _marks(dots: list[Values], labels: list[str], axes: Spec, width: int, theme: Theme) -> Spec:
    scale = colour_scale(dot["category"] for dot in dots)
    grey = {"symbolType": None, "symbolFillColor": theme.quiet, "symbolStrokeColor": theme.quiet}
    # A narrow picture has no room for both legends in one line.
    key = {**legend(**grey), "orient": "top" if width >= WIDE else "bottom"} if len(labels) > 1 else None
    category = {"field": "category", "type": "nominal", "scale": scale}
    encoding = {
        **axes,
        "color": {**category, "legend": legend()},
        "shape": nominal("side", labels, ["diamond", "circle"][-len(labels) :], key),
        "size": {"field": "ms", "type": "quantitative", "scale": {"range": list(_SIZES)}, "legend": None},
        "fillOpacity": {"condition": {"test": "datum.filled", "value": 0.75}, "value": 0},
        "fill": {**category, "legend": None},
    }
    return layer("point", dots, encoding, strokeWidth=1.6, opacity=1)
