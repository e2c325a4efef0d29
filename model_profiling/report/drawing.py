"""Drawing: a Vega-Lite specification becomes SVG and PNG, without a browser.

The library that draws takes most of a second to start. An `Artist` starts it in processes of its own, so that it is
ready when the run has been read, and draws while the rest of a report is written.
"""

import json
import os
import queue
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple

from model_profiling.base.png import png_chunk
from model_profiling.base.visible import visible_values
from model_profiling.report.drawing_process import Hand

_VEGA_LITE = "5.20"
# Pixels per unit of a picture on paper: 760 units wide, 4 makes about 430 dots per inch over 18 cm.
PAPER_SCALE = 4.0
SCREEN_SCALE = 2.0
# A second process halves the drawing, but on two cores its own start would cost as much.
_HANDS = 2 if (os.cpu_count() or 1) > 2 else 1
# Drawn first, for nobody to see: by then the library has compiled most of what it needs.
_SKETCH: dict[str, Any] = {
    "vconcat": [
        {
            "title": "sketch",
            "data": {"values": [{"a": place, "b": str(place % 3)} for place in range(20)]},
            "layer": [
                {"mark": mark, "encoding": {"x": {"field": "a", "type": "quantitative"}, "color": {"field": "b"}}}
                for mark in ("bar", "text", "line", "point")
            ],
        }
    ]
    * 2
}


class Drawing(NamedTuple):
    svg: str
    png: bytes


def svg(spec: dict[str, Any]) -> str:
    import vl_convert

    # SVG is XML, which cannot hold all text, and the library ends its process where it meets such.
    return str(vl_convert.vegalite_to_svg(json.dumps(visible_values(spec)), vl_version=_VEGA_LITE))


def png(svg_text: str, scale: float = SCREEN_SCALE) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg_text, scale=scale))


def draw(spec: dict[str, Any], scale: float = SCREEN_SCALE) -> Drawing:
    drawn = svg(spec)
    return Drawing(drawn, png(drawn, scale))


class Artist:
    """Holds the processes that draw. Ask for pictures early and for their results late."""

    def __enter__(self) -> "Artist":
        self._hands = [Hand() for _ in range(_HANDS)]
        self._free: queue.SimpleQueue[Hand] = queue.SimpleQueue()
        for hand in self._hands:
            self._free.put(hand)
        self._pool = ThreadPoolExecutor(max_workers=_HANDS)
        for _ in range(_HANDS):
            self._pool.submit(self._ask, "draw", _SKETCH, SCREEN_SCALE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for hand in self._hands:
            hand.close()

    def svg(self, spec: dict[str, Any]) -> "Future[str]":
        return self._pool.submit(self._ask, "svg", spec)

    def draw(self, spec: dict[str, Any], scale: float = SCREEN_SCALE) -> "Future[Drawing]":
        return self._pool.submit(self._ask, "draw", spec, scale)

    def _ask(self, *question: Any) -> Any:
        hand = self._free.get()
        try:
            return hand.ask(*question)
        finally:
            self._free.put(hand)


def squeezed(png_bytes: bytes) -> bytes:
    """The same picture, packed harder: about a third of the size, for a while of work."""
    chunks, at = [], 8
    while at < len(png_bytes):
        length = int.from_bytes(png_bytes[at : at + 4], "big")
        chunks.append((png_bytes[at + 4 : at + 8], png_bytes[at + 8 : at + 8 + length]))
        at += length + 12
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    packed = (b"IDAT", zlib.compress(pixels, 9))
    kept = [chunk for chunk in chunks if chunk[0] not in (b"IDAT", b"IEND")]
    return png_bytes[:8] + b"".join(png_chunk(*chunk) for chunk in (*kept, packed, (b"IEND", b"")))
