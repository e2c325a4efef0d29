"""An artist whose pictures are empty and cost nothing, for tests of what is around them."""

from concurrent.futures import Future
from typing import Any

from model_profiling.report.drawing.drawing_process import DrawingPool
from model_profiling.report.drawing.vega import Drawing
from model_profiling.store.derived import png_chunk

_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" viewBox="0 0 9 9"></svg>'
_PNG = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b"")


class Sketcher(DrawingPool):
    def draw(self, spec: dict[str, Any], scale: float = 1.0) -> "Future[Drawing]":
        return _done(Drawing(_SVG, _PNG))

    def svg(self, spec: dict[str, Any]) -> "Future[str]":
        return _done(_SVG)


def _done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future
