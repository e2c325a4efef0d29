"""Latency and speedup by number of threads, each side a line."""

from collections.abc import Sequence

from model_profiling.analysis.process.scaling import ThreadCurve
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame
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
    room = ((width - 40) // 2 if beside else width - 20) - _MARGIN
    axes = _Axes(counts, [name for name, _ in sides], room, theme)
    limit = [axes.rule(cpus)] if cpus is not None and counts[0] <= cpus < counts[-1] else []
    latency = axes.panel([*limit, axes.lines(points, "ms", "latency (ms)")])
    fewest = {curve.points[0].threads for _, curve in sides}
    ideal = [axes.ideal(least) for least in sorted(fewest)]
    speedup = axes.panel([*limit, *ideal, axes.intervals(points), axes.lines(points, "speedup", "times faster")])
    spec: Spec = {"hconcat" if beside else "vconcat": [latency, speedup], "spacing": 26}
    said = "Lines are 95 % intervals; dashed: as many times faster as there are more threads"
    return frame(spec, theme, width, title, said if beside else "Dashed: perfect scaling")


class _Axes:
    """What both panels share: the numbers of threads, and how each side is drawn."""

    def __init__(self, counts: list[int], sides: list[str], width: int, theme: Theme) -> None:
        self._counts, self._width, self._theme = counts, width, theme
        room = 0.06 * (counts[-1] - counts[0])
        scale = {"domain": [counts[0] - room, counts[-1] + room], "nice": False, "zero": False}
        axis = {"title": "threads", "values": counts, "format": "d", "grid": False}
        self._x = {"type": "quantitative", "scale": scale, "axis": axis}
        colours = [BEFORE, theme.after, *CATEGORY_COLOURS.values()] if len(sides) > 1 else [theme.after]
        shapes = ["diamond", "circle", "square", "triangle-up", "cross", "triangle-down"]
        legend = {"orient": "top", "title": None, "symbolType": None} if len(sides) > 1 else None
        shown = {"field": "side", "type": "nominal", "sort": sides}
        self._colour = {**shown, "scale": {"domain": sides, "range": _enough(colours, sides)}, "legend": legend}
        self._shape = {**shown, "scale": {"domain": sides, "range": _enough(shapes, sides)}, "legend": legend}

    def panel(self, layers: list[Spec]) -> Spec:
        return {"width": self._width, "height": _HEIGHT, "layer": layers}

    def lines(self, points: list[Values], field: str, title: str) -> Spec:
        y = {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": {"title": title, "tickCount": 6}}
        encoding = {"x": {"field": "threads", **self._x}, "y": y, "color": self._colour}
        return {
            "data": {"values": points},
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 2}, "encoding": encoding},
                {
                    "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                    "encoding": {**encoding, "shape": self._shape},
                },
            ],
        }

    def intervals(self, points: list[Values]) -> Spec:
        bounded = [point for point in points if point["low"] is not None and point["high"] is not None]
        y = {"field": "low", "type": "quantitative"}
        encoding = {"x": {"field": "threads", **self._x}, "y": y, "y2": {"field": "high"}, "color": self._colour}
        return {"data": {"values": bounded}, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": encoding}

    def ideal(self, fewest: int) -> Spec:
        ends = [{"threads": count, "speedup": count / fewest} for count in (fewest, self._counts[-1])]
        return {
            "data": {"values": ends},
            "mark": {"type": "line", "strokeDash": [4, 4], "strokeWidth": 1.2, "color": self._theme.quiet},
            "encoding": {"x": {"field": "threads", **self._x}, "y": {"field": "speedup", "type": "quantitative"}},
        }

    def rule(self, cpus: int) -> Spec:
        """Return where threads begin to wait for each other."""
        at = [{"threads": cpus, "label": f"{cpus} CPUs" if cpus > 1 else "1 CPU"}]
        mark = {"strokeDash": [2, 3], "color": self._theme.quiet}
        return {
            "data": {"values": at},
            "layer": [
                {"mark": {"type": "rule", **mark}, "encoding": {"x": {"field": "threads", **self._x}}},
                {
                    "mark": {"type": "text", "align": "left", "dx": 4, "y": 8, "color": self._theme.quiet},
                    "encoding": {"x": {"field": "threads", **self._x}, "text": {"field": "label"}},
                },
            ],
        }


def _enough(choices: list[str], sides: list[str]) -> list[str]:
    return [choices[place % len(choices)] for place in range(len(sides))]
