"""What an export would delegate, and which values it would still move and why: lowered as an export is, not written."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.movement.layout_reasons import LayoutReasons, explain_layout
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.rewrites import LAYOUT
from model_profiling.export.beside import missing_parts
from model_profiling.export.host import host_untouched
from model_profiling.export.lower.auto_rewrites import lower_settled
from model_profiling.export.lower.capture_and_lower import lower_prepared
from model_profiling.export.lower.delegation import LoweredNode, portable_nodes, short_path
from model_profiling.export.lower.lowering import LoweredProgram
from model_profiling.export.prepare.preparation import Prepared, load_asked, prepare
from model_profiling.export.publish import write_program
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest
from model_profiling.export.stages import Stages
from model_profiling.formats import pte
from model_profiling.formats.graph_terms import unique
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.platforms.operator_libraries import missing_operators
from model_profiling.runner.build import build_runner
from model_profiling.store.artifacts import Delegation, ExportPaths, UndelegatedOperator
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import holds
from model_profiling.upstream.xnnpack_lowering import LAYOUT_LOWERING


@dataclass(frozen=True)
class DelegationPreview:
    """The operators in order, each with the delegate it goes into, the reasons of those left out, and what is moved."""

    nodes: list[LoweredNode]
    delegation: Delegation
    reasons: dict[str, str]
    layout: LayoutReasons
    warnings: list[str]
    # Operators of the program that the kit's runner does not have; None if there is no runner to ask, and why.
    missing: list[UndelegatedOperator] | None = None
    no_runner: str = ""


def preview(request: ExportRequest, announce: Callable[[str], None]) -> DelegationPreview:
    """Say what an export would give, and write nothing. Whatever would fail in it fails here the same way."""
    request.check()
    with kept_off_terminal(request.loud) as said, host_untouched(request.seed):
        stages = Stages(None, said, announce)
        with stages.stage("load the model"):
            loaded = load_asked(request)
        with stages.stage("run the eager model"):
            prepared = prepare(loaded, request)
        plain = prepared
        made = lower_settled(prepared, request, stages)
        request, lowered, prepared = made.request, made.lowered, made.prepared
        with stages.stage("look for transposes and copies"), _written(lowered.program) as paths:
            layout = _explained(paths, request.io_layout)
            missing, no_runner = _missing(paths, lowered)
        if LAYOUT not in request.rewrites and holds(OPERATORS) and holds(LAYOUT_LOWERING):
            with stages.stage("look what the rewrite layout would remove"):
                # int4 changes the model itself, which is quantized then.
                base = plain if dtype_of(request.dtype).quantized == "graph" else prepared
                gone = _removed(layout.count, replace(base, rewrites=None), request)
                places = unique(filter(None, (prepared.rewrites or {}).get(LAYOUT, [])))
                layout = msgspec.structs.replace(layout, removable=gone, removable_at=places if gone else [])
    found = lowered.nodes, lowered.delegation, lowered.reasons, layout, [*missing_parts(request), *prepared.warnings]
    return DelegationPreview(*found, missing, no_runner)


@contextlib.contextmanager
def _written(program: Any) -> Iterator[ExportPaths]:
    """Write the program to temporary files."""
    with files.scratch_directory() as folder:
        paths = ExportPaths(folder / "program.pte")
        write_program(program, paths)
        yield paths


def _missing(paths: ExportPaths, lowered: LoweredProgram) -> tuple[list[UndelegatedOperator] | None, str]:
    """Return what the program calls and the runner does not have, with the lines of the model; or why nobody knows."""
    try:
        names = missing_operators(build_runner(), paths.pte)
    except SetupError as error:
        return None, error.message
    found = []
    for name in names:
        nodes = portable_nodes([name], lowered.nodes)
        lines = unique(node.source for node in nodes if node.source)
        found.append(UndelegatedOperator(name, max(1, len(nodes)), "the kit's runner does not have it", lines))
    return found, ""


def _removed(count: int, prepared: Prepared, request: ExportRequest) -> int:
    """Return how many transposes are gone with `--rewrite layout`: lowered again, because only that shows it."""
    try:
        made = lower_prepared(prepared, replace(request, rewrites=(*request.rewrites, LAYOUT)), Stages())
    except KitError:
        return 0
    with _written(made.lowered.program) as paths:
        return max(0, count - _explained(paths, request.io_layout).count)


def _explained(paths: ExportPaths, io_layout: str) -> LayoutReasons:
    """Read the program as a run would."""
    read, sources = pte.parse_own(paths.pte), read_sources(paths.pte)
    if read is None:
        return LayoutReasons([], [], note=f"transposes and copies are not known: {pte.why_unknown()}")
    flow = data_flow(read, read.methods[0])
    if flow is None:
        return LayoutReasons([], [], note="transposes and copies are not known: the program branches")
    own = sources.of_steps(flow)
    lines = {position: msgspec.structs.replace(line, file=short_path(line.file)) for position, line in own.items()}
    found = msgspec.structs.replace(explain_layout(flow, lines), note=sources.note)
    if io_layout == "channels_last":
        # It was tried, and does not avoid what is left.
        left = [msgspec.structs.replace(group, hint="") for group in found.transposes]
        found = msgspec.structs.replace(found, transposes=left)
    return found
