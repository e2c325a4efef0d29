"""What all pictures share: sizes, title and style."""

from typing import Any

from model_profiling.report.theme import Theme, config

Spec = dict[str, Any]
Values = dict[str, Any]
WIDE, NARROW = 760, 340
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def whole(spec: Spec, theme: Theme, width: int, title: str, subtitle: str) -> Spec:
    """A picture with its frame; without a title where the page around it has one."""
    framed: Spec = {"$schema": _SCHEMA, "config": config(theme), "padding": 12 if title else 4, **spec}
    if title:
        heading: Spec = {"text": title, "limit": width - 24}
        framed["title"] = {**heading, "subtitle": subtitle} if subtitle else heading
    return framed
