"""Why an exported program does not run: the operators at fault, found by leaving some out, and what runs instead."""

import functools
import importlib.metadata
import operator
import platform
import shlex
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from model_profiling.analysis.graph.sources import read_sources
from model_profiling.base import files
from model_profiling.base.code_path import file_command
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.programs import run_program
from model_profiling.base.units import counted
from model_profiling.export.beside import beside
from model_profiling.export.check.verification import Failure, VerificationOutcome, execute_program
from model_profiling.export.lower.capture_and_lower import capture_prepared, lower_prepared
from model_profiling.export.lower.delegation import LoweredNode, node_line, portable_nodes, short_path
from model_profiling.export.lower.lowering import LoweredProgram, capture, emit, lower, lowering_of
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.preparation import Prepared, prepare
from model_profiling.export.publish import write_program, write_samples
from model_profiling.export.request import ExportRequest, arguments, differing, typed
from model_profiling.export.stages import Stages
from model_profiling.formats.graph_terms import base_name
from model_profiling.models.loading import LoadedModel
from model_profiling.platforms.environment import describe_host
from model_profiling.platforms.operator_libraries import missing_operators
from model_profiling.runner.build import build_runner
from model_profiling.store.artifacts import CANNOT_RUN, ExportPaths, ExportRecord

# How long to look for the reason, in seconds of the processor, and how often to export for it.
_LONGEST_S = 90.0
_MOST_TRIES = 30
_MOST_PLACES = 3
_CONVERSIONS = ("quantized_decomposed.", "dim_order_ops.")
_LAYER_NORM = "aten.native_layer_norm.default"
_FAILED = "export failed: "
_OWN_RUNNER = "To run it with a runner of your own, export with --no-verify and give it as runner_path."
# How far around the operator to look.
_MOST_STEPS = 4
# What a script may take, and of constants hold.
_LONGEST_SCRIPT_S = 300.0
_MOST_CONSTANTS = 64
_SEEN = "(not run yet)"
_SCRIPT = Path(__file__).with_name("reproduction.txt")


class _EnoughError(Exception):
    """Time or tries are used up."""


@dataclass(frozen=True)
class Culprits:
    """The operators at fault: how many of which, where in the model, in which of its modules; and what to leave out of
    delegates so that the program runs, if that was found."""

    text: str
    modules: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    # Their operators and lines.
    places: tuple[tuple[str, str], ...] = ()


