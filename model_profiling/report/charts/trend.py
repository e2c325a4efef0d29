"""Latency of one series over its runs: each with its spread, and the steps in it."""

import itertools
import json
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from model_profiling.report import numbers
from model_profiling.report.blocks import address
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, linear
from model_profiling.report.charts.placing import Flag, flag_lines, text_width
from model_profiling.report.drawing.theme import Theme

_HEIGHT = 190
_MARGIN = 90
_TICKS = 6
_POINT = re.compile(r'<path [^<>]*aria-roledescription="point"[^<>]*/>')
# Okabe and Ito's vermillion and bluish green.
WORSE, BETTER = "#D55E00", "#009E73"
# The axis spans at least so many times the noise between runs, and this part of the median: what differs by less than
# the noise then looks small.
_NOISES, _LEAST_SPAN = 12, 0.2
# What would show less than this part of the axis above zero starts at zero.
_NEAR_ZERO = 0.6
_LINE_HEIGHT = 13


class Dot(NamedTuple):
    """One run; `text` is what it stands for."""

    created: str
    ms: float
    spread_ms: float
    text: str


class StepMark(NamedTuple):
    """A step: from the run at `place` on. What is `certain` is drawn as a line, a candidate dashed."""

    place: int
    before_ms: float
    after_ms: float
    certain: bool
    change: str
    state: str

    def label(self, width: int) -> str:
        """Return what a picture has room for; a narrow one leaves the state to the text around it."""
        return f"{self.change}, {self.state}" if width >= WIDE else self.change


class Axis(NamedTuple):
    """The part of the latencies that is shown, and the noise between runs that it follows from."""

    low: float
    high: float
    noise: float

    @property
    def words(self) -> str:
        """How to read it."""
        if not self.low:
            return "The axis starts at zero."
        return (
            f"The axis does not start at zero: it spans {numbers.ms(self.high - self.low)}, at least {_NOISES} times "
            f"the noise between runs ({numbers.ms(self.noise)}) and {_LEAST_SPAN:.0%} of the latency."
        )


def trend(dots: Sequence[Dot], edges: Sequence[StepMark], width: int, theme: Theme, title: str) -> Spec:
    """Return runs in order; a line for the median between steps, and a mark at each step."""
    shown, plot = axis_of(dots), width - _MARGIN
    labels = [edge.label(width) for edge in edges]
    names, lines = _step_names(labels, [plot * edge.place / len(dots) for edge in edges], plot)
    # Above the plot, the steps are named.
    top = shown.high + (shown.high - shown.low) * lines * _LINE_HEIGHT / _HEIGHT
    y = linear(shown.low, top, zero=False)
    axis = {"title": "median latency (ms)", "tickCount": 5}
    x = {"field": "run", "type": "quantitative", **_times(dots, 3 if width < WIDE else _TICKS)}
    points = [_point(place, dot, shown) for place, dot in enumerate(dots)]
    # Wide and pale, so that nobody takes it for a line of the grid.
    bar = {"strokeWidth": min(max(0.6 * plot / len(dots), 1.5), 12), "opacity": 0.3, "color": theme.after}
    spans = {"x": x, "y": {"field": "low", **y, "axis": axis}, "y2": "high"}
    medians = {"x": {**x, "field": "from"}, "x2": "to", "y": {"field": "ms", **y}}
    shape = {"condition": {"test": "datum.beyond", "value": "triangle-up"}, "value": "circle"}
    size = {"value": min(max(9 * plot / len(dots), 12), 38)}
    runs = {"x": x, "y": {"field": "ms", **y}, "size": size, "description": "text", "shape": shape}
    layers = [
        layer("rule", points, spans, **bar, clip=True),
        layer("rule", _levels(dots, edges), medians, color=theme.text, strokeWidth=1.5, clip=True),
        layer("point", points, runs, filled=True, opacity=0.9, color=theme.after),
        *(_edge(*each, x, theme) for each in zip(edges, labels, names, strict=True)),
    ]
    spec: Spec = {"width": plot, "height": _HEIGHT + lines * _LINE_HEIGHT, "layer": layers}
    return frame(spec, theme, width, title, f"Bars: spread (MAD). {shown.words}" if width >= WIDE else "")


def add_links(svg: str, hrefs: Sequence[str]) -> str:
    """Return a drawn picture whose points are links, in order; '' for none. Vega-Lite would make them absolute."""
    places: Iterator[str] = iter(hrefs)

    def around(mark: re.Match[str]) -> str:
        href = next(places, "")
        return f'<a href="{address(href)}">{mark[0]}</a>' if href else mark[0]

    return _POINT.sub(around, svg)


