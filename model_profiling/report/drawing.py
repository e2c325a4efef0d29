"""Drawing: a Vega-Lite specification becomes SVG or PNG, without a browser."""

import json
from typing import Any

_VEGA_LITE = "5.20"
# Pixels per unit of a picture on paper: 760 units wide, 4 makes about 430 dots per inch over 18 cm.
PAPER_SCALE = 4.0
SCREEN_SCALE = 2.0


def svg(spec: dict[str, Any]) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=_VEGA_LITE))


def png(svg_text: str, scale: float = SCREEN_SCALE) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg_text, scale=scale))
