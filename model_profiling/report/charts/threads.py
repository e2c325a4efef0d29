"""Latency and speedup by number of threads, each side a line."""

from collections.abc import Sequence
from itertools import cycle, islice

from model_profiling.analysis.process.scaling import ThreadCurve
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, nominal
from model_profiling.report.drawing.theme import BEFORE, CATEGORY_COLOURS, Theme

_HEIGHT = 220
_MARGIN = 62


def threads(sides: Sequence[tuple[str, ThreadCurve]], cpus: int | None, width: int, theme: Theme, title: str) -> Spec:
    """Return two panels: median latency, and the speedup over the fewest threads with interval and ideal line."""
    points: list[Values] = [
        {"side": name, "threads": p.threads, "ms": p.median_ms, "speedup": p.speedup, "low": p.low, "high": p.high}
        for name, curve in sides
        for p in curve.points
    ]
    counts = sorted({int(point["threads"]) for point in points})
    beside = width >= WIDE
    size = {"width": ((width - 40) // 2 if beside else width - 20) - _MARGIN, "height": _HEIGHT}
    room = 0.06 * (counts[-1] - counts[0])
    scale = {"domain": [counts[0] - room, counts[-1] + room], "nice": False, "zero": False}
    axis = {"title": "threads", "values": counts, "format": "d", "grid": False}
    x = {"field": "threads", "type": "quantitative", "scale": scale, "axis": axis}
    names, several = [name for name, _ in sides], len(sides) > 1
    colours = [BEFORE, theme.after, *CATEGORY_COLOURS.values()] if several else [theme.after]
    key = legend(symbolType=None) if several else None
    colour, shape = (
        nominal("side", names, list(islice(cycle(choices), len(names))), key, sort=names)
        for choices in (colours, ["diamond", "circle", "square", "triangle-up", "cross", "triangle-down"])
    )

    def lines(field: str, said: str) -> Spec:
        y = {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": {"title": said, "tickCount": 6}}
        encoding = {"x": x, "y": y, "color": colour}
        dots = layer("point", None, {**encoding, "shape": shape}, filled=True, size=60, opacity=1)
        return {"data": {"values": points}, "layer": [layer("line", None, encoding, strokeWidth=2), dots]}

    limit = [_limit(cpus, x, theme)] if cpus is not None and counts[0] <= cpus < counts[-1] else []
    faster = {"x": x, "y": {"field": "speedup", "type": "quantitative"}}
    dash = {"strokeDash": [4, 4], "strokeWidth": 1.2, "color": theme.quiet}
    perfect = (
        [{"threads": count, "speedup": count / least} for count in (least, counts[-1])]
        for least in sorted({curve.points[0].threads for _, curve in sides})
    )
    bounded = [point for point in points if point["low"] is not None and point["high"] is not None]
    bounds = {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": "high", "color": colour}
    beyond = [*(layer("line", ends, faster, **dash) for ends in perfect), layer("rule", bounded, bounds, strokeWidth=2)]
    panels = [
        {**size, "layer": [*limit, lines("ms", "latency (ms)")]},
        {**size, "layer": [*limit, *beyond, lines("speedup", "times faster")]},
    ]
    spec: Spec = {"hconcat" if beside else "vconcat": panels, "spacing": 26}
    said = "Lines are 95 % intervals; dashed: as many times faster as there are more threads"
    return frame(spec, theme, width, title, said if beside else "Dashed: perfect scaling")


def _limit(cpus: int, x: Spec, theme: Theme) -> Spec:
    """Return where threads begin to wait for each other."""
    mark = {"strokeDash": [2, 3], "color": theme.quiet}
    layers = [
        layer("rule", None, {"x": x}, **mark),
        layer("text", None, {"x": x, "text": "label"}, align="left", dx=4, y=8, color=theme.quiet),
    ]
    return {"data": {"values": [{"threads": cpus, "label": f"{cpus} CPUs" if cpus > 1 else "1 CPU"}]}, "layer": layers}
