"""Several runtimes: latency, start-up and peak memory, one panel each."""

from collections.abc import Sequence

from model_profiling.analysis.compare.runtime_comparison import RuntimeComparison, RuntimeRow
from model_profiling.analysis.process.startup import MedianTime
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, linear
from model_profiling.report.charts.placing import shortened, text_width
from model_profiling.report.drawing.theme import BEFORE, Theme

_MIB = 1 << 20
_GAP = 24
_MOST = 12


def runtimes(found: RuntimeComparison, width: int, theme: Theme, title: str) -> Spec:
    """Return a bar for each runtime that was measured, with its interval; what is not known has none."""
    rows = [row for row in found.rows if row.latency is not None][:_MOST]
    peaks = [(row, row.peak_bytes) for row in rows if row.peak_bytes is not None]
    panels = {
        "median latency (ms)": [_time(row, row.latency) for row in rows if row.latency is not None],
        "start-up (ms)": [_time(row, row.startup) for row in rows if row.startup is not None],
        "peak memory (MiB)": [_value(row, peak / _MIB, numbers.mebibytes(peak)) for row, peak in peaks],
    }
    shown = [(name, values) for name, values in panels.items() if values]
    beside = width >= WIDE and len(shown) > 1
    inner = (width - 30 - _GAP * (len(shown) - 1)) // len(shown) if beside else width - 40
    order = [row.name for row in rows]
    for value in (value for _, values in shown for value in values):
        ranked = theme.after if value["ranked"] else theme.grid
        value["colour"] = BEFORE if value["row"] == found.baseline else ranked
        value["label"] = shortened(value["label"], inner)
    drawn = [_panel(name, values, order, inner, theme) for name, values in shown]
    spec: Spec = {("hconcat" if beside else "vconcat"): drawn, "spacing": _GAP}
    return frame(spec, theme, width, title, "Lines are 95 % intervals")


def _time(row: RuntimeRow, time: MedianTime) -> Values:
    low, high = (time.low_ms, time.high_ms) if time.low_ms is not None and time.high_ms is not None else (None, None)
    return _value(row, time.median_ms, numbers.ms(time.median_ms), low, high)


def _value(row: RuntimeRow, value: float, shown: str, low: float | None = None, high: float | None = None) -> Values:
    end = value if high is None else max(value, high)
    label = {"row": row.name, "label": row.label, "ranked": row.ranked}
    return {**label, "value": value, "shown": shown, "low": low, "high": high, "end": end}


def _panel(name: str, values: list[Values], order: Sequence[str], width: int, theme: Theme) -> Spec:
    room = max(text_width(value["shown"]) for value in values) + 12
    top = (max(value["end"] for value in values) or 1.0) * width / max(width - room, width / 4)
    x = linear(0, top)
    y = {"field": "row", "type": "nominal", "scale": {"domain": list(order)}, "axis": None}
    value = {"field": "value", **x, "axis": {"title": name, "tickCount": 4, "grid": False}}
    bar = {"height": 12, "yOffset": 8, "stroke": theme.quiet, "strokeWidth": 0.6}
    start, low, end = {"datum": 0, **x}, {"field": "low", **x}, {"field": "end", **x}
    known = {"transform": [{"filter": "datum.low !== null"}]}
    interval = layer("rule", None, {"x": low, "x2": "high", "y": y}, strokeWidth=2, yOffset=8, color=theme.text)
    layers = [
        layer("bar", None, {"x": value, "y": y, "color": {"field": "colour", "scale": None}}, **bar),
        {**known, **interval},
        layer("text", None, {"x": end, "y": y, "text": "shown"}, align="left", dx=6, dy=8, fontWeight="bold"),
        layer("text", None, {"x": start, "y": y, "text": "label"}, align="left", dy=-8, limit=width),
    ]
    return {"width": width, "height": {"step": 42}, "data": {"values": values}, "layer": layers}
