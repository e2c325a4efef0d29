"""`--rewrite auto`: which rewrites a model is exported with.

The graph is lowered with one rewrite after the other, in the order in which they are applied. One stays if the program
then has fewer operators outside delegates, moves fewer bytes or calls fewer delegates, none of these more, and if no
CONV or GEMM operator loses its SME2 kernel.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from model_profiling.analysis.movement.inverse_transposes import CancellingPair, cancelling_transposes
from model_profiling.analysis.movement.layout_reasons import moved_bytes
from model_profiling.analysis.sme2.kernel_table import KernelTable, known_table, node_kind
from model_profiling.analysis.timing.breakdown import SourceLine
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.rewrites import AUTO, LAYOUT, REWRITES
from model_profiling.base.units import counted, shown_bytes
from model_profiling.export.lower import capture_and_lower, io_layout
from model_profiling.export.lower.delegation import short_path
from model_profiling.export.lower.lowering import emit, lower, lowering_of
from model_profiling.export.prepare.preparation import Prepared, rewrite
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites.graph import copy_program
from model_profiling.export.stages import Stages
from model_profiling.formats.graph_terms import TO_NCHW, TO_NHWC
from model_profiling.formats.pte.borders import is_inserted
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.store.artifacts import RewriteChoice
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import holds, installed_version

# Lowering takes some milliseconds for each operator: so many operators are lowered to choose, in all.
MOST_NODES = 20_000


class ProgramCounts(NamedTuple):
    """What a rewrite may lessen and must not add to. `unsized` are moves of values whose size is not known."""

    outside: int
    moved: int
    unsized: int
    calls: int


@dataclass(frozen=True)
class _Trial:
    """The program with some rewrites, how many operators its graph had, and which other rewrites find something."""

    made: capture_and_lower.LoweredModel
    flow: DataFlow
    size: int
    others: frozenset[str]


def lower_settled(
    prepared: Prepared, request: ExportRequest, stages: Stages, left_out: Sequence[RewriteChoice] = ()
) -> capture_and_lower.LoweredModel:
    """Quantize and lower the model; in the request that is returned with it names stand in the place of `auto`, and
    none of what is known to be left out."""
    if dtype_of(request.dtype).quantized == "weights":
        # This changes the model itself, and the graph has to be quantized anew with every rewrite.
        prepared = capture_and_lower.quantized(prepared, request, stages)
    asked = AUTO in request.rewrites
    request = replace(request, rewrites=tuple(name for name in request.rewrites if name != AUTO))
    choices, trial = [*left_out], None
    if asked and holds(OPERATORS):
        with stages.stage("choose rewrites"):
            choices, trial = _chosen(_Trials(prepared, request), left_out)
    if trial is not None:
        made = capture_and_lower.finished(trial.made, stages)
    else:
        made = capture_and_lower.lower_prepared(prepared, request, stages)
    warnings = [*made.prepared.warnings]
    if asked and not choices:
        warnings.append(f"--rewrite {AUTO} finds nothing more to change in {request.model} ({request.dtype})")
    return replace(made, prepared=replace(made.prepared, warnings=warnings, auto=choices))


class _Trials:
    """Lowers the model with more rewrites than were asked for by name."""

    def __init__(self, prepared: Prepared, request: ExportRequest) -> None:
        self._prepared, self.request = prepared, request
        self._plain: tuple[torch.export.ExportedProgram, Prepared] | None = None
        self.lowered_nodes = 0

    def of(self, names: Sequence[str]) -> _Trial | None:
        """Return the program with these rewrites as well; None if it cannot be lowered, or nobody can read it."""
        asked = replace(self.request, rewrites=(*self.request.rewrites, *names))
        try:
            graph, prepared = self._graph(asked)
            size = sum(node.op == "call_function" for node in graph.graph.nodes)
            self.lowered_nodes += size
            lowered = emit(lower(graph, **lowering_of(asked)))
            flow = io_layout.read_emitted(lowered.program)[1]
        except Exception:  # noqa: BLE001 - lowering raises whatever it likes; an export without the rewrite goes on
            return None
        if flow is None:
            return None
        found = {name for name, places in (prepared.rewrites or {}).items() if places}
        # Some layout changes only the program shows.
        found |= {LAYOUT} if asked.backend == "xnnpack" and needless_transposes(flow) else set()
        made = capture_and_lower.LoweredModel(graph, lowered, prepared, asked)
        return _Trial(made, flow, size, frozenset(found.difference(asked.rewrites)))

    def _graph(self, asked: ExportRequest) -> tuple[torch.export.ExportedProgram, Prepared]:
        """Return the graph with the rewrites that are asked for, and what was found in it."""
        if dtype_of(asked.dtype).quantized == "graph" or self._prepared.model.dynamic_shapes is not None:
            # Sizes that are known only at run time do not survive a copy of the graph.
            return capture_and_lower.capture_prepared(self._prepared, asked, Stages())
        if self._plain is None:
            self._plain = capture_and_lower.capture_plain(self._prepared, asked, Stages())
        graph = copy_program(self._plain[0])
        return graph, rewrite(graph, asked, self._plain[1], list(REWRITES))


def _chosen(trials: _Trials, left_out: Sequence[RewriteChoice]) -> tuple[list[RewriteChoice], _Trial | None]:
    """Choose one after the other; what was left out for what it adds is tried once more beside others that stay."""
    now = trials.of(())
    if now is None:
        return [*left_out], None
    names: list[str] = []
    wrong = {choice.name for choice in left_out}
    choices = {choice.name: choice for choice in left_out}
    tried_with: dict[str, int] = {}
    for again in (False, True):
        for name in REWRITES:
            if name not in now.others - wrong or (again and tried_with.get(name, len(names)) == len(names)):
                continue
            choices[name], other = _tried(name, trials, names, now)
            if choices[name].applied and other is not None:
                names.append(name)
                now = other
            elif other is not None:
                tried_with[name] = len(names)
    return [choices[name] for name in REWRITES if name in choices], now


def _tried(name: str, trials: _Trials, names: list[str], now: _Trial) -> tuple[RewriteChoice, _Trial | None]:
    """Return what becomes of a rewrite beside those of `names`, and the program with it."""
    if trials.lowered_nodes + now.size > MOST_NODES:
        why = f"not tried: of a graph of {now.size} operators not all rewrites are; --rewrite {name} asks for it"
        return RewriteChoice(name, False, why), None
    other = trials.of([*names, name])
    if other is None:
        return RewriteChoice(name, False, "the model cannot be lowered with it"), None
    table = known_table(installed_version("executorch"))
    if table is not None and (taken := taken_from_sme2(now.flow, other.flow, table)):
        why = f"takes {taken:.1%} of the multiply-accumulates from SME2 kernels; for a CPU without SME2 name it"
        return RewriteChoice(name, False, why), None
    before, after = program_counts(now.flow), program_counts(other.flow)
    more, fewer = (words(*pair) for pair in ((before, after), (after, before)))
    if more:
        return RewriteChoice(name, False, f"would add {more}"), other
    if not fewer:
        return RewriteChoice(name, False, "leaves as many operators outside delegates, bytes moved and calls"), other
    return RewriteChoice(name, True, f"saves {fewer}"), other


def program_counts(flow: DataFlow) -> ProgramCounts:
    """Return how many operators a program has outside delegates, what it moves, and how often it calls a delegate."""
    outside = sum(step.node is None and "::" in step.op for step in flow.steps)
    calls = {step.instruction for step in flow.steps if step.node is not None or "::" not in step.op}
    moved = [moved_bytes(flow, position) for position in range(len(flow.steps))]
    return ProgramCounts(outside, sum(size or 0 for size in moved), moved.count(None), len(calls))


def words(less: ProgramCounts, more: ProgramCounts) -> str:
    """Return what the second program has more of than the first, '' if nothing."""
    outside, moved, unsized, calls = (max(0, b - a) for a, b in zip(less, more, strict=True))
    said = [counted(outside, "operator outside delegates", "operators outside delegates")] if outside else []
    said += [f"{shown_bytes(moved)} moved"] if moved else []
    said += [counted(unsized, "transpose or copy", "transposes or copies")] if unsized else []
    said += [counted(calls, "delegate call")] if calls else []
    return ", ".join(said)


def taken_from_sme2(before: DataFlow, after: DataFlow, table: KernelTable) -> float:
    """Return the part of all multiply-accumulates that run on SME2 in the first program, and not in the second."""
    (had, other), (has, more) = _by_kernel(before, table), _by_kernel(after, table)
    # What is gone altogether was not taken away; what another operator gains does not make up for one that loses.
    alike = ((had - has) & (more - other)).total()
    whole = min(had.total() - has.total(), more.total() - other.total())
    return max(0, alike, whole) / max(had.total() + other.total(), 1)


def _by_kernel(flow: DataFlow, table: KernelTable) -> tuple[Counter[int], Counter[int]]:
    """Return the multiply-accumulates with SME2 kernels, and those without: of all operators that do so many each."""
    with_sme2, without = Counter[int](), Counter[int]()
    for step in flow.steps:
        kind = node_kind(step.node) if step.node is not None else None
        if step.node is not None and kind is not None:
            known, work = table.find(kind), step.node.multiply_accumulates or 0
            (with_sme2 if known is not None and known.on_sme2 else without)[work] += work
    return with_sme2, without


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
        found.append(f"{short_path(line.file)}:{line.line}" if line is not None else "")
    return found
