"""The bottleneck shift: stacked bars of time by category."""

from collections.abc import Sequence

from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame
from model_profiling.report.drawing.theme import Theme, colour_scale, ink_on

# A segment narrower than this has no room for its label.
_LABEL_PIXELS = 46


def shift(rows: Sequence[tuple[str, dict[str, float]]], width: int, theme: Theme, title: str) -> Spec:
    """Return stacked bars of time by category, one bar per row, in milliseconds and below that in percent of each."""
    inner = width - 40
    longest = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    # Room for the total that is written behind the bar.
    end = longest * (1.15 if width >= WIDE else 1.35)
    rows = [(name, {part: ms for part, ms in parts.items() if ms > 0}) for name, parts in rows]
    names = [name for name, _ in rows]
    absolute = [segment for row in rows for segment in _segments(row, end, inner, 1.0)]
    relative = [segment for row in rows for segment in _segments(row, 1.0, inner, sum(row[1].values()) or 1.0)]
    totals = [{"row": name, "end": sum(p.values()), "label": numbers.ms(sum(p.values()))} for name, p in rows]
    height = 50 * len(rows)
    time = {
        "height": height,
        "width": inner,
        "layer": [
            *_bars(absolute, names, "time (ms, traced)", [0, end], ".4~g", theme, inner),
            {
                "data": {"values": totals},
                "mark": {"type": "text", "align": "left", "dx": 5, "dy": 6, "fontWeight": "bold"},
                "encoding": {
                    "x": {"field": "end", "type": "quantitative"},
                    "y": _row(names),
                    "text": {"field": "label"},
                },
            },
        ],
    }
    part = {
        "height": height,
        "width": inner,
        "layer": _bars(relative, names, "share of the time", [0, 1], ".0%", theme, inner),
    }
    spec: Spec = {"vconcat": [time, part], "spacing": 22, "resolve": {"scale": {"x": "independent"}}}
    return frame(spec, theme, width, title, "Time in Method::execute by operator category")


def _segments(row: tuple[str, dict[str, float]], domain: float, pixels: int, whole: float) -> list[Values]:
    """Return a row's parts laid end to end, with a label where there is room for one."""
    name, parts = row
    total = sum(parts.values()) or 1.0
    found: list[Values] = []
    start = 0.0
    for category, value in parts.items():
        end = start + value / whole
        room = (end - start) / domain * pixels >= _LABEL_PIXELS
        found.append(
            {
                "row": name,
                "category": category,
                "start": start,
                "end": end,
                "middle": (start + end) / 2,
                "label": f"{value / total:.0%}" if room else "",
                "ink": ink_on(category),
            }
        )
        start = end
    return found


def _row(names: list[str]) -> Spec:
    return {"field": "row", "type": "nominal", "sort": names, "axis": None, "scale": {"paddingInner": 0.1}}


def _bars(
    values: list[Values], names: list[str], title: str, domain: list[float], format_: str, theme: Theme, width: int
) -> list[Spec]:
    """Return bars from start to end with labels on them, and each row's name above its bar."""
    x = {"type": "quantitative", "scale": {"domain": domain, "nice": False}}
    axis = {"title": title, "format": format_, "tickCount": 6, "grid": False}
    scale = colour_scale(value["category"] for value in values)
    colour = {
        "field": "category",
        "type": "nominal",
        "scale": scale,
        "legend": {"orient": "top", "title": None, "columns": 3 if len(scale["domain"]) > 3 else 0},
    }
    bar = {
        "mark": {"type": "bar", "height": 24, "yOffset": 6, "stroke": theme.paper, "strokeWidth": 1},
        "encoding": {
            "x": {"field": "start", **x, "axis": axis},
            "x2": {"field": "end"},
            "y": _row(names),
            "color": colour,
        },
    }
    label = {
        "mark": {"type": "text", "dy": 6},
        "encoding": {
            "x": {"field": "middle", **x},
            "y": _row(names),
            "text": {"field": "label"},
            "color": {"field": "ink", "scale": None},
        },
    }
    heading = {
        "data": {"values": [{"row": name} for name in names]},
        "mark": {"type": "text", "align": "left", "dy": -15, "limit": width},
        "encoding": {"x": {"datum": 0, **x}, "y": _row(names), "text": {"field": "row"}},
    }
    return [{"data": {"values": values}, **bar}, {"data": {"values": values}, **label}, heading]
