"""How many times faster, run by run."""

from collections.abc import Sequence

from model_profiling.report import numbers
from model_profiling.report.charts.frame import Spec, frame
from model_profiling.report.drawing.theme import Theme


def speedups(rows: Sequence[tuple[str, float, float, float]], width: int, theme: Theme, title: str) -> Spec:
    """Return how many times faster, run by run, with intervals; one is no difference."""
    values = [
        {"run": n, "ratio": r, "low": low, "high": high, "label": numbers.speedup(r, low, high)}
        for n, r, low, high in rows
    ]
    y = {"field": "run", "type": "nominal", "sort": [r[0] for r in rows], "axis": None}
    top = max([high for *_, high in rows] + [1.0]) * 1.15
    x = {"type": "quantitative", "scale": {"domain": [0, top], "nice": False}}
    axis = {"title": "times faster (1: no difference)", "tickCount": 6, "grid": False}
    bar = {"mark": {"type": "bar", "height": 12, "yOffset": 8, "color": theme.after}}
    spec: Spec = {
        "width": width - 40,
        "height": {"step": 46},
        "data": {"values": values},
        "layer": [
            {**bar, "encoding": {"x": {"field": "ratio", **x, "axis": axis}, "y": y}},
            {
                "mark": {"type": "rule", "strokeWidth": 2, "yOffset": 8, "color": theme.text},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 8, "dy": 8, "fontWeight": "bold"},
                "encoding": {"x": {"field": "high", **x}, "y": y, "text": {"field": "label"}},
            },
            {
                "mark": {"type": "text", "align": "left", "dy": -9, "limit": width - 50},
                "encoding": {"x": {"datum": 0, **x}, "y": y, "text": {"field": "run"}},
            },
            {
                "data": {"values": [{"one": 1}]},
                "mark": {"type": "rule", "strokeDash": [4, 4], "color": theme.quiet},
                "encoding": {"x": {"field": "one", **x}},
            },
        ],
    }
    return frame(spec, theme, width, title, "Lines are 95 % intervals")
