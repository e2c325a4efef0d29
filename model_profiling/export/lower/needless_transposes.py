"""Where a program turns an image around only to turn it back: what `--rewrite layout` also saves in lowering.

Which delegates there are, and what stands between them, is not known before lowering: this reads the program.
"""

from collections.abc import Mapping

from model_profiling.analysis.movement.inverse_transposes import CancellingPair, cancelling_transposes
from model_profiling.analysis.timing.breakdown import SourceLine
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC
from model_profiling.formats.pte.borders import is_inserted
from model_profiling.formats.pte.dataflow import DataFlow


def needless_transposes(flow: DataFlow) -> list[CancellingPair]:
    """Return the pairs of XNNPACK's own transposes that undo each other, for what computes on images in any order."""
    orders = (TO_NCHW, TO_NHWC)
    inserted = {p for p in range(len(flow.steps)) if any(is_inserted(flow, p, order) for order in orders)}
    return [pair for pair in cancelling_transposes(flow) if {pair.first, pair.second} <= inserted]


def needless_lines(flow: DataFlow, lines: Mapping[int, SourceLine]) -> list[str]:
    """Return the lines of the model that such pairs stand at, '' where none is known."""
    found = []
    for pair in needless_transposes(flow):
        beside = (*pair.between, *flow.readers(pair.second))
        line = next((lines[p] for p in beside if p in lines and lines[p].file), None)
        found.append(f"{line.file}:{line.line}" if line is not None else "")
    return found
