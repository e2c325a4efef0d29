"""`--rewrite auto`: which rewrites a model is exported with.

The graph is lowered with one rewrite after the other, in the order in which they are applied. One stays if the program
changes and is not predicted to take longer, by typical prices of what it has more and less of; and if it takes no
products away from kernels of SME2.
"""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from model_profiling.analysis.movement.candidates import difference
from model_profiling.analysis.movement.typical_prices import typical_ns
from model_profiling.analysis.sme2.kernel_table import KernelLookup, known_table, node_kind
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.rewrites import AUTO, LAYOUT, REWRITES
from model_profiling.export.lower import io_layout
from model_profiling.export.lower.capture_and_lower import capture_prepared
from model_profiling.export.lower.lowering import emit, lower, lowering_of
from model_profiling.export.lower.needless_transposes import needless_transposes
from model_profiling.export.prepare.preparation import Prepared, do_rewrites, quantize
from model_profiling.export.request import ExportRequest
from model_profiling.export.rewrites import matches
from model_profiling.export.rewrites.graph import copy_program
from model_profiling.export.stages import Stages
from model_profiling.formats.pte.dataflow import DataFlow
from model_profiling.store.artifacts import RewriteChoice
from model_profiling.upstream.captured_graphs import OPERATORS
from model_profiling.upstream.reliance import holds, installed_version

# Lowering takes some milliseconds for each operator: so many operators are lowered to choose, in all.
MOST_NODES = 20_000
# Of all multiply-accumulates: what a rewrite may take from kernels of SME2 without being said to.
_LEAST_TAKEN = 0.01


@dataclass(frozen=True)
class _Trial:
    """The program with some rewrites, how many operators its graph had, and which other rewrites find something."""

    flow: DataFlow
    size: int
    others: frozenset[str]


def quantized_and_settled(
    prepared: Prepared, request: ExportRequest, stages: Stages, left_out: Sequence[RewriteChoice] = ()
) -> tuple[ExportRequest, Prepared]:
    """Quantize the model if its dtype asks for it, and put names in the place of `auto`, or none if all are known to be
    left out."""
    quantized = dtype_of(request.dtype).quantized
    if quantized == "weights":
        # This changes the model itself, and the graph has to be quantized anew with every rewrite.
        prepared = _quantized(prepared, request, stages)
    asked = AUTO in request.rewrites
    request, choices = _settled(prepared, request, stages, left_out)
    if asked and not choices:
        nothing = f"--rewrite {AUTO} finds nothing more to change in {request.model} ({request.dtype})"
        prepared = replace(prepared, warnings=[*prepared.warnings, nothing])
    if quantized == "graph":
        prepared = _quantized(prepared, request, stages)
    return request, replace(prepared, auto=choices)


def _quantized(prepared: Prepared, request: ExportRequest, stages: Stages) -> Prepared:
    with stages.stage("quantize"):
        return quantize(prepared, request)


def _settled(
    prepared: Prepared, request: ExportRequest, stages: Stages, left_out: Sequence[RewriteChoice]
) -> tuple[ExportRequest, list[RewriteChoice]]:
    """Return the request with rewrites that have names in the place of `auto`, and what was chosen and left out."""
    if AUTO not in request.rewrites:
        return request, []
    named = replace(request, rewrites=tuple(name for name in request.rewrites if name != AUTO))
    choices = [*left_out]
    if holds(OPERATORS) and not left_out:
        with stages.stage("choose rewrites"):
            choices = _chosen(_Trials(prepared, named))
    names = (*named.rewrites, *(choice.name for choice in choices if choice.applied))
    return replace(request, rewrites=names), choices


