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
    chosen = [group for group in groups if group.where != "runtime"][:MOST_OPERATORS]
    values: list[Values] = []
    labels: list[Values] = []
    longest = max((max(e.change.before_ms, e.change.after_ms) for e in chosen), default=1.0) or 1.0
    for place, entry in enumerate(chosen):
        change = entry.change
        text = located_name(counted_name(len(entry.members), entry.name), entry.where)
        labels.append({"place": place, "line": 0, "x": 0.0, "label": text})
        values.append({"place": place, "line": 1, "side": sides[0], "ms": change.before_ms})
        values.append({"place": place, "line": 2, "side": sides[1], "ms": change.after_ms})
        known = numbers.bounded_speedup(change.ratio, change.low, change.high)
        labels.append({"place": place, "line": 2, "x": change.after_ms, "label": known})
    return _operator_bars(
        values, labels, list(sides), [0, longest * (1.25 if width >= WIDE else 1.02)], width, theme, title
    )


def single_operators(entries: Sequence[tuple[str, float, float]], width: int, theme: Theme, title: str) -> Spec:
    """Return the costliest operators of one experiment: one bar each, with its share."""
    chosen = list(entries)[:MOST_OPERATORS]
    values: list[Values] = []
    labels: list[Values] = []
    for place, (name, ms, part) in enumerate(chosen):
        labels.append({"place": place, "line": 0, "x": 0.0, "label": name})
        values.append({"place": place, "line": 1, "side": "time", "ms": ms})
        labels.append({"place": place, "line": 1, "x": ms, "label": numbers.share(part)})
    longest = max((ms for _, ms, _ in chosen), default=1.0) or 1.0
    return _operator_bars(values, labels, ["time"], [0, longest * 1.25], width, theme, title)


def _operator_bars(
    values: list[Values],
    labels: list[Values],
    sides: list[str],
    domain: list[float],
    width: int,
    theme: Theme,
    title: str,
) -> Spec:
    """Return three lines per operator: its name, and a bar for each side; labels beside the bars."""
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
