"""Why an exported program does not run: the operators at fault, found by leaving some out, and what runs instead."""

import shlex
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from model_profiling.analysis.graph.sources import read_sources
from model_profiling.base import files
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.units import counted
from model_profiling.export.beside import beside
from model_profiling.export.check.verification import Failure, VerificationOutcome, execute_program
from model_profiling.export.command import arguments, typed
from model_profiling.export.lower.capture_and_lower import capture_prepared, lower_prepared
from model_profiling.export.lower.delegation import LoweredNode, portable_nodes, short_path
from model_profiling.export.lower.lowering import LoweredProgram, emit, lower, lowering_of
from model_profiling.export.prepare.preparation import prepare, quantize
from model_profiling.export.program_files import write_program, write_samples
from model_profiling.export.request import ExportRequest
from model_profiling.export.stages import Stages
from model_profiling.models.loading import LoadedModel
from model_profiling.platforms.operator_libraries import missing_operators
from model_profiling.runner.build import build_runner
from model_profiling.store.artifacts import CANNOT_RUN, ExportPaths, ExportRecord

# How long to look for the reason, and how often to export for it.
_LONGEST_S = 90.0
_MOST_TRIES = 30
_MOST_PLACES = 3
_CONVERSIONS = ("quantized_decomposed.", "dim_order_ops.")
_OWN_RUNNER = "To run it with a runner of your own, export with --no-verify and give it as runner_path."


class _EnoughError(Exception):
    """Time or tries are used up."""


@dataclass
class Attempts:
    """Exports of a model that are only executed and not kept; counts them and the time they took."""

    request: ExportRequest
    load: Callable[[], LoadedModel]
    record: ExportRecord
    stages: Stages
    announce: Callable[[str], None]
    tries: int = 0
    began: float = field(default_factory=time.monotonic)
    _captured: tuple[Any, Any] | None = None

    def without(self, leave_out: Collection[str]) -> tuple[VerificationOutcome | None, LoweredProgram | None]:
        """Execute the same export with some operators outside of every delegate; None if that cannot be lowered."""
        with self._try() as quiet:
            if self._captured is None:
                self._captured = capture_prepared(self._prepared(self.request), self.request, quiet)
            captured, prepared = self._captured
            try:
                lowered = lower(captured, **lowering_of(self.request), leave_out=leave_out)
                return self._executed(emit(lowered), prepared), lowered
            except Exception:  # noqa: BLE001 - whatever ExecuTorch raises for a graph that it cannot lower
                return None, None

    def instead(self, request: ExportRequest) -> bool:
        """Return whether another export of the model runs."""
        with self._try() as quiet:
            try:
                _, program, prepared = lower_prepared(self._prepared(request), request, quiet)
                return _runs(self._executed(program, prepared))
            except Exception:  # noqa: BLE001 - it is no way out, for whatever reason
                return False

    @contextmanager
    def _try(self) -> Iterator[Stages]:
        if self.tries >= _MOST_TRIES or time.monotonic() - self.began > _LONGEST_S:
            raise _EnoughError
        self.tries += 1
        self.announce(f"look for the reason, try {self.tries}")
        yield replace(self.stages, log=None, announce=lambda stage: None, seconds={})

    def _prepared(self, request: ExportRequest) -> Any:
        prepared = prepare(self.load(), request)
        return quantize(prepared, request) if dtype_of(request.dtype).quantized else prepared

    def _executed(self, program: Any, prepared: Any) -> VerificationOutcome:
        with files.scratch_directory("sme2-kit-try-") as folder:
            paths = ExportPaths(folder / f"{self.request.paths.stem}.pte")
            write_program(program, paths)
            write_samples(prepared, paths)
            return execute_program(paths, self.record)


@dataclass(frozen=True)
class Culprits:
    """The operators at fault: how many of which, where in the model, in which of its modules."""

    text: str
    modules: tuple[str, ...] = ()


def does_not_run(
    request: ExportRequest,
    load: Callable[[], LoadedModel],
    failure: Failure,
    paths: ExportPaths,
    record: ExportRecord,
    nodes: list[LoweredNode],
    stages: Stages,
) -> RunError:
    """Return the error of an export whose program fails; `paths` are those of the program, which is not kept."""
    log = request.outdir / f"{request.paths.stem}_export.log"
    files.write_text(log, f"{failure}\n\n{failure.log}\n{stages.said.getvalue()}")
    attempts = Attempts(request, load, record, stages, stages.announce)
    culprits = Culprits("")
    way_out = None
    with beside("which operator is at fault is not known"), suppress(_EnoughError):
        if failure.missing:
            culprits = _by_name(failure.missing, nodes)
        elif failure.operator:
            culprits = _by_instruction(failure, paths, nodes)
        else:
            culprits = _by_splitting(attempts, nodes)
        way_out = next((each for each in _instead(request, culprits, failure) if attempts.instead(each)), None)
    because = f", because of {culprits.text}" if culprits.text else ""
    if failure.missing:
        hint = f"Write the model without. {_OWN_RUNNER}"
    else:
        hint = f"The runner's log is in {log}; --no-verify writes the program as it is."
    # The command comes last: it is to be copied.
    tried = f" This was tried, and runs: {_as_asked(way_out, record, request)}" if way_out is not None else ""
    return RunError(f"export failed: the program {failure}{because}", f"{hint}{tried}")


