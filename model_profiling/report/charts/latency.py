"""Latency by turn, so that drift can be seen, and how executions are distributed."""

from collections.abc import Sequence

import numpy as np

from model_profiling.report.charts.frame import WIDE, Spec, Values, frame
from model_profiling.report.drawing.theme import Theme
from model_profiling.store.run_directory import Turn


def latency(rows: Sequence[tuple[str, list[Turn]]], width: int, theme: Theme, title: str) -> Spec:
    """Return every execution by turn with each turn's median, and beside it how often each latency occurred."""
    beside = 110 if width >= WIDE else 0
    panels: list[Spec] = []
    for name, turns in rows:
        values, low, high = _executions(turns)
        y = {"type": "quantitative", "scale": {"domain": [low, high], "zero": False, "nice": False}}
        panels.append(_panel(name, values, turns, y, width - 60 - (beside + 20 if beside else 0), beside, theme))
    subtitle = (
        "Each dot is one execution, the line joins the medians of turns; triangles are beyond the end of the axis"
    )
    if width < WIDE:
        subtitle = "Dots: executions; line: medians of turns; triangles: above the axis"
    return frame({"vconcat": panels, "spacing": 26}, theme, width, title, subtitle)


def _executions(turns: list[Turn]) -> tuple[list[Values], float, float]:
    """Return each execution's turn and milliseconds, and a range for the axis that a few outliers do not flatten."""
    ms = np.array([ns for turn in turns for ns in turn.ns], dtype=np.float64) / 1e6
    q1, q3 = np.percentile(ms, [25, 75])
    high = min(float(ms.max()), float(q3 + 8 * (q3 - q1)) or float(ms.max()))
    low = float(ms.min())
    room = (high - low) * 0.08 or high * 0.01
    values: list[Values] = []
    for number, turn in enumerate(turns, 1):
        for place, ns in enumerate(turn.ns):
            value = ns / 1e6
            spread = (place + 0.5) / len(turn.ns) - 0.5
            values.append({"turn": number + 0.6 * spread, "ms": min(value, high + room / 2), "beyond": value > high})
    return values, low - room, high + room


def _panel(name: str, values: list[Values], turns: list[Turn], y: Spec, width: int, beside: int, theme: Theme) -> Spec:
    scale = {"domain": [0.5, len(turns) + 0.5], "nice": False}
    axis = {"title": "turn", "tickMinStep": 1, "grid": False, "format": "d"}
    x = {"field": "turn", "type": "quantitative", "scale": scale, "axis": axis}
    ms = {"field": "ms", **y, "axis": {"title": "latency (ms)", "tickCount": 5}}
    medians = [{"turn": n, "ms": float(np.median(turn.ns)) / 1e6} for n, turn in enumerate(turns, 1)]
    shape = {"field": "beyond", "scale": {"domain": [False, True], "range": ["circle", "triangle-up"]}, "legend": None}
    size = {"condition": {"test": "datum.beyond", "value": 60}, "value": 22}
    dots: Spec = {
        "height": 120,
        "width": width,
        "title": {"text": name, "fontSize": 12, "fontWeight": "normal", "offset": 4, "limit": width},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "point", "filled": True, "opacity": 0.55, "color": theme.quiet},
                "encoding": {"x": x, "y": ms, "shape": shape, "size": size},
            },
            {
                "data": {"values": medians},
                "mark": {"type": "line", "strokeWidth": 2, "color": theme.after, "clip": True},
                "encoding": {"x": x, "y": {"field": "ms", **y}},
            },
        ],
    }
    if not beside:
        return dots
    bins = {"maxbins": 24, "extent": y["scale"]["domain"]}
    count: Spec = {
        "height": 120,
        "width": beside,
        "data": {"values": values},
        "mark": {"type": "bar", "color": theme.quiet},
        "encoding": {
            "x": {
                "aggregate": "count",
                "type": "quantitative",
                "axis": {"title": "executions", "tickCount": 3, "grid": False},
            },
            "y": {"field": "ms", "bin": bins, "axis": None, "scale": y["scale"]},
        },
    }
    return {"hconcat": [dots, count], "spacing": 14}
