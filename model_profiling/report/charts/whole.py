"""What all pictures share: sizes, title and style."""

from typing import Any

from model_profiling.report.theme import Theme, config

Spec = dict[str, Any]
Values = dict[str, Any]
WIDE, NARROW = 760, 340
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def whole(spec: Spec, theme: Theme, width: int, title: str, subtitle: str) -> Spec:
    """A picture with its frame."""
    heading: Spec = {"text": title, "limit": width - 24}
    if subtitle:
        heading["subtitle"] = subtitle
    return {"$schema": _SCHEMA, "config": config(theme), "padding": 12, "title": heading, **spec}
