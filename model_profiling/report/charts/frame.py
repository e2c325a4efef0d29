"""What all pictures share: sizes, title and style, and how layers, axes and legends are written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from model_profiling.report.drawing.theme import Theme, config

Spec = dict[str, Any]
Values = dict[str, Any]
WIDE, NARROW = 760, 340
_FEW_DECADES = 4


def layer(mark: str, values: Sequence[Values] | None, encoding: Mapping[str, Any], **style: Any) -> Spec:
    """Return marks of one kind for `values` (None: those of the whole picture); a channel that is a text is a field."""
    data = {} if values is None else {"data": {"values": list(values)}}
    channels = {name: {"field": each} if isinstance(each, str) else each for name, each in encoding.items()}
    return {**data, "mark": {"type": mark, **style}, "encoding": channels}


def linear(low: float, high: float, **scale: Any) -> Spec:
    """Return what all channels along one axis share."""
    return {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, **scale}}


def nominal(field: str, domain: Sequence[str], colours: Sequence[str], legend: Spec | None, **more: Any) -> Spec:
    """Return a channel that tells names apart, by colour or shape."""
    scale = {"domain": list(domain), "range": list(colours)}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend, **more}


def legend(**more: Any) -> Spec:
    """Return a legend without a title, above the picture."""
    return {"orient": "top", "title": None, **more}


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: 1, 2 and 5 in every decade, or where there are many only 1."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= _FEW_DECADES else (1,)
    return [value for decade in decades for step in steps if low <= (value := step * 10.0**decade) <= high]


def frame(spec: Spec, theme: Theme, width: int, title: str, subtitle: str) -> Spec:
    """Return a picture with its frame; without a title there is no subtitle either: the text around says it."""
    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    framed: Spec = {"$schema": schema, "config": config(theme), "padding": 12, **spec}
    if title:
        framed["title"] = {"text": title, "limit": width - 24, **({"subtitle": subtitle} if subtitle else {})}
    return framed
