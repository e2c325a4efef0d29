"""Cost by module and line as an icicle: the model on top, below each part what it consists of."""

from model_profiling.analysis.graph.cost_tree import CostNode
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, linear
from model_profiling.report.drawing.theme import Theme, colour_scale, ink_on

_STEP = 24
_MOST_LEVELS = 7
# A part narrower than this is not drawn; a label needs about so many pixels for a letter.
_LEAST_PIXELS = 2.0
_LETTER = 6.4


def modules(root: CostNode, width: int, theme: Theme, title: str) -> Spec:
    """Return one bar per part of the model, as wide as its time; its colour is the category that took most of it."""
    inner = width - 24
    values: list[Values] = []
    _place(root, 0.0, 0, inner / (root.ms or 1.0), values)
    levels = 1 + max(value["level"] for value in values)
    y = {"field": "level", "type": "ordinal", "axis": None, "scale": {"domain": list(range(levels)), "padding": 0}}
    x = linear(0, root.ms or 1.0)
    axis = {"title": "time (ms, traced)", "tickCount": 6, "grid": False, "format": ".4~g"}
    scale, key = colour_scale(value["category"] for value in values), legend(columns=6 if width >= WIDE else 3)
    colour = {"field": "category", "type": "nominal", "scale": scale, "legend": key}
    bars = {"x": {"field": "start", **x, "axis": axis}, "x2": "end", "y": y, "color": colour}
    labels = {"x": {"field": "start", **x}, "y": y, "text": "label", "color": {"field": "ink", "scale": None}}
    layers = [
        layer("rect", None, bars, stroke=theme.paper, strokeWidth=1.2),
        layer("text", None, labels, align="left", dx=4),
    ]
    spec: Spec = {"width": inner, "height": _STEP * levels, "data": {"values": values}, "layer": layers}
    return frame(spec, theme, width, title, "")


def _place(node: CostNode, start: float, level: int, scale: float, values: list[Values]) -> None:
    """Lay a part and what it consists of below each other; single operators of a line are left to the table."""
    pixels = node.ms * scale
    if pixels < _LEAST_PIXELS or level >= _MOST_LEVELS or (node.kind == "operator" and level > 1):
        return
    where = {"start": start, "end": start + node.ms, "level": level}
    category = {"category": node.category, "ink": ink_on(node.category)}
    values.append({**where, **category, "label": _label(node, pixels - 8)})
    for child in node.children:
        _place(child, start, level + 1, scale, values)
        start += child.ms


def _label(node: CostNode, room: float) -> str:
    """Return as much as fits: with the share, without it, or the beginning of the name."""
    name = f"{node.file.rpartition('/')[2]}:{node.line}" if node.kind == "line" else node.name
    letters = int(room / _LETTER)
    cut = name[: letters - 1] + "…" if letters >= 4 else ""
    return next((text for text in (f"{name}  {numbers.share(node.share)}", name) if len(text) <= letters), cut)