class _Trials:
    """Lowers the model with rewrites more, each set of them once."""

    def __init__(self, prepared: Prepared, request: ExportRequest) -> None:
        self._prepared, self._quiet = prepared, Stages(None, io.StringIO(), lambda stage: None)
        self.request = request
        self._captured: torch.export.ExportedProgram | None = None
        self._known: dict[tuple[str, ...], _Trial | None] = {}
        self.lowered_nodes = 0

    def of(self, names: Iterable[str]) -> _Trial | None:
        """Return the program with these rewrites as well; None if it cannot be lowered, or nobody can read it."""
        key = tuple(sorted(names))
        if key not in self._known:
            self._known[key] = self._lowered(replace(self.request, rewrites=(*self.request.rewrites, *key)))
        return self._known[key]

    def _lowered(self, asked: ExportRequest) -> _Trial | None:
        try:
            graph, found = self._graph(asked)
            size = sum(node.op == "call_function" for node in graph.graph.nodes)
            self.lowered_nodes += size
            flow = io_layout.read_emitted(emit(lower(graph, **lowering_of(asked))))[1]
        except Exception:  # noqa: BLE001 - lowering raises whatever it likes; an export without the rewrite goes on
            return None
        if flow is None:
            return None
        # Some layout changes only the program shows.
        turned = {LAYOUT} if asked.backend == "xnnpack" and needless_transposes(flow) else set()
        return _Trial(flow, size, frozenset({name for name, places in found.items() if places} | turned))

    def _graph(self, asked: ExportRequest) -> tuple[torch.export.ExportedProgram, dict[str, list[str]]]:
        """Return the graph with the rewrites that are asked for, and where others would change it."""
        if dtype_of(asked.dtype).quantized == "graph":
            quantized = quantize(replace(self._prepared, rewrites=None), asked)
            graph, prepared = capture_prepared(quantized, asked, self._quiet)
            return graph, prepared.rewrites or {}
        if self._captured is None:
            self._captured = capture_prepared(self._prepared, replace(asked, rewrites=()), self._quiet)[0]
        graph = copy_program(self._captured)
        do_rewrites(graph, asked, REWRITES)
        return graph, matches(graph, [name for name in REWRITES if name not in asked.rewrites])


def _chosen(trials: _Trials) -> list[RewriteChoice]:
    """Choose one after the other; what costs time alone is tried once more beside those that were chosen."""
    plain = trials.of(())
    if plain is None:
        return []
    names: list[str] = []
    choices: dict[str, RewriteChoice] = {}
    for again in (False, True):
        for name in [name for name in REWRITES if name not in (*trials.request.rewrites, *names)]:
            now = trials.of(names) or plain
            if name not in now.others or (again and name in choices and choices[name].change is None):
                continue
            choice = _tried(name, trials, names, now)
            if choice is not None:
                choices[name] = choice
                names += [name] if choice.applied else []
    return [choices[name] for name in REWRITES if name in choices]


def _tried(name: str, trials: _Trials, names: list[str], now: _Trial) -> RewriteChoice | None:
    """Return what becomes of a rewrite beside those of `names`; None if it changes nothing in the program."""
    if trials.lowered_nodes + now.size > MOST_NODES:
        why = f"not tried: of a graph of {now.size} operators not all rewrites are; --rewrite {name} asks for it"
        return RewriteChoice(name, False, why)
    other = trials.of([*names, name])
    if other is None:
        return RewriteChoice(name, False, "the model cannot be lowered with it")
    return _choice(name, now.flow, other.flow) if difference(now.flow, other.flow) else None


def _choice(name: str, before: DataFlow, after: DataFlow) -> RewriteChoice:
    change = typical_ns(after) / (typical_ns(before) or 1.0)
    table = known_table(installed_version("executorch"))
    taken = taken_from_sme2(before, after, table) if table is not None else 0.0
    if taken > _LEAST_TAKEN:
        why = f"takes {taken:.0%} of the multiply-accumulates from SME2 kernels; for a CPU without SME2 name it"
        return RewriteChoice(name, False, why, change)
    if change > 1:
        return RewriteChoice(name, False, f"predicted to take {change:.2f} times as long", change)
    return RewriteChoice(name, True, f"predicted to take {change:.2f} of the time", change)


def taken_from_sme2(before: DataFlow, after: DataFlow, table: KernelLookup) -> float:
    """Return the part of all multiply-accumulates that run on SME2 in the first program, and not in the second."""
    (had, other), (has, more) = _by_kernel(before, table), _by_kernel(after, table)
    # What is gone altogether was not taken away.
    return max(0, min(had - has, more - other)) / max(had + other, 1)


def _by_kernel(flow: DataFlow, table: KernelLookup) -> tuple[int, int]:
    """Return the multiply-accumulates with SME2 kernels, and those without."""
    with_sme2 = without = 0
    for step in flow.steps:
        kind = node_kind(step.node) if step.node is not None else None
        if step.node is None or kind is None:
            continue
        known = table.find(kind)
        work = step.node.multiply_accumulates or 0
        if known is not None and known.on_sme2:
            with_sme2 += work
        else:
            without += work
    return with_sme2, without