@dataclass
class Attempts:
    """Exports of a model that are only executed and not kept; counts them and the time they took."""

    request: ExportRequest
    load: Callable[[], LoadedModel]
    record: ExportRecord
    stages: Stages
    tries: int = 0
    began: float = field(default_factory=time.process_time)

    def without(self, leave_out: Collection[str]) -> tuple[VerificationOutcome | None, LoweredProgram | None]:
        """Execute the same export with some operators outside of every delegate; None if that cannot be lowered."""
        self._count()
        captured, prepared = self._captured
        try:
            how = lowering_of(replace(self.request, leave_out=(*self.request.leave_out, *leave_out)))
            lowered = emit(lower(captured, **how))
            return self._executed(lowered, prepared), lowered
        except Exception:  # noqa: BLE001 - whatever ExecuTorch raises for a graph that it cannot lower
            return None, None

    def instead(self, request: ExportRequest) -> bool:
        """Return whether another export of the model runs."""
        self._count()
        try:
            made = lower_prepared(prepare(self.load(), request), request, Stages(said=self.stages.said))
            return _runs(self._executed(made.lowered, made.prepared))
        except Exception:  # noqa: BLE001 - it is no way out, for whatever reason
            return False

    def _count(self) -> None:
        if self.tries >= _MOST_TRIES or time.process_time() - self.began > _LONGEST_S:
            raise _EnoughError
        self.tries += 1
        self.stages.announce(f"look for the reason, try {self.tries}")

    @functools.cached_property
    def _captured(self) -> tuple[torch.export.ExportedProgram, Prepared]:
        return capture_prepared(prepare(self.load(), self.request), self.request, Stages(said=self.stages.said))

    def script(self, culprits: Culprits) -> str:
        """Return a script of its own that shows what is wrong; '' if no small one does."""
        if not culprits.places:
            return ""
        self.stages.announce("look for the smallest piece that is wrong")
        captured, prepared = self._captured
        return reproduction(captured, culprits.places, functools.partial(self._goes_wrong, prepared))

    def _goes_wrong(self, prepared: Prepared, module: torch.nn.Module, call: tuple[torch.Tensor, ...]) -> bool:
        try:
            made = emit(lower(capture(module, (call, {})), "xnnpack"))
            with torch.no_grad():
                outputs = list(module.float()(*samples.as_dtype(call, torch.float32)))
        except Exception:  # noqa: BLE001 - this piece shows nothing
            return False
        kept = samples.as_dtype(outputs, call[0].dtype) if call[0].is_floating_point() else outputs
        piece = replace(prepared, inputs=list(call), outputs=kept)
        parts = {"inputs": samples.describe(piece.inputs, f"{self.request.paths.stem}_inputs", "input", ())}
        parts |= {"outputs": samples.describe(kept, f"{self.request.paths.stem}_expected", "output", ())}
        failure = self._executed(made, piece, msgspec.structs.replace(self.record, **parts, files={})).failure
        return failure is not None and failure.wrong

    def _executed(
        self, lowered: LoweredProgram, prepared: Prepared, record: ExportRecord | None = None
    ) -> VerificationOutcome:
        with files.scratch_directory("sme2-kit-try-") as folder:
            paths = ExportPaths(folder / f"{self.request.paths.stem}.pte")
            write_program(lowered.program, paths)
            write_samples(prepared, paths)
            return execute_program(paths, record or self.record)


@dataclass
class Diagnosis(Exception):  # noqa: N818 - it says what is wrong, and is raised to go on
    """What is wrong with a program, for the user, and another export of the model that was tried and is right."""

    error: RunError
    way_out: ExportRequest | None

    def remedy(self, request: ExportRequest) -> str:
        """Say what is wrong with what was asked for, and what is different now."""
        assert self.way_out is not None
        return f"{self.error.message.removeprefix(_FAILED)}; exported with {differing(self.way_out, request)} instead"


def does_not_run(
    request: ExportRequest,
    load: Callable[[], LoadedModel],
    failure: Failure,
    paths: ExportPaths,
    record: ExportRecord,
    nodes: list[LoweredNode],
    stages: Stages,
) -> Diagnosis:
    """Return why a program fails, and what does not; `paths` are those of the program, which is not kept."""
    log = request.outdir / f"{request.paths.stem}_export.log"
    files.write_text(log, f"{failure}\n\n{failure.log}\n{stages.said.getvalue()}")
    attempts = Attempts(request, load, record, stages)
    culprits = Culprits("")
    way_out = None
    with beside("which operator is at fault is not known"), suppress(_EnoughError):
        if failure.missing:
            culprits = _by_name(failure.missing, nodes)
        elif failure.operator:
            culprits = _by_instruction(failure, paths, nodes)
        elif rows := _wrong_norms(request, failure, record, nodes):
            way_out = replace(request, rewrites=("norm",))
            way_out = way_out if attempts.instead(way_out) else None
            culprits = _found(rows, f"{_listed(rows)}, ExecuTorch's own kernel") if way_out else culprits
        known = tuple(name for name, places in (record.rewrites or {}).items() if places)
        if not culprits.text:
            culprits = _by_splitting(attempts, nodes)
        others = _instead(request, culprits, failure, known)
        way_out = way_out or next((each for each in others if attempts.instead(each)), None)
    script = request.paths.reproduction
    if failure.wrong:
        with beside("no script shows it"):
            if text := attempts.script(culprits):
                files.write_text(script, text)
    because = f", because of {culprits.text}" if culprits.text else ""
    if failure.missing:
        hint = f"Write the model without. {_OWN_RUNNER}"
    else:
        as_it_is = "--allow-wrong" if failure.wrong else "--no-verify"
        hint = f"The runner's log is in {log}; {as_it_is} writes the program as it is."
        hint += f" {script} shows it with torch and executorch alone, for a report to them." if script.exists() else ""
    # The command comes last: it is to be copied.
    tried = f" This was tried, and runs: {_as_asked(way_out, record, request)}" if way_out is not None else ""
    return Diagnosis(RunError(f"{_FAILED}the program {failure}{because}", f"{hint}{tried}"), way_out)


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


