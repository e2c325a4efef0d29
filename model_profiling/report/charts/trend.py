"""Latency of one series over its runs: each with its spread, and the steps in it."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from model_profiling.report.blocks import address
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame
from model_profiling.report.drawing.theme import Theme

_HEIGHT = 190
_TICKS = 6
_POINT = re.compile(r'<path [^<>]*aria-roledescription="point"[^<>]*/>')
# Okabe and Ito's vermillion and bluish green.
WORSE, BETTER = "#D55E00", "#009E73"


class Dot(NamedTuple):
    """One run; `text` is what it stands for."""

    day: str
    ms: float
    spread_ms: float
    text: str


class StepMark(NamedTuple):
    """A step: from the run at `place` on. What is `certain` is drawn as a line, a candidate dashed."""

    place: int
    before_ms: float
    after_ms: float
    certain: bool
    label: str


def trend(dots: Sequence[Dot], edges: Sequence[StepMark], width: int, theme: Theme, title: str) -> Spec:
    """Return runs in order; a line for the median between steps, and a mark at each step."""
    low, high = _range(dots)
    y = {"type": "quantitative", "scale": {"domain": [low, high], "zero": False, "nice": False}}
    axis = {"title": "median latency (ms)", "tickCount": 5}
    x = {"field": "run", "type": "quantitative", **_days(dots, 3 if width < WIDE else _TICKS)}
    points = [_point(place, dot, low, high) for place, dot in enumerate(dots)]
    layers: list[Spec] = [
        {
            "data": {"values": points},
            "mark": {"type": "rule", "color": theme.quiet, "opacity": 0.45, "clip": True},
            "encoding": {"x": x, "y": {"field": "low", **y, "axis": axis}, "y2": {"field": "high"}},
        },
        {
            "data": {"values": _levels(dots, edges)},
            "mark": {"type": "rule", "color": theme.after, "strokeWidth": 2, "clip": True},
            "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": {"field": "ms", **y}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "opacity": 0.9, "size": 38, "color": theme.after},
            "encoding": {
                "x": x,
                "y": {"field": "ms", **y},
                "description": {"field": "text"},
                "shape": {"condition": {"test": "datum.beyond", "value": "triangle-up"}, "value": "circle"},
            },
        },
        *(_edge(edge, x, theme) for edge in edges),
    ]
    spec: Spec = {"width": width - 90, "height": _HEIGHT, "layer": layers}
    return frame(spec, theme, width, title, "Each point is a run with its spread; dashed: a candidate")


def add_links(svg: str, hrefs: Sequence[str]) -> str:
    """Return a drawn picture whose points are links, in order; '' for none. Vega-Lite would make them absolute."""
    places: Iterator[str] = iter(hrefs)

    def around(mark: re.Match[str]) -> str:
        href = next(places, "")
        return f'<a href="{address(href)}">{mark[0]}</a>' if href else mark[0]

    return _POINT.sub(around, svg)


def _range(dots: Sequence[Dot]) -> tuple[float, float]:
    """Return the part of the axis that is shown: all medians, unless a few are far above the others."""
    values = sorted(dot.ms for dot in dots)
    quarter = len(values) // 4
    reach = values[-1 - quarter] + 4 * (values[-1 - quarter] - values[quarter])
    high = min(values[-1], reach) if reach > values[-1 - quarter] else values[-1]
    room = (high - values[0]) * 0.15 or high * 0.02
    # Above, the steps are named.
    return values[0] - room, high + 2 * room


def _days(dots: Sequence[Dot], most: int) -> Spec:
    """Return an axis of runs, with their days at a few of them."""
    last = len(dots)
    step = max(1, round((last - 1) / max(most - 1, 1)))
    ticks = list(range(1, last + 1, step))
    texts = {str(place): dots[place - 1].day for place in ticks}
    scale = {"domain": [0.5, last + 0.5], "nice": False}
    axis = {"title": None, "values": ticks, "grid": False, "labelExpr": f"{json.dumps(texts)}[datum.value]"}
    return {"scale": scale, "axis": axis}


def _point(place: int, dot: Dot, low: float, high: float) -> Values:
    shown = min(dot.ms, high - (high - low) * 0.02)
    bounds = {"low": max(dot.ms - dot.spread_ms, low), "high": min(dot.ms + dot.spread_ms, high)}
    return {"run": place + 1, "ms": shown, "text": dot.text, "beyond": dot.ms > high, **bounds}


def _levels(dots: Sequence[Dot], edges: Sequence[StepMark]) -> list[Values]:
    """Return the median before, between and after steps."""
    places = [0, *(edge.place for edge in edges), len(dots)]
    medians = [*(edge.before_ms for edge in edges), *(edge.after_ms for edge in edges[-1:])]
    spans = zip(places, places[1:], medians, strict=False)
    return [{"from": start + 0.7, "to": end + 0.3, "ms": ms} for start, end, ms in spans]


def _edge(edge: StepMark, x: Spec, theme: Theme) -> Spec:
    colour = (WORSE if edge.after_ms > edge.before_ms else BETTER) if edge.certain else theme.text
    at = [{"run": edge.place + 0.5, "label": edge.label}]
    dash = {} if edge.certain else {"strokeDash": [4, 4]}
    text = {"type": "text", "align": "left", "dx": 4, "y": 8, "color": colour if edge.certain else theme.text}
    return {
        "data": {"values": at},
        "layer": [
            {"mark": {"type": "rule", "color": colour, "strokeWidth": 2, **dash}, "encoding": {"x": x}},
            {"mark": text, "encoding": {"x": x, "text": {"field": "label"}}},
        ],
    }
