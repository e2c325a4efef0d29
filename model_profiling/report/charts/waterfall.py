"""From before to after: what the difference between two programs consists of, step by step."""

from collections.abc import Sequence

from model_profiling.report import numbers
from model_profiling.report.change_words import DifferenceRow
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer, linear
from model_profiling.report.charts.placing import shortened, text_width
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
    # Where all levels are near each other, the axis starts a little below them.
    least, most = min(levels), max(levels)
    low = 0.0 if least < _FROM_ZERO * most else max(least - 0.2 * (most - least), 0.0)
    labels = [step.difference if width >= WIDE else step.difference.split(" (")[0] for step in steps]
    bars = [_bar(f"before: {sides[0]}", (low, levels[0]), numbers.ms(whole.before_ms), BEFORE)]
    for step, label, start, end in zip(steps, labels, levels, levels[1:], strict=False):
        colour = theme.grid if not step.told else FASTER if end < start else SLOWER
        bars.append(_bar(step.name, (start, end), label, colour))
    bars.append(_bar(f"now: {sides[1]}", (low, levels[-1]), numbers.ms(whole.after_ms), BEFORE))
    for number, bar in enumerate(bars):
        bar |= {"top": number + _TOP, "bottom": number + _BOTTOM, "heading": number + _NAME}
        bar |= {"middle": number + (_TOP + _BOTTOM) / 2, "name": shortened(bar["name"], inner - 6)}
    links = [{"level": level, "from": number + _BOTTOM, "to": number + 1 + _TOP} for number, level in enumerate(levels)]
    room = max(text_width(bar["label"]) for bar in bars) + 14
    end = low + (max(levels) - low or 1.0) * inner / max(inner - room, inner / 4)
    # Links go behind names.
    covered = [low + (end - low) * min(text_width(bar["name"]) / inner, 1.0) for bar in bars]
    behind = [{"low": low, "high": to, "heading": bar["heading"]} for bar, to in zip(bars, covered, strict=True)]
    x = linear(low, end, zero=False)
    y = {**linear(len(bars), 0), "axis": None}
    said = f"time (ms, traced); the axis starts at {low:.3g} ms" if low else "time (ms, traced)"
    left, heading, top = {"field": "low", **x}, {"field": "heading", **y}, {"field": "top", **y}
    axis, fill = {"title": said, "tickCount": 6, "grid": False}, {"field": "colour", "scale": None}
    boxes = {"x": {**left, "axis": axis}, "x2": "high", "y": top, "y2": "bottom", "color": fill}
    steps_down = {"x": {"field": "level", **x}, "y": {"field": "from", **y}, "y2": "to"}
    differences = {"x": {"field": "high", **x}, "y": {"field": "middle", **y}, "text": "label"}
    names = {"x": {"datum": low, **x}, "y": heading, "text": "name"}
    text = {"align": "left", "baseline": "middle"}
    layers = [
        layer("rect", bars, boxes, stroke=theme.quiet, strokeWidth=0.6),
        layer("rule", links, steps_down, color=theme.quiet, strokeDash=[2, 2]),
        layer("rule", behind, {"x": left, "x2": "high", "y": heading}, color=theme.paper, strokeWidth=14),
        layer("text", bars, differences, **text, dx=6, fontWeight="bold"),
        layer("text", bars, names, **text),
    ]
    spec: Spec = {"width": inner, "height": _STEP * len(bars), "layer": layers}
    return frame(spec, theme, width, title, "Each bar starts where the last one ended; ~ cannot be told from noise")


def _bar(name: str, ends: tuple[float, float], label: str, colour: str) -> Values:
    return {"name": name, "low": min(ends), "high": max(ends), "label": label, "colour": colour}
