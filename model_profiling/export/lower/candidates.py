"""What other rewrites would give: the graph is lowered with each, and the programs are compared."""

from dataclasses import replace
from typing import Any

from model_profiling.analysis.movement.candidates import difference
from model_profiling.base.rewrites import LAYOUT
from model_profiling.export.lower import io_layout
from model_profiling.export.lower.lowering import emit, lower, lowering_of
from model_profiling.export.lower.needless_transposes import needless_transposes
from model_profiling.export.prepare.preparation import Prepared, do_rewrites
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites.graph import copy_program
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import holds

# Lowering takes some milliseconds for each operator: what rewrites would give is looked at for so many in all.
MOST_NODES = 2000


def with_candidates(prepared: Prepared, request: ExportRequest, program: Any) -> Prepared:
    """Lower the graph with each rewrite that finds something, `layout` first, and note how the programs differ.

    A rewrite whose graph cannot be lowered finds nothing. Of large graphs not all are looked at: each takes as long as
    lowering the model itself.
    """
    flow = _comparable(prepared, request, program) if holds(OPERATORS) else None
    found = {name: places for name in prepared.pending if (places := (prepared.rewrites or {}).get(name))}
    if flow is not None and LAYOUT in prepared.pending and LAYOUT not in request.rewrites and needless_transposes(flow):
        found.setdefault(LAYOUT, [])
    if flow is None or prepared.captured is None or not found:
        return prepared
    size = sum(node.op == "call_function" for node in prepared.captured.graph.nodes)
    candidates, rewrites = {}, dict(prepared.rewrites or {})
    for name in sorted(found, key=lambda name: name != LAYOUT)[: MOST_NODES // max(size, 1)]:
        try:
            other = candidate(prepared, request, name)
        except Exception:  # noqa: BLE001 - lowering raises whatever it likes, and there is a program that works
            rewrites[name] = []
            continue
        if other is not None:
            candidates[name] = difference(flow, other)
    return replace(prepared, candidates=candidates, rewrites=rewrites)


def _comparable(prepared: Prepared, request: ExportRequest, program: Any) -> DataFlow | None:
    """Return the program's data flow, if it can be held against that of other exports."""
    if (request.backend, request.delegation, request.io_layout) != ("xnnpack", "whole", "contiguous"):
        return None
    flow = io_layout.read_emitted(program)[1]
    return flow if flow is not None and flow.fixed else None


def candidate(prepared: Prepared, request: ExportRequest, rewrite: str) -> DataFlow | None:
    """Return the data flow of the program with one rewrite more."""
    if prepared.captured is None:
        return None
    program, asked = copy_program(prepared.captured), replace(request, rewrites=(*request.rewrites, rewrite))
    do_rewrites(program, asked, prepared.pending)
    return io_layout.read_emitted(emit(lower(program, **lowering_of(asked))))[1]
