"""The costliest operators, before and after."""

from collections.abc import Sequence

from model_profiling.analysis.compare.grouping import OperatorGroup
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame
from model_profiling.report.drawing.theme import BEFORE, WHITE, Theme
from model_profiling.report.words import counted_name, located_name

MOST_OPERATORS = 12


def operators(groups: Sequence[OperatorGroup], sides: tuple[str, str], width: int, theme: Theme, title: str) -> Spec:
    """Return the costliest operators: two bars each, and how many times faster with its interval."""
    bars = [
        (
            located_name(counted_name(len(group.members), group.name), group.where),
            [group.change.before_ms, group.change.after_ms],
            numbers.bounded_speedup(group.change.ratio, group.change.low, group.change.high),
        )
        for group in groups
        if group.where != "runtime"
    ]
    return _operator_bars(bars, list(sides), 1.25 if width >= WIDE else 1.02, width, theme, title)


def single_operators(entries: Sequence[tuple[str, float, float]], width: int, theme: Theme, title: str) -> Spec:
    """Return the costliest operators of one experiment: one bar each, with its share."""
    bars = [(name, [ms], numbers.share(part)) for name, ms, part in entries]
    return _operator_bars(bars, ["time"], 1.25, width, theme, title)


def _operator_bars(
    bars: Sequence[tuple[str, list[float], str]], sides: list[str], room: float, width: int, theme: Theme, title: str
) -> Spec:
    """Return the first operators, a few lines each: the name, a bar for each side, and a label beside the last bar.

    `room` is how much longer than the longest bar the axis is.
    """
    values: list[Values] = []
    labels: list[Values] = []
    for number, (name, times, label) in enumerate(bars[:MOST_OPERATORS]):
        values += [
            {"place": number, "line": row, "side": side, "ms": ms}
            for row, (side, ms) in enumerate(zip(sides, times, strict=True), 1)
        ]
        labels.append({"place": number, "line": 0, "x": 0.0, "label": name})
        labels.append({"place": number, "line": len(sides), "x": times[-1], "label": label})
    domain = [0, (max((value["ms"] for value in values), default=1.0) or 1.0) * room]
    lines = list(range(len(sides) + 1))
    place = {"field": "place", "type": "ordinal", "axis": None, "scale": {"paddingInner": 0.25}}
    line = {"field": "line", "type": "ordinal", "scale": {"domain": lines, "paddingInner": 0.05}}
    x = {"type": "quantitative", "scale": {"domain": domain, "nice": False, "clamp": False}}
    colours = [BEFORE, theme.after] if len(sides) == 2 else [theme.after]
    legend = {"orient": "top", "title": None} if len(sides) == 2 else None
    # A label goes behind its bar, or into it where there is no room behind.
    fits = domain[1] * (1 - 150 / (width - 40))
    outside = [label for label in labels if label["x"] <= fits]
    inside = [label for label in labels if label["x"] > fits]
    encoding = {"x": {"field": "x", **x}, "y": place, "yOffset": line, "text": {"field": "label"}}
    spec: Spec = {
        "width": width - 40,
        "height": {"step": 15, "for": "offset"},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar"},
                "encoding": {
                    "x": {"field": "ms", **x, "axis": {"title": "time (ms, traced)", "tickCount": 6}},
                    "y": place,
                    "yOffset": line,
                    "color": {"field": "side", "scale": {"domain": sides, "range": colours}, "legend": legend},
                },
            },
            _labels(outside, {"align": "left", "dx": 3}, width, encoding),
            _labels(inside, {"align": "right", "dx": -4, "color": WHITE}, width, encoding),
        ],
    }
    return frame(
        spec, theme, width, title, "Costliest first; in parentheses the 95 % interval" if len(sides) == 2 else ""
    )


def _labels(values: list[Values], mark: Spec, width: int, encoding: Spec) -> Spec:
    return {"data": {"values": values}, "mark": {"type": "text", "limit": width - 60, **mark}, "encoding": encoding}
