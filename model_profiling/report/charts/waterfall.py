"""From before to after: what the difference between two programs consists of, step by step."""

from collections.abc import Sequence

from model_profiling.report import numbers
from model_profiling.report.change_words import DifferenceRow
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, shortened, text_width
from model_profiling.report.drawing.theme import BEFORE, FASTER, SLOWER, Theme

_STEP = 38
# Where in its row a bar begins and ends, and where its name stands.
_TOP, _BOTTOM, _NAME = 0.46, 0.9, 0.24
# Where the smallest level is less than this part of the largest, the axis starts at zero.
_FROM_ZERO = 0.75


def waterfall(rows: Sequence[DifferenceRow], sides: tuple[str, str], width: int, theme: Theme, title: str) -> Spec:
    """Return a bar for each row, from where the last one ended; the first and the last bar are the whole before and
    now. `rows` end with that of the whole, as of `difference_rows`. What is not told from noise has no colour."""
    *steps, whole = rows
    inner = width - 40
    levels = [whole.before_ms]
    for step in steps:
        levels.append(levels[-1] + step.after_ms - step.before_ms)
    low = _lowest(levels)
    labels = [step.difference if width >= WIDE else step.difference.split(" (")[0] for step in steps]
    bars = [_bar(f"before: {sides[0]}", (low, levels[0]), numbers.ms(whole.before_ms), BEFORE)]
    for step, label, start, end in zip(steps, labels, levels, levels[1:], strict=False):
        colour = theme.grid if not step.told else FASTER if end < start else SLOWER
        bars.append(_bar(step.name, (start, end), label, colour))
    bars.append(_bar(f"now: {sides[1]}", (low, levels[-1]), numbers.ms(whole.after_ms), BEFORE))
    for number, bar in enumerate(bars):
        bar |= {"top": number + _TOP, "bottom": number + _BOTTOM, "heading": number + _NAME}
        bar["middle"] = number + (_TOP + _BOTTOM) / 2
        bar["name"] = shortened(bar["name"], inner - 6)
    links = [{"level": level, "from": number + _BOTTOM, "to": number + 1 + _TOP} for number, level in enumerate(levels)]
    room = max(text_width(bar["label"]) for bar in bars) + 14
    end = low + (max(levels) - low or 1.0) * inner / max(inner - room, inner / 4)
    # Links go behind names.
    behind = [
        {"low": low, "high": low + (end - low) * min(text_width(bar["name"]) / inner, 1.0), "heading": bar["heading"]}
        for bar in bars
    ]
    x = {"type": "quantitative", "scale": {"domain": [low, end], "nice": False, "zero": False}}
    y = {"type": "quantitative", "scale": {"domain": [len(bars), 0], "nice": False}, "axis": None}
    said = f"time (ms, traced); the axis starts at {low:.3g} ms" if low else "time (ms, traced)"
    spec: Spec = {
        "width": inner,
        "height": _STEP * len(bars),
        "layer": [
            {
                "data": {"values": bars},
                "mark": {"type": "rect", "stroke": theme.quiet, "strokeWidth": 0.6},
                "encoding": {
                    "x": {"field": "low", **x, "axis": {"title": said, "tickCount": 6, "grid": False}},
                    "x2": {"field": "high"},
                    "y": {"field": "top", **y},
                    "y2": {"field": "bottom"},
                    "color": {"field": "colour", "scale": None},
                },
            },
            {
                "data": {"values": links},
                "mark": {"type": "rule", "color": theme.quiet, "strokeDash": [2, 2]},
                "encoding": {"x": {"field": "level", **x}, "y": {"field": "from", **y}, "y2": {"field": "to"}},
            },
            {
                "data": {"values": behind},
                "mark": {"type": "rule", "color": theme.paper, "strokeWidth": 14},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "y": {"field": "heading", **y}},
            },
            _text(bars, "label", {"field": "high", **x}, {"field": "middle", **y}, {"dx": 6, "fontWeight": "bold"}),
            _text(bars, "name", {"datum": low, **x}, {"field": "heading", **y}, {}),
        ],
    }
    return frame(spec, theme, width, title, "Each bar starts where the last one ended; ~ cannot be told from noise")


def _lowest(levels: Sequence[float]) -> float:
    """Return where the axis starts: at zero, or where all levels are near each other a little below them."""
    low, high = min(levels), max(levels)
    return 0.0 if low < _FROM_ZERO * high else max(low - 0.2 * (high - low), 0.0)


def _bar(name: str, ends: tuple[float, float], label: str, colour: str) -> Values:
    return {"name": name, "low": min(ends), "high": max(ends), "label": label, "colour": colour}


def _text(values: list[Values], field: str, x: Spec, y: Spec, mark: Spec) -> Spec:
    style = {"type": "text", "align": "left", "baseline": "middle", **mark}
    return {"data": {"values": values}, "mark": style, "encoding": {"x": x, "y": y, "text": {"field": field}}}
