"""Pictures drawn beside other work: processes that draw are started early, and their results are asked for late.

The library that draws takes most of a second to start. A `DrawingPool` starts it in processes of its own, so that it is
ready when the run has been read, and draws while the rest of a report is written.
"""

import os
import queue
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from model_profiling.report.drawing.drawing_process import DrawingProcess
from model_profiling.report.drawing.vega import SCREEN_SCALE, Drawing

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


class DrawingPool:
    """Holds the processes that draw. Ask for pictures early and for their results late."""

    def __enter__(self) -> "DrawingPool":
        self._hands = [DrawingProcess() for _ in range(_HANDS)]
        self._free: queue.SimpleQueue[DrawingProcess] = queue.SimpleQueue()
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
