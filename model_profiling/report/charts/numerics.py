"""Signal to noise by layer: what has gathered up to each, and what each adds, coloured by operator."""

import collections
import math

from model_profiling.analysis.accuracy.numerics import Layer, Numerics, side
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, linear, nominal
from model_profiling.report.drawing.theme import BEFORE, CATEGORY_COLOURS, Theme

_HEIGHT = 260
# Above this a layer is as good as exact, and the axis is for the others.
_HIGHEST_DB = 100.0
# The axis spans no less: half of it would make one bit of a mantissa look like a step.
_LEAST_SPAN_DB = 40.0
_COLOURS = [colour for name, colour in CATEGORY_COLOURS.items() if name != "Other"]
_OTHER, _OTHER_COLOUR = "other operators", CATEGORY_COLOURS["Other"]
_MOST_NAMES = 3


def numerics(found: Numerics, width: int, theme: Theme, title: str) -> Spec:
    """Return the error against eager fp32 as lines from each layer to those that read it, and a point for what each
    layer adds; alarms have their names."""
    kinds = collections.Counter(kind(layer) for layer in found.layers)
    shown = [name for name, _ in kinds.most_common(len(_COLOURS))]
    named = {alarm.layer.index for alarm in found.alarms[:_MOST_NAMES]}
    points = [_point(found, layer, shown, named) for layer in found.layers]
    wide = width >= WIDE
    axis = {"title": "layer, in the order in which they run", "grid": False, "format": "d", "tickMinStep": 1}
    x = {"field": "layer", **linear(-0.5, len(points) - 0.5), "axis": axis}
    levels = [point[field] for point in points for field in ("error", "added") if point[field] is not None]
    high = math.ceil(max(levels, default=0.0) / 10) * 10
    low = math.floor(min([*levels, high - _LEAST_SPAN_DB]) / 10) * 10
    y = {**linear(low, high), "axis": {"title": "SQNR (dB)", "tickCount": 6}}
    names = [*shown, *([_OTHER] if len(kinds) > len(shown) else [])]
    colours = [*_COLOURS[: len(shown)], *([_OTHER_COLOUR] if len(kinds) > len(shown) else [])]
    key = legend(columns=6 if wide else 3, symbolType="circle")
    colour = nominal("operator", names, colours, key, sort=names)
    error, added, at = ({"field": field, **y} for field in ("error", "added", "label_at"))
    known = {name: [point for point in points if point[name] is not None] for name in ("error", "added")}
    lines, dot = _lines(found, points), {"filled": True, "opacity": 1}
    endless = [point for point in points if not point["finite"]]
    text = {"align": "left", "dx": 6, "dy": -8, "color": theme.text, "fontSize": 11}
    layers = [
        layer("rule", lines, {"x": x, "x2": "reader", "y": error, "y2": "then"}, color=BEFORE, strokeWidth=1.5),
        layer("point", known["error"], {"x": x, "y": error}, **dot, size=12, color=BEFORE),
        layer("point", known["added"], {"x": x, "y": added, "color": colour}, **dot, size=55),
        layer("rule", endless, {"x": x}, color="#D55E00", strokeWidth=1.5),
        layer("text", [point for point in points if point["name"]], {"x": x, "y": at, "text": "name"}, **text),
    ]
    spec: Spec = {"width": width - 80, "height": _HEIGHT, "layer": layers}
    said = "Grey: against eager fp32, with all that was lost before. Coloured: what each layer adds by itself"
    return frame(spec, theme, width, title, said if wide else "Coloured: what each layer adds")


def kind(layer: Layer) -> str:
    """Return `conv2d` of `aten.conv2d.default`."""
    return layer.operator.removeprefix("aten.").partition(".")[0]


def _lines(found: Numerics, points: list[Values]) -> list[Values]:
    """Return a line from each layer to every layer that reads it: branches stay apart until something joins them."""
    errors = {point["layer"]: point["error"] for point in points if point["error"] is not None}
    return [
        {"layer": before, "error": errors[before], "reader": layer.index, "then": errors[layer.index]}
        for layer in found.layers
        for before in layer.producers
        if before in errors and layer.index in errors
    ]


def _point(found: Numerics, layer: Layer, shown: list[str], named: set[int]) -> Values:
    own = side(found, layer)
    added, error = (None if gap.sqnr_db is None else min(gap.sqnr_db, _HIGHEST_DB) for gap in (own.added, own.error))
    return {
        "layer": layer.index,
        "operator": kind(layer) if kind(layer) in shown else _OTHER,
        "error": error,
        "added": added,
        "finite": own.finite,
        "name": layer.place if layer.index in named else "",
        "label_at": added if added is not None else error if error is not None else 0.0,
    }
