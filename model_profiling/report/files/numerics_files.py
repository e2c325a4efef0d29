"""The picture that `sme2-kit numerics` leaves beside a .pte."""

from pathlib import Path

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.base import files
from model_profiling.report.charts import WIDE
from model_profiling.report.charts.numerics import numerics
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.drawing.vega import draw
from model_profiling.store.artifacts import ExportPaths


def write_picture(found: Numerics, paths: ExportPaths) -> Path:
    """Draw signal to noise by layer as SVG and PNG; returns the PNG."""
    drawing = draw(numerics(found, WIDE, LIGHT, f"{found.model} ({found.dtype}): accuracy by layer"))
    files.write_bytes(paths.numerics.with_suffix(".svg"), drawing.svg.encode())
    files.write_bytes(paths.numerics.with_suffix(".png"), drawing.png)
    return paths.numerics.with_suffix(".png")