def _instead(
    request: ExportRequest, culprits: Culprits, failure: Failure, rewrites: tuple[str, ...]
) -> Iterator[ExportRequest]:
    """Yield other exports of the model that may run, those that change least first; `rewrites` are those that would
    change something."""
    if request.io_layout != "contiguous":
        yield replace(request, io_layout="contiguous")
    if request.rewrites:
        yield replace(request, rewrites=())
    if culprits.outside:
        yield replace(request, leave_out=(*request.leave_out, *culprits.outside))
    if failure.wrong and rewrites and not request.rewrites:
        yield replace(request, rewrites=rewrites)
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
            return Culprits(_one_of([node for node in nodes if node.delegate is None] or delegated))
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
    every = {node.op for node in found if all(each in found for each in delegated if each.op == node.op)}
    leave_out = dict.fromkeys(node.op if node.op in every else node.name for node in found)
    known = _found(found, f"{_listed(found)} in XNNPACK's delegate; outside of it the program runs")
    return replace(known, modules=kept, outside=tuple(leave_out))


def _wrong_norms(
    request: ExportRequest, failure: Failure, record: ExportRecord, nodes: list[LoweredNode]
) -> list[LoweredNode]:
    """Return the layer norms that may be what is wrong in halves: ExecuTorch's kernel fails from some length on."""
    if not failure.wrong or not dtype_of(request.dtype).halves or request.rewrites:
        return []
    rows = [node for node in nodes if node.op == _LAYER_NORM and node.delegate is None]
    return rows if (record.rewrites or {}).get("norm") else []


def _found(nodes: list[LoweredNode], text: str) -> Culprits:
    return Culprits(text, places=tuple((node.op, node.source) for node in nodes))


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
                stack = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
                found[node.name] = stack[-1] if stack else ""
    return {name: path for name, path in found.items() if path}


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


class _UnwritableError(Exception):
    """A value has no place in a script."""


def reproduction(
    program: torch.export.ExportedProgram,
    culprits: Collection[tuple[str, str]],
    goes_wrong: Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], bool],
) -> str:
    """Return a script of the fewest nodes around `culprits` (operator and line) with which it goes wrong; '' if none
    was found."""
    lines = {line for _, line in culprits if line}
    kinds = {base_name(op).strip("_") for op, _ in culprits}
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    near = [node for node in nodes if node_line(node) in lines]
    # Lowering may have turned `layer_norm` into `native_layer_norm`; what torch's own modules call has no line.
    names = {node: base_name(str(node.target)).strip("_") for node in near or nodes}
    chosen = [node for node, name in names.items() if any(kind.endswith(name) for kind in kinds)] or near

    def shows(some: Collection[torch.fx.Node]) -> bool:
        try:
            piece, inputs = _piece(program, [node for node in nodes if node in some])
        except _UnwritableError:
            return False
        known: dict[str, Any] = {"torch": torch}
        torch.manual_seed(0)
        exec(f"{piece}\nmodel, inputs = Piece().eval(), ({inputs},)", known)
        return goes_wrong(known["model"], known["inputs"])

    part = set(chosen)
    for _ in range(_MOST_STEPS):
        if part and shows(part):
            break
        part |= {near for node in part for near in (*node.all_input_nodes, *node.users) if near.op == "call_function"}
    else:
        return ""
    for node in sorted(part, key=lambda each: each in chosen):
        if len(part) > 1 and shows(part - {node}):
            part = part - {node}
    piece, inputs = _piece(program, [node for node in nodes if node in part])
    versions = {name: importlib.metadata.version(name) for name in ("torch", "executorch")}
    where = f"{describe_host().get('cpu')} ({platform.machine()}), Python {platform.python_version()}"
    script = _SCRIPT.read_text(encoding="utf-8").format(**versions, where=where, piece=piece, inputs=inputs)
    return script.replace(_SEEN, seen) if (seen := _printed(script)) else ""


