"""Latency by turn, so that drift can be seen, and how executions are distributed."""

from collections.abc import Sequence

import numpy as np

from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, linear
from model_profiling.report.drawing.theme import Theme
from model_profiling.store.run_directory import Turn

# Beside the executions, how often each latency occurred.
_BESIDE = 110


def latency(rows: Sequence[tuple[str, list[Turn]]], width: int, theme: Theme, title: str) -> Spec:
    """Return every execution by turn with each turn's median, and beside it how often each latency occurred."""
    panels = [_panel(name, turns, width, theme) for name, turns in rows]
    said = "Each dot is one execution, the line joins the medians of turns; triangles are beyond the end of the axis"
    short = "Dots: executions; line: medians of turns; triangles: above the axis"
    return frame({"vconcat": panels, "spacing": 26}, theme, width, title, said if width >= WIDE else short)


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
            value, spread = ns / 1e6, (place + 0.5) / len(turn.ns) - 0.5
            values.append({"turn": number + 0.6 * spread, "ms": min(value, high + room / 2), "beyond": value > high})
    return values, low - room, high + room


def _panel(name: str, turns: list[Turn], width: int, theme: Theme) -> Spec:
    values, low, high = _executions(turns)
    y = linear(low, high, zero=False)
    axis = {"title": "turn", "tickMinStep": 1, "grid": False, "format": "d"}
    x = {"field": "turn", **linear(0.5, len(turns) + 0.5), "axis": axis}
    medians = [{"turn": n, "ms": float(np.median(turn.ns)) / 1e6} for n, turn in enumerate(turns, 1)]
    shapes = {"domain": [False, True], "range": ["circle", "triangle-up"]}
    encoding = {
        "x": x,
        "y": {"field": "ms", **y, "axis": {"title": "latency (ms)", "tickCount": 5}},
        "shape": {"field": "beyond", "scale": shapes, "legend": None},
        "size": {"condition": {"test": "datum.beyond", "value": 60}, "value": 22},
    }
    line = {"x": x, "y": {"field": "ms", **y}}
    inner = width - 60 - (_BESIDE + 20 if width >= WIDE else 0)
    dots: Spec = {
        "height": 120,
        "width": inner,
        "title": {"text": name, "fontSize": 12, "fontWeight": "normal", "offset": 4, "limit": inner},
        "layer": [
            layer("point", values, encoding, filled=True, opacity=0.55, color=theme.quiet),
            layer("line", medians, line, strokeWidth=2, color=theme.after, clip=True),
        ],
    }
    if width < WIDE:
        return dots
    axis = {"title": "executions", "tickCount": 3, "grid": False}
    count = {
        "x": {"aggregate": "count", "type": "quantitative", "axis": axis},
        "y": {"field": "ms", "bin": {"maxbins": 24, "extent": [low, high]}, "axis": None, "scale": y["scale"]},
    }
    beside = {"height": 120, "width": _BESIDE, **layer("bar", values, count, color=theme.quiet)}
    return {"hconcat": [dots, beside], "spacing": 14}


def speedups(rows: Sequence[tuple[str, float, float, float]], width: int, theme: Theme, title: str) -> Spec:
    """Return how many times faster, run by run, with intervals; one is no difference."""
    names = ("run", "ratio", "low", "high", "label")
    values = [dict(zip(names, (*row, numbers.speedup(*row[1:])), strict=True)) for row in rows]
    y = {"field": "run", "type": "nominal", "sort": [r[0] for r in rows], "axis": None}
    x = linear(0, max([high for *_, high in rows] + [1.0]) * 1.15)
    axis = {"title": "times faster (1: no difference)", "tickCount": 6, "grid": False}
    start, one, ratio, low, high = {"datum": 0, **x}, *({"field": n, **x} for n in ("one", "ratio", "low", "high"))
    layers = [
        layer("bar", None, {"x": {**ratio, "axis": axis}, "y": y}, height=12, yOffset=8, color=theme.after),
        layer("rule", None, {"x": low, "x2": "high", "y": y}, strokeWidth=2, yOffset=8, color=theme.text),
        layer("text", None, {"x": high, "y": y, "text": "label"}, align="left", dx=8, dy=8, fontWeight="bold"),
        layer("text", None, {"x": start, "y": y, "text": "run"}, align="left", dy=-9, limit=width - 50),
        layer("rule", [{"one": 1}], {"x": one}, strokeDash=[4, 4], color=theme.quiet),
    ]
    spec: Spec = {"width": width - 40, "height": {"step": 46}, "data": {"values": values}, "layer": layers}
    return frame(spec, theme, width, title, "Lines are 95 % intervals")
