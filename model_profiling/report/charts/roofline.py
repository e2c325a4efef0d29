"""The roofline: operators by operations per byte and by rate, under the roofs that were measured on their CPU.

Names of roofs stand where nothing else is; operators with most headroom have numbers, which a legend below explains.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from model_profiling.analysis.roofs.roof_rates import PRODUCT, roof_kind
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, log_ticks, shortened, text_width
from model_profiling.report.charts.placing import Box
from model_profiling.report.charts.roofline_labels import Labels, Marker, Roof, place_labels
from model_profiling.report.drawing.theme import Theme, colour_scale

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
        parts = (math.log(v / low) / math.log(high / low) for v, (low, high) in ((intensity, self.x), (rate, self.y)))
        across, up = parts
        return self.width * across, _HEIGHT * (1 - up)


def roofline(sides: Sequence[RooflineSide], width: int, theme: Theme, title: str) -> Spec | None:
    """Return operators that multiply matrices as dots, hollow before and filled now; None without any."""
    dots = [dot for place, side in enumerate(sides) for dot in _dots(side, filled=place == len(sides) - 1)]
    if not dots:
        return None
    ceilings, bandwidth = _ceilings(sides), sides[-1].roofline.bandwidth
    area = _area(dots, [rate for _, rate in ceilings], bandwidth, width - _MARGIN)
    x = {"type": "quantitative", "scale": {"type": "log", "domain": list(area.x), "nice": False}}
    y = {"type": "quantitative", "scale": {"type": "log", "domain": list(area.y), "nice": False}}
    lines = _lines(ceilings, bandwidth, area)
    named = _named(dots)
    labels = _labels(lines, dots, named, area)
    layers = [
        *(_rule(line.start, line.end, theme.quiet, 1.4) for line in lines),
        _own_roofs(dots, x, y, theme),
        _marks(
            dots,
            sides,
            _with_ticks(x, area.x, "operations per byte"),
            _with_ticks(y, area.y, "rate (GOP/s)"),
            width,
            theme,
        ),
        _rings(dots, x, y),
        *_texts(labels, theme),
        *_legend(labels, named, sum("above" in dot for dot in dots), width, len(sides)),
    ]
    spec: Spec = {"width": area.width, "height": _HEIGHT, "layer": layers}
    dashes = "; dashes: roofs of their own" if any("own_roof" in dot for dot in dots) else ""
    subtitle = f"Dots: operators that multiply matrices, larger where they take longer; lines: measured roofs{dashes}"
    short = f"Dots: operators; lines: measured roofs{dashes}"
    return frame(spec, theme, width, title, subtitle if width >= WIDE else short)


def _dots(side: RooflineSide, filled: bool) -> list[Values]:
    found: list[Values] = []
    for entry in side.roofline.operators:
        instance = side.breakdown.instances[entry.row]
        if entry.intensity and entry.rate > 0:
            place = {"intensity": entry.intensity, "rate": entry.rate, "ms": instance.ms}
            names = {"category": instance.category, "side": side.label, "operator": instance.name}
            roof = {"roof": numbers.of_roof(entry.of_roof), "headroom_ms": entry.headroom_ms}
            dot: Values = {**place, **names, "filled": filled, **roof}
            if entry.of_roof > numbers.ABOVE_ROOF:
                dot["above"] = True
            own = (
                instance.work and roof_kind(instance.operator, instance.kind, instance.work, instance.where) != PRODUCT
            )
            found.append({**dot, "own_roof": entry.roof} if own else dot)
    return sorted(found, key=lambda dot: -float(dot["ms"]))


def _ceilings(sides: Sequence[RooflineSide]) -> list[tuple[str, float]]:
    """Return the best rates by type; where both sides compute in one type, each is told by its side."""
    elements = [element for side in sides for element in side.roofline.peaks]
    found = {}
    for side in sides:
        for element, rate in side.roofline.peaks.items():
            which = f", {side.label}" if elements.count(element) > 1 else ""
            found[f"{element} {numbers.rate(rate)} GOP/s{which}"] = rate
    return list(found.items())


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
    mark = {"type": "rule", "strokeWidth": width, "color": color}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": {channel: {"value": at} for channel, at in ends}}


def _text(text: str, x: float, y: float, **mark: Any) -> Spec:
    at = {"x": {"value": x}, "y": {"value": y}}
    return {"data": {"values": [{}]}, "mark": {"type": "text", "text": text, **mark}, "encoding": at}


def _own_roofs(dots: list[Values], x: Spec, y: Spec, theme: Theme) -> Spec:
    """Draw a dash for each operator that is held against its own kind: a depthwise convolution reaches no flat line."""
    return {
        "data": {"values": [dot for dot in dots if "own_roof" in dot]},
        "mark": {"type": "tick", "orient": "horizontal", "size": _DASH, "thickness": 1.4, "color": theme.quiet},
        "encoding": {"x": {"field": "intensity", **x}, "y": {"field": "own_roof", **y}},
    }


def _rings(dots: list[Values], x: Spec, y: Spec) -> Spec:
    """Draw a ring around operators that are faster than their roof, which a roof should not allow."""
    return {
        "data": {"values": [dot for dot in dots if "above" in dot]},
        "mark": {"type": "point", "shape": "circle", "size": _RING, "strokeWidth": 2, "color": _ABOVE, "opacity": 1},
        "encoding": {"x": {"field": "intensity", **x}, "y": {"field": "rate", **y}},
    }


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
    return [
        _text(shortened(line, room), left, top + place * _LEGEND_LINE, align="left") for place, line in enumerate(lines)
    ]


def _with_ticks(channel: Spec, ends: tuple[float, float], title: str) -> Spec:
    return {**channel, "axis": {"title": title, "values": log_ticks(*ends)}}


def _marks(dots: list[Values], sides: Sequence[RooflineSide], x: Spec, y: Spec, width: int, theme: Theme) -> Spec:
    labels = [side.label for side in sides]
    scale = colour_scale(dot["category"] for dot in dots)
    legend = {"orient": "top", "title": None}
    # A narrow picture has no room for both legends in one line.
    below = {"orient": "top" if width >= WIDE else "bottom", "symbolType": None, "symbolFillColor": theme.quiet}
    shapes = {"domain": labels, "range": ["diamond", "circle"][-len(labels) :]}
    return {
        "data": {"values": dots},
        "mark": {"type": "point", "strokeWidth": 1.6, "opacity": 1},
        "encoding": {
            "x": {"field": "intensity", **x},
            "y": {"field": "rate", **y},
            "color": {"field": "category", "type": "nominal", "scale": scale, "legend": legend},
            "shape": {
                "field": "side",
                "type": "nominal",
                "scale": shapes,
                "legend": {**legend, **below, "symbolStrokeColor": theme.quiet} if len(labels) > 1 else None,
            },
            "size": {"field": "ms", "type": "quantitative", "scale": {"range": list(_SIZES)}, "legend": None},
            "fillOpacity": {"condition": {"test": "datum.filled", "value": 0.75}, "value": 0},
            "fill": {"field": "category", "type": "nominal", "scale": scale, "legend": None},
        },
    }