def _printed(script: str) -> str:
    """Return what the script says of the error, run as its reader will; '' if it does not see one."""
    with files.scratch_directory("sme2-kit-piece-") as folder:
        files.write_text(folder / "piece.py", script)
        command = file_command(str(folder / "piece.py"))
        done = run_program(command, timeout_s=_LONGEST_SCRIPT_S, doing="show what is wrong")
    said = [line for line in done.stdout.splitlines() if line.startswith("largest error")]
    return said[0] if said and done.returncode == 1 else ""


def _piece(program: torch.export.ExportedProgram, nodes: list[torch.fx.Node]) -> tuple[str, str]:
    """Return a module of these nodes as source, and expressions for its inputs."""
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held |= signature.inputs_to_lifted_tensor_constants
    weights, inputs, body = dict[str, str](), dict[str, str](), []
    for node in nodes:
        for each in node.all_input_nodes:
            if each not in nodes and each.name in held:
                value = program.state_dict.get(held[each.name], program.constants.get(held[each.name]))
                weights[each.name] = _constant(value)
            elif each not in nodes:
                inputs[each.name] = _random(each.meta.get("val"))
        body.append(f"        {node.name} = {_call(node, weights)}")
    given = [node for node in nodes if not node.users or any(user not in nodes for user in node.users)]
    if not inputs or not all(isinstance(node.meta.get("val"), torch.Tensor) for node in given):
        raise _UnwritableError
    made = [f"        self.{name} = torch.nn.Buffer({value})" for name, value in weights.items()]
    init = ["    def __init__(self):", "        super().__init__()", *made, ""] if made else []
    head = ["class Piece(torch.nn.Module):", *init, f"    def forward(self, {', '.join(inputs)}):"]
    returned = f"        return ({', '.join(node.name for node in given)},)"
    return "\n".join([*head, *body, returned, ""]), ", ".join(inputs.values())


def _call(node: torch.fx.Node, weights: dict[str, str]) -> str:
    def written(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return f"self.{value.name}" if value.name in weights else value.name
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(written, value))}]"
        if isinstance(value, torch.device):
            return repr(str(value))
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.memory_format, torch.layout)):
            return f"float({str(value)!r})" if isinstance(value, float) and value in (1e999, -1e999) else repr(value)
        raise _UnwritableError

    arguments = [*map(written, node.args), *(f"{name}={written(value)}" for name, value in node.kwargs.items())]
    if node.target is operator.getitem:
        return f"{arguments[0]}[{arguments[1]}]"
    if not isinstance(node.target, torch._ops.OpOverload):
        raise _UnwritableError
    return f"torch.ops.{node.target}({', '.join(arguments)})"


def _random(value: Any) -> str:
    """Return an expression for values like those that the model has there."""
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        raise _UnwritableError
    shape, kind = list(value.shape), f", dtype={value.dtype}"
    made = f"torch.randn({shape}{kind})" if value.is_floating_point() else f"torch.zeros({shape}{kind})"
    last = value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
    return f"{made}.to(memory_format=torch.channels_last)" if last else made


def _constant(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        raise _UnwritableError
    if not value.is_floating_point() or value.dim() == 0:
        if value.numel() > _MOST_CONSTANTS:
            raise _UnwritableError
        return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
    low, high = (f"{bound:.3g}" for bound in (value.min().item(), value.max().item()))
    return f"torch.empty({list(value.shape)}).uniform_({low}, {high}).to({value.dtype})"