def missing_remarks(paths: ExportPaths, nodes: list[LoweredNode]) -> list[str]:
    """Return which operators of a program the kit's runner does not have; nothing where there is no runner to ask."""
    try:
        missing = missing_operators(build_runner(), paths.pte)
    except KitError:
        return []
    needed = f"{', '.join(missing)}, because of {_by_name(missing, nodes).text}"
    return [f"{CANNOT_RUN}: it does not have {needed}"] if missing else []


def _runs(outcome: VerificationOutcome | None) -> bool:
    return outcome is not None and outcome.failure is None and outcome.verification.status == "verified"


def _as_asked(way_out: ExportRequest, record: ExportRecord, request: ExportRequest) -> str:
    """Return a request as the user makes it."""
    if record.request is None or record.request.origin != "memory":
        return shlex.join(typed(way_out))
    return f"export(..., {arguments(way_out, request)})"


def _instead(request: ExportRequest, culprits: Culprits, failure: Failure) -> Iterator[ExportRequest]:
    """Yield other exports of the model that may run, those that change least first."""
    if request.io_layout != "contiguous":
        yield replace(request, io_layout="contiguous")
    if request.rewrites:
        yield replace(request, rewrites=())
    if dtype_of(request.dtype).converts and culprits.modules:
        yield replace(request, keep_fp32=(*request.keep_fp32, *culprits.modules))
    if failure.missing or failure.operator or request.backend != "xnnpack":
        return
    if request.delegation == "whole":
        yield replace(request, delegation="per-op")
    yield replace(request, backend="portable")


def _by_name(names: Collection[str], nodes: list[LoweredNode]) -> Culprits:
    """Return the nodes that become these operators of the program."""
    found = portable_nodes(names, nodes)
    return Culprits(_listed(found) if found else ", ".join(names))


def _by_instruction(failure: Failure, paths: ExportPaths, nodes: list[LoweredNode]) -> Culprits:
    """Return the node of the instruction that failed, as the ETRecord knows it."""
    record = read_sources(paths.pte).record
    source = record.source(failure.instruction or 0, "forward", failure.operator) if record is not None else None
    node = next((each for each in source.nodes if each.file), None) if source is not None else None
    if node is None:
        return _by_name([failure.operator], nodes)
    modules = (node.module_path,) if node.module_path else ()
    return Culprits(f"{failure.operator} (at {short_path(node.file)}:{node.line})", modules)


def _by_splitting(attempts: Attempts, nodes: list[LoweredNode]) -> Culprits:
    """Return the fewest operators to take out of delegates so that it runs: first by kind, then one by one."""
    delegated = [node for node in nodes if node.delegate is not None]
    if not delegated:
        return Culprits(_one_of(nodes))
    # Conversions first: what is left in the end is rather the operator than what stands around it.
    kinds = sorted(dict.fromkeys(node.op for node in delegated), key=lambda op: not op.startswith(_CONVERSIONS))
    found = delegated
    try:
        outside, lowered = attempts.without(kinds)
        if not _runs(outside):
            # The same operator may fail wherever it is computed.
            other = outside.failure if outside is not None else None
            failing = [name for name in (*other.missing, other.operator) if name] if other is not None else []
            if lowered is not None and failing:
                return _by_name(failing, lowered.nodes)
            return Culprits(_one_of(delegated))
        kinds = _fewest(kinds, lambda some: _runs(attempts.without(some)[0]))
        found = [node for node in delegated if node.op in kinds]
        names = _fewest([node.name for node in found], lambda some: _runs(attempts.without(some)[0]))
        found = [node for node in found if node.name in names]
    except _EnoughError:
        if found is delegated:
            return Culprits(_one_of(delegated))
    _, lowered = attempts.without(())
    modules = _modules(lowered) if lowered is not None else {}
    kept = tuple(dict.fromkeys(path for node in found if (path := modules.get(node.name))))
    return Culprits(f"{_listed(found)} in XNNPACK's delegate; outside of it the program runs", kept)


def _fewest(all_of_them: list[str], run_without: Callable[[list[str]], bool]) -> list[str]:
    """Return the fewest of them without which it runs, given that it runs without all of them."""
    left, size = list(all_of_them), len(all_of_them) // 2
    while size:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + size :]
            if fewer and run_without(fewer):
                left = fewer
            else:
                start += size
        size //= 2
    return left


def _modules(lowered: LoweredProgram) -> dict[str, str]:
    """Return the innermost module of each delegated node, as the model names it."""
    graph_module = lowered.edge.exported_program().graph_module
    found = {}
    for call in graph_module.graph.nodes:
        if call.op == "call_function" and getattr(call.target, "__name__", "") == "executorch_call_delegate":
            for node in getattr(graph_module, call.args[0].target).original_module.graph.nodes:
                found[node.name] = _innermost(node)
    return {name: path for name, path in found.items() if path}


def _innermost(node: torch.fx.Node) -> str:
    stack = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return stack[-1] if stack else ""


def _listed(nodes: list[LoweredNode]) -> str:
    """Return `2 x aten.convolution.default (at net.py:12, net.py:14)`, by operator."""
    parts = []
    for op in dict.fromkeys(node.op for node in nodes):
        places = list(dict.fromkeys(node.source for node in nodes if node.op == op and node.source))
        more = f" and {counted(len(places) - _MOST_PLACES, 'more place')}" if len(places) > _MOST_PLACES else ""
        where = f" (at {', '.join(places[:_MOST_PLACES])}{more})" if places else ""
        parts.append(f"{sum(node.op == op for node in nodes)} x {op}{where}")
    return ", ".join(parts)


def _one_of(nodes: list[LoweredNode]) -> str:
    return f"one of {_listed(nodes)}" if nodes else ""
