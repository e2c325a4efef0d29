"""The roofline: operators by operations per byte and by rate, under the roofs that were measured on their CPU."""

import math
from collections.abc import Sequence

import msgspec

from model_profiling.analysis.roofs.roof_rates import PRODUCT, roof_kind
from model_profiling.analysis.roofs.roofline import Roofline
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, log_ticks
from model_profiling.report.drawing.theme import Theme, colour_scale

_HEIGHT = 330
_MARGIN = 70


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

    def in_x(self, pixels: float) -> float:
        """Return by how much operations per byte grow over some pixels."""
        return float((self.x[1] / self.x[0]) ** (pixels / self.width))

    @property
    def angle(self) -> float:
        """How steep a line is on which the rate grows with operations per byte."""
        decades = [math.log10(high / low) for low, high in (self.x, self.y)]
        return -math.degrees(math.atan2(_HEIGHT / decades[1], self.width / decades[0]))


def roofline(sides: Sequence[RooflineSide], width: int, theme: Theme, title: str) -> Spec | None:
    """Return operators that multiply matrices as dots, hollow before and filled now; None without any."""
    dots = [dot for place, side in enumerate(sides) for dot in _dots(side, filled=place == len(sides) - 1)]
    if not dots:
        return None
    ceilings = _ceilings(sides)
    area = _area(dots, [rate for _, rate in ceilings], sides[-1].roofline.bandwidth, width - _MARGIN)
    x = {"type": "quantitative", "scale": {"type": "log", "domain": list(area.x), "nice": False}}
    y = {"type": "quantitative", "scale": {"type": "log", "domain": list(area.y), "nice": False}}
    layers = [
        *_roofs(ceilings, sides[-1].roofline.bandwidth, area, x, y, theme),
        _own_roofs(dots, x, y, theme),
        _marks(dots, sides, x, y, width, theme),
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
            dot: Values = {**place, **names, "filled": filled, "roof": numbers.of_roof(entry.of_roof)}
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


def _roofs(
    ceilings: list[tuple[str, float]], bandwidth: list[float], area: _Area, x: Spec, y: Spec, theme: Theme
) -> list[Spec]:
    """Draw flat lines for the multipliers, sloped ones for memory, each with its name on it."""
    lines, texts = [], []
    for name, rate in ceilings:
        lines += [{"line": name, "intensity": end, "rate": rate} for end in area.x]
        texts.append(_text([{"x": area.x[1], "y": rate, "label": name}], {"align": "right", "dx": -4, "dy": -7}, x, y))
    top = max((rate for _, rate in ceilings), default=area.y[1])
    for words, slope in zip(("near memory", "far memory"), dict.fromkeys(bandwidth), strict=False):
        name = f"{words} {numbers.rate(slope)} GB/s"
        start = max(area.x[0], area.y[0] / slope)
        lines += [{"line": name, "intensity": end, "rate": end * slope} for end in (start, top / slope)]
        begin = start * area.in_x(14)
        at = {"x": begin, "y": begin * slope, "label": name}
        texts.append(_text([at], {"align": "left", "dx": 4, "dy": -7, "angle": area.angle}, x, y))
    rule = {
        "data": {"values": lines},
        "mark": {"type": "line", "strokeWidth": 1.4, "color": theme.quiet, "clip": True},
        "encoding": {
            "x": {"field": "intensity", **x, "axis": {"title": "operations per byte", "values": log_ticks(*area.x)}},
            "y": {"field": "rate", **y, "axis": {"title": "rate (GOP/s)", "values": log_ticks(*area.y)}},
            "detail": {"field": "line"},
        },
    }
    return [rule, *texts]


def _own_roofs(dots: list[Values], x: Spec, y: Spec, theme: Theme) -> Spec:
    """Draw a dash for each operator that is held against its own kind: a depthwise convolution reaches no flat line."""
    return {
        "data": {"values": [dot for dot in dots if "own_roof" in dot]},
        "mark": {"type": "tick", "orient": "horizontal", "size": 20, "thickness": 1.4, "color": theme.quiet},
        "encoding": {"x": {"field": "intensity", **x}, "y": {"field": "own_roof", **y}},
    }


def _text(values: list[Values], mark: Spec, x: Spec, y: Spec) -> Spec:
    encoding = {"x": {"field": "x", **x}, "y": {"field": "y", **y}, "text": {"field": "label"}}
    return {"data": {"values": values}, "mark": {"type": "text", "clip": True, **mark}, "encoding": encoding}


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
            "size": {"field": "ms", "type": "quantitative", "scale": {"range": [30, 260]}, "legend": None},
            "fillOpacity": {"condition": {"test": "datum.filled", "value": 0.75}, "value": 0},
            "fill": {"field": "category", "type": "nominal", "scale": scale, "legend": None},
        },
    }
