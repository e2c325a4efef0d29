"""What all pictures share: sizes, title and style."""

from typing import Any

from model_profiling.report.theme import Theme, config

Spec = dict[str, Any]
Values = dict[str, Any]
WIDE, NARROW = 760, 340
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def whole(spec: Spec, theme: Theme, width: int, title: str, subtitle: str) -> Spec:
    """A picture with its frame; without a title it has no subtitle either: the text around it says what it shows."""
    framed: Spec = {"$schema": _SCHEMA, "config": config(theme), "padding": 12, **spec}
    if title:
        framed["title"] = {"text": title, "limit": width - 24, **({"subtitle": subtitle} if subtitle else {})}
    return framed
