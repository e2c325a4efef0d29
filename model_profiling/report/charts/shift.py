"""The bottleneck shift: stacked bars of time by category."""

import itertools
from collections.abc import Sequence
from typing import Literal

from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, linear
from model_profiling.report.drawing.theme import Theme, colour_scale, ink_on

# A segment narrower than this has no room for its label.
_LABEL_PIXELS = 24


def shift(
    rows: Sequence[tuple[str, dict[str, float]]], width: int, theme: Theme, title: str, unit: Literal["ms", "%"] = "ms"
) -> Spec:
    """Return stacked bars of time by category, one bar per row: as long as the time, with shares written on them."""
    label = numbers.ms if unit == "ms" else "{:.0f} %".format
    inner = width - 40
    longest = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    # Room for the total that is written behind the bar.
    end = longest * (1.15 if width >= WIDE else 1.35)
    rows = [(name, {part: ms for part, ms in parts.items() if ms > 0}) for name, parts in rows]
    names = [name for name, _ in rows]
    segments = [segment for row in rows for segment in _segments(row, end, inner)]
    totals = [{"row": name, "end": sum(p.values()), "label": label(sum(p.values()))} for name, p in rows]
    y = {"field": "row", "type": "nominal", "sort": names, "axis": None, "scale": {"paddingInner": 0.1}}
    x = linear(0, end)
    scale = colour_scale(segment["category"] for segment in segments)
    key = legend(columns=3 if len(scale["domain"]) > 3 else 0)
    axis = {"title": f"time ({unit})", "format": ".4~g", "tickCount": 6, "grid": False}
    colour = {"field": "category", "type": "nominal", "scale": scale, "legend": key}
    bars = {"x": {"field": "start", **x, "axis": axis}, "x2": "end", "y": y, "color": colour}
    shares = {"x": {"field": "middle", **x}, "y": y, "text": "label", "color": {"field": "ink", "scale": None}}
    total = {"x": {"field": "end", "type": "quantitative"}, "y": y, "text": "label"}
    heading = {"x": {"datum": 0, **x}, "y": y, "text": "row"}
    layers = [
        layer("bar", segments, bars, height=24, yOffset=6, stroke=theme.paper, strokeWidth=1),
        layer("text", segments, shares, dy=6),
        layer("text", [{"row": name} for name in names], heading, align="left", dy=-15, limit=inner),
        layer("text", totals, total, align="left", dx=5, dy=6, fontWeight="bold"),
    ]
    spec: Spec = {"height": 50 * len(rows), "width": inner, "layer": layers}
    return frame(spec, theme, width, title, "Time in Method::execute by operator category")


def _segments(row: tuple[str, dict[str, float]], domain: float, pixels: int) -> list[Values]:
    """Return a row's parts laid end to end, with a label where there is room for one."""
    name, parts = row
    total = sum(parts.values()) or 1.0
    found: list[Values] = []
    for (category, value), end in zip(parts.items(), itertools.accumulate(parts.values()), strict=True):
        start = float(found[-1]["end"]) if found else 0.0
        label = f"{value / total:.0%}" if (end - start) / domain * pixels >= _LABEL_PIXELS else ""
        place = {"start": start, "end": end, "middle": (start + end) / 2}
        found.append({"row": name, "category": category, **place, "label": label, "ink": ink_on(category)})
    return found
