"""What all pictures share: sizes, title and style."""

import math
from typing import Any

from model_profiling.report.drawing.theme import Theme, config

Spec = dict[str, Any]
Values = dict[str, Any]
WIDE, NARROW = 760, 340
_FEW_DECADES = 4
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: 1, 2 and 5 in every decade, or where there are many only 1."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= _FEW_DECADES else (1,)
    return [value for decade in decades for step in steps if low <= (value := step * 10.0**decade) <= high]


def text_width(text: str) -> float:
    """Return about how many pixels a label takes, rather more than less: letters of 11 pixels."""
    return 6.3 * len(text)


def shortened(text: str, pixels: float) -> str:
    """Return a label that fits; its middle goes, for what tells names apart is mostly at their ends."""
    most = max(int(pixels / text_width("x")), 3)
    tail = most * 3 // 5
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[-tail:]}"


def frame(spec: Spec, theme: Theme, width: int, title: str, subtitle: str) -> Spec:
    """Return a picture with its frame; without a title there is no subtitle either: the text around says it."""
    framed: Spec = {"$schema": _SCHEMA, "config": config(theme), "padding": 12, **spec}
    if title:
        framed["title"] = {"text": title, "limit": width - 24, **({"subtitle": subtitle} if subtitle else {})}
    return framed