def axis_of(dots: Sequence[Dot]) -> Axis:
    """Return the part of the axis that is shown: all medians, unless a few are far above the others, and enough beside
    them that noise does not look like change."""
    values = sorted(dot.ms for dot in dots)
    middle, quarter = statistics.median(values), len(values) // 4
    reach = values[-1 - quarter] + 4 * (values[-1 - quarter] - values[quarter])
    high = min(values[-1], reach) if reach > values[-1 - quarter] else values[-1]
    between = [abs(one.ms - other.ms) for one, other in itertools.pairwise(dots)]
    noise = max(statistics.median(between) if between else 0.0, statistics.median(dot.spread_ms for dot in dots))
    span = max((high - values[0]) * 1.25, _NOISES * noise, _LEAST_SPAN * middle) or 1.0
    low = (values[0] + high - span) / 2
    if low < (1 - _NEAR_ZERO) * middle:
        return Axis(0.0, max(high * 1.1, span / 2) or 1.0, noise)
    return Axis(low, low + span, noise)


def _times(dots: Sequence[Dot], most: int) -> Spec:
    """Return an axis of runs, with their days at a few of them; and times, where a day has several."""
    last = len(dots)
    step = max(1, -(-(last - 1) // max(most - 1, 1)))
    ticks = list(range(1, last + 1, step))
    moments = [dot.created.replace("T", " ") for dot in dots]
    letters = next((n for n in (10, 16) if len({moment[:n] for moment in moments}) == last), 19)
    texts = {str(place): moments[place - 1][:letters].split(" ") for place in ticks}
    scale = {"domain": [0.5, last + 0.5], "nice": False}
    axis = {"title": None, "values": ticks, "grid": False, "labelExpr": f"{json.dumps(texts)}[datum.value]"}
    return {"scale": scale, "axis": axis}


def _point(place: int, dot: Dot, axis: Axis) -> Values:
    shown = min(dot.ms, axis.high - (axis.high - axis.low) * 0.02)
    bounds = {"low": max(dot.ms - dot.spread_ms, axis.low), "high": min(dot.ms + dot.spread_ms, axis.high)}
    return {"run": place + 1, "ms": shown, "text": dot.text, "beyond": dot.ms > axis.high, **bounds}


def _levels(dots: Sequence[Dot], edges: Sequence[StepMark]) -> list[Values]:
    """Return the median before, between and after steps."""
    places = [0, *(edge.place for edge in edges), len(dots)]
    medians = [*(edge.before_ms for edge in edges), *(edge.after_ms for edge in edges[-1:])]
    spans = zip(places, places[1:], medians, strict=False)
    return [{"from": start + 0.7, "to": end + 0.3, "ms": ms} for start, end, ms in spans]


class _StepName(NamedTuple):
    """Where the name of a step stands: on which side of its mark, and how far from it and down."""

    align: str
    dx: int
    y: float


def _step_names(labels: Sequence[str], places: Sequence[float], plot: int) -> tuple[list[_StepName], int]:
    """Return where names stand so that none is over another or outside, and how many lines they take."""
    widths = [text_width(label) + 8 for label in labels]
    flags = [Flag(at, at - wide if at > plot / 2 else at, wide) for at, wide in zip(places, widths, strict=True)]
    lines, sides = flag_lines(flags), [("right", -4) if flag.leftwards else ("left", 4) for flag in flags]
    names = [_StepName(*side, 6 + line * _LINE_HEIGHT) for side, line in zip(sides, lines, strict=True)]
    return names, max(lines, default=-1) + 1


def _edge(edge: StepMark, label: str, name: _StepName, x: Spec, theme: Theme) -> Spec:
    colour = (WORSE if edge.after_ms > edge.before_ms else BETTER) if edge.certain else theme.text
    dash = {} if edge.certain else {"strokeDash": [4, 4]}
    height = {"x": x, "y": {"value": name.y - 6}, "y2": {"value": "height"}}
    layers = [
        layer("rule", None, height, color=colour, strokeWidth=1.5, **dash),
        layer("text", None, {"x": x, "text": "label"}, color=colour, **name._asdict()),
    ]
    return {"data": {"values": [{"run": edge.place + 0.5, "label": label}]}, "layer": layers}
