"""The costliest operators, before and after."""

from collections.abc import Sequence

from model_profiling.analysis.compare.comparison import OperatorGroup
from model_profiling.report import numbers
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, legend, linear, nominal
from model_profiling.report.drawing.theme import BEFORE, WHITE, Theme
from model_profiling.report.words import operator_name

MOST_OPERATORS = 12


def operators(groups: Sequence[OperatorGroup], sides: tuple[str, str], width: int, theme: Theme, title: str) -> Spec:
    """Return the costliest operators: two bars each, and how many times faster with its interval."""
    bars = []
    for group in (each for each in groups if each.where != "runtime"):
        change, name = group.change, operator_name(group.name, group.where, len(group.members))
        bars.append((name, [change.before_ms, change.after_ms], numbers.speedup_cell(change).shown))
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
        # A dash, where nothing is known, is left out.
        labels.append({"place": number, "line": len(sides), "x": times[-1], "label": label.strip("-")})
    longest = (max((value["ms"] for value in values), default=1.0) or 1.0) * room
    place = {"field": "place", "type": "ordinal", "axis": None, "scale": {"paddingInner": 0.25}}
    scale = {"domain": list(range(len(sides) + 1)), "paddingInner": 0.05}
    line = {"field": "line", "type": "ordinal", "scale": scale}
    x, two = linear(0, longest, clamp=False), len(sides) == 2
    colour = nominal("side", sides, [BEFORE, theme.after][-len(sides) :], legend() if two else None)
    # A label goes behind its bar, or into it where there is no room behind.
    fits = longest * (1 - 150 / (width - 40))
    outside, inside = ([label for label in labels if (label["x"] > fits) is over] for over in (False, True))
    time = {"field": "ms", **x, "axis": {"title": "time (ms, traced)", "tickCount": 6}}
    text = {"x": {"field": "x", **x}, "y": place, "yOffset": line, "text": "label"}
    layers = [
        layer("bar", values, {"x": time, "y": place, "yOffset": line, "color": colour}),
        layer("text", outside, text, limit=width - 60, align="left", dx=3),
        layer("text", inside, text, limit=width - 60, align="right", dx=-4, color=WHITE),
    ]
    spec: Spec = {"width": width - 40, "height": {"step": 15, "for": "offset"}, "layer": layers}
    return frame(spec, theme, width, title, "Costliest first; in parentheses the 95 % interval" if two else "")
