"""Time against accuracy of the variants that `sme2-kit tune --worst-layers` tried."""

from pathlib import Path

from model_profiling.base import files
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame
from model_profiling.report.drawing.theme import BEFORE, LIGHT, Theme
from model_profiling.report.drawing.vega import draw
from model_profiling.tune.tune_result import TuneResult

_HEIGHT = 300


def write_picture(result: TuneResult, home: Path) -> Path:
    """Draw the variants as SVG and PNG into `home`; returns the PNG."""
    drawing = draw(picture(result, WIDE, LIGHT))
    files.write_bytes(home / "tune_pareto.svg", drawing.svg.encode())
    files.write_bytes(home / "tune_pareto.png", drawing.png)
    return home / "tune_pareto.png"


def picture(result: TuneResult, width: int, theme: Theme) -> Spec:
    """Return a point for each variant; a line joins those that no other beats."""
    points: list[Values] = [
        {"name": entry.name, "ms": entry.median_ms, "db": entry.agreement.sqnr_db, "best": bool(entry.pareto)}
        for entry in result.tried
        if entry.median_ms is not None and entry.agreement is not None and entry.agreement.sqnr_db is not None
    ]
    scale = {"zero": False, "nice": True, "padding": 24}
    x = {"field": "ms", "type": "quantitative", "scale": scale, "axis": {"title": "median latency (ms)"}}
    y = {"field": "db", "type": "quantitative", "scale": scale, "axis": {"title": "SQNR of the outputs (dB)"}}
    colour = {"condition": {"test": "datum.best", "value": theme.after}, "value": BEFORE}
    layers: list[Spec] = [
        {
            "data": {"values": [point for point in points if point["best"]]},
            "mark": {"type": "line", "color": theme.after, "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y, "order": {"field": "ms"}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour},
        },
        {
            "data": {"values": points},
            "mark": {"type": "text", "align": "left", "dx": 8, "dy": -8, "color": theme.text},
            "encoding": {"x": x, "y": y, "text": {"field": "name"}},
        },
    ]
    spec: Spec = {"width": width - 90, "height": _HEIGHT, "layer": layers}
    title = f"{result.model}: layers kept in fp32, time against accuracy"
    return frame(spec, theme, width, title, "Joined: no other is both faster and more accurate")
