"""Latency of many programs on many targets: off and on, and as SME2 is predicted to change it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from model_profiling.report import numbers
from model_profiling.report.charts.frame import Spec, Values, frame, layer, legend, linear, log_ticks, nominal
from model_profiling.report.charts.placing import shortened, text_width
from model_profiling.report.drawing.theme import BEFORE, Theme

OFF, ON, PREDICTED = "off", "on", "on, with SME2 (predicted)"
_COLOUR_OF_PREDICTED = "#009E73"
# Past this, a linear axis would press the fast programs together.
_LINEAR = 8.0
_STEP = 36


class Bounded(NamedTuple):
    """A latency in milliseconds, and the ends of its whisker."""

    ms: float
    low: float
    high: float


class ProgramLatency(NamedTuple):
    """One program on one target; by OFF, ON and PREDICTED those that are known. `state` says why there are none."""

    model: str
    variant: str
    latencies: Mapping[str, Bounded]
    state: str = ""

    def label(self, pixels: float) -> str:
        """Return what fits, of the variant all."""
        rest = f" {self.variant}: {self.state}" if self.state else f" {self.variant}"
        return shortened(shortened(self.model, pixels - text_width(rest)) + rest, pixels)


def is_logarithmic(panels: Mapping[str, Sequence[ProgramLatency]]) -> bool:
    low, high = _ends(panels)
    return high > _LINEAR * low


def programs(
    panels: Mapping[str, Sequence[ProgramLatency]], width: int, theme: Theme, title: str, most: int
) -> Spec | None:
    """Return a panel for each target, with a row for each of the first `most` programs; None without any latency."""
    known = {name for rows in panels.values() for row in rows for name in row.latencies}
    if not known:
        return None
    low, high = _ends(panels)
    logarithmic = is_logarithmic(panels)
    domain = [low / 1.4, high * 1.25] if logarithmic else [0.0, high * 1.08]
    kind: Spec = {"type": "log"} if logarithmic else {}
    x, said = linear(*domain, **kind), "latency (ms, logarithmic)" if logarithmic else "latency (ms)"
    axis: Spec = {"title": said, "format": "~g", "labelOverlap": True}
    axis |= {"values": log_ticks(*domain)} if logarithmic else {"tickCount": 6 if width > 500 else 4}
    names = [name for name in (OFF, ON, PREDICTED) if name in known]
    drawn = [
        _panel(target if len(panels) > 1 else "", rows[:most], x, axis, names, width, theme)
        for target, rows in panels.items()
    ]
    spec: Spec = {"vconcat": drawn, "spacing": 18}
    return frame(spec, theme, width, title, "Whiskers hold half of the executions; of a prediction, its range")


def _ends(panels: Mapping[str, Sequence[ProgramLatency]]) -> tuple[float, float]:
    found = [bounded for rows in panels.values() for row in rows for bounded in row.latencies.values()]
    high = max((bounded.high for bounded in found), default=1.0)
    return max(min((bounded.low for bounded in found), default=high), high / 1e6), high


def _panel(
    target: str, rows: Sequence[ProgramLatency], x: Spec, axis: Spec, names: list[str], width: int, theme: Theme
) -> Spec:
    values: list[Values] = []
    spans: list[Values] = []
    labels = [{"row": place, "label": row.label(width - 44)} for place, row in enumerate(rows)]
    for place, row in enumerate(rows):
        measured = [bounded.ms for bounded in row.latencies.values()]
        spans += [{"row": place, "low": min(measured), "high": max(measured)}] if len(measured) > 1 else []
        for side, found in row.latencies.items():
            text = f"{row.model} {row.variant}, {side}: {numbers.ms(found.ms)}"
            values.append({"row": place, "side": side, **found._asdict(), "text": text})
    y = {"field": "row", "type": "ordinal", "axis": None, "scale": {"domain": list(range(len(rows)))}}
    looks = {OFF: (BEFORE, "circle"), ON: (theme.after, "circle"), PREDICTED: (_COLOUR_OF_PREDICTED, "diamond")}
    colour = nominal("side", names, [looks[n][0] for n in names], legend(symbolType="circle"))
    shape = nominal("side", names, [looks[n][1] for n in names], None)
    low, start, below = {"field": "low", **x}, {"datum": x["scale"]["domain"][0], **x}, 7
    dot = {"x": {"field": "ms", **x, "axis": axis}, "y": y, "color": colour, "shape": shape, "description": "text"}
    return {
        "width": width - 40,
        "height": {"step": _STEP},
        **({"title": {"text": target, "fontSize": 12, "offset": 4, "limit": width - 40}} if target else {}),
        "layer": [
            layer("rule", spans, {"x": low, "x2": "high", "y": y}, color=theme.grid, strokeWidth=5, yOffset=below),
            layer("rule", values, {"x": low, "x2": "high", "y": y, "color": colour}, strokeWidth=2, yOffset=below),
            layer("point", values, dot, filled=True, opacity=1, size=70, yOffset=below),
            layer("text", labels, {"x": start, "y": y, "text": "label"}, align="left", dy=-9, limit=width - 44),
        ],
    }
