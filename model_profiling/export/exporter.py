"""One export from name to files: load, run eagerly, quantize, capture, lower, serialize, write."""

import contextlib
import datetime
import importlib.metadata
import io
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch

from model_profiling.analysis.accuracy.correctness import suspicious
from model_profiling.analysis.graph.sources import read_sources
from model_profiling.analysis.movement.candidates import difference
from model_profiling.analysis.movement.layout_removal import needless_lines, turned_for_nothing
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import say_note
from model_profiling.export import io_layout, samples
from model_profiling.export.cache import write_stamp
from model_profiling.export.calibration import calibration_calls, calibration_record, varied_calls
from model_profiling.export.delegation import GraphNode, shortened
from model_profiling.export.dtype_cost import dtype_cost, remark
from model_profiling.export.failure import stage_failed
from model_profiling.export.host import host_untouched
from model_profiling.export.kept_layers import keep_in_fp32
from model_profiling.export.lowering import LoweredProgram, capture, emit, lower
from model_profiling.export.publish import publish, refuse_unwritable, staging, writable
from model_profiling.export.quantization import QUANTIZED, QUANTIZED_AS_GRAPH, quantized_graph, weights_to_int4
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest as ExportRequest
from model_profiling.export.request import ExportResult as ExportResult
from model_profiling.export.rewrites import IMPLIED, LAYOUT, REWRITES, matches
from model_profiling.export.rewrites.graph import copied
from model_profiling.export.rewrites.layout import layout
from model_profiling.export.rewrites.norm import write_as_parts, wrong_in_half
from model_profiling.export.rewrites.runnable import give_own_weights
from model_profiling.export.samples import Call
from model_profiling.export.sequences import Sequence, find_sequence
from model_profiling.export.verification import NOT_ASKED, execute_program, uncompared, unverified
from model_profiling.export.verify import not_comparable
from model_profiling.formats.pte import program as pte
from model_profiling.formats.pte.dataflow import DataFlow, data_flow
from model_profiling.models.loading import LoadedModel, load_model
from model_profiling.models.state import kept_state
from model_profiling.store.artifacts import (
    CalibrationRecord,
    DtypeCost,
    ExportMeta,
    ExportPaths,
    ExportRecord,
    StepChange,
)

T = TypeVar("T")

# Lowering takes some milliseconds for each operator: what rewrites would give is looked at for so many in all.
MOST_NODES = 2000


@dataclass
class Stages:
    """Times the stages, tells the listener which one runs, and turns a stage's failure into the one error."""

    # None where nothing is written: a check.
    log: Path | None
    said: io.StringIO
    announce: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    captured: torch.export.ExportedProgram | None = None

    @contextlib.contextmanager
    def stage(self, name: str, writes: bool = False) -> Iterator[None]:
        self.announce(name)
        started = time.perf_counter()
        try:
            yield
        except KitError:
            raise
        except Exception as error:
            if writes and isinstance(error, OSError):
                raise  # the directory's fault, not the model's
            raise stage_failed(name, error, self.log, self.said.getvalue(), self.captured) from error
        self.seconds[name] = round(time.perf_counter() - started, 3)


@dataclass(frozen=True)
class Prepared:
    """The model in the dtype and layout asked for, and what the fp32 model answers to the same inputs."""

    model: LoadedModel
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    warnings: list[str]
    cost: DtypeCost | None = None
    # Where rewrites would change the graph; None until it was captured.
    rewrites: dict[str, list[str]] | None = None
    # Rewrites that were asked for and found nothing.
    without: tuple[str, ...] = ()
    # The graph before rewrites, those that are done to it, and what the program would be with others.
    captured: torch.export.ExportedProgram | None = None
    pending: tuple[str, ...] = ()
    candidates: dict[str, list[StepChange]] = field(default_factory=dict)
    # The weights before they were converted, if some layers keep them; and what the ranges of int8 were set by.
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    calibration: CalibrationRecord | None = None


Announce = Callable[[str], None]


def export(request: ExportRequest, announce: Announce = lambda stage: None) -> ExportResult:
    """Export one model by its name or from its file."""

    def load() -> LoadedModel:
        return load_model(request.target or request.model, request.seed, request.options)

    return export_loaded(request, load, announce, cacheable=True)


def export_loaded(
    request: ExportRequest, load: Callable[[], LoadedModel], announce: Announce, cacheable: bool
) -> ExportResult:
    """Export what `load` gives; on any failure the directory keeps what it held before, plus a log of the failure.

    `cacheable` says that the request alone decides what is loaded.
    """
    request.check()
    refuse_unwritable(request.outdir)
    paths = request.paths
    log = request.outdir / f"{paths.stem}_export.log"
    _earlier_exports(paths)  # one that cannot be read is better found now than at the end
    with kept_off_terminal(request.loud) as said, writable(request.outdir), host_untouched(request.seed):
        stages = Stages(log, said, announce)
        with stages.stage("load the model"):
            loaded = load()
        with stages.stage("run the eager model"):
            # First: to prepare a model may convert its weights.
            sequence = find_sequence(loaded, request.seed)
            prepared = prepare(loaded, request)
        if request.dtype in QUANTIZED:
            with stages.stage("quantize"):
                prepared = quantize(prepared, request)
        lowered, program, prepared = lower_prepared(prepared, request, stages)
        with files.locked(request.outdir, "export"), staging(request.outdir) as staged:
            staged_paths = ExportPaths(staged / paths.pte.name)
            with stages.stage("serialize", writes=True):
                write_program(program, staged_paths)
            write_samples(prepared, staged_paths)
            if sequence is not None:
                sequence.write(staged_paths)
            record, nodes = _record(request, prepared, lowered, staged_paths, stages.seconds, sequence), lowered.nodes
            # The runner holds the weights, too: what is on disk now need not stay in memory beside it.
            del loaded, prepared, lowered, program
            stages.captured = None
            record = _verified(request, load, record, nodes, staged_paths, stages)
            _write_tables(request, record, nodes, paths, staged_paths)
            # export_meta.json comes last: until it is there, the older record is the valid one.
            graph = [paths.graph.name] if request.save_graph else []
            folders = [paths.inputs.name, paths.expected.name]
            publish(staged, request.outdir, [paths.pte.name, paths.etrecord.name, *folders, *graph, paths.meta.name])
            if cacheable:
                write_stamp(request, record)
            log.unlink(missing_ok=True)
    return ExportResult(paths, record)


def prepare(loaded: LoadedModel, request: ExportRequest) -> Prepared:
    """Bring model and inputs to the dtype and layout asked for, and compute the outputs to hold a run against."""
    module, inputs, keywords = loaded.module, loaded.inputs, loaded.keyword_inputs
    half = request.dtype == "fp16"
    if half:
        inputs, keywords = samples.as_dtype((inputs, keywords), torch.float16)
    if request.memory_format == "channels_last":
        # The weights stay as they are: XNNPACK and the portable kernels both refuse weights that are not NCHW.
        inputs, keywords = samples.as_channels_last((inputs, keywords))
    call, keyword_call = samples.as_dtype(samples.copied((inputs, keywords)), torch.float32)
    with kept_state(module), torch.no_grad():
        outputs = [tensor.clone() for tensor in samples.tensors_of(module(*call, **keyword_call))]
    cost, weights = None, {}
    if half:
        if request.keep_fp32:
            held = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
            weights = {name: value.detach().clone() for name, value in held}
        module = module.half()
        cost = dtype_cost(module, (inputs, keywords), outputs)
        outputs = samples.as_dtype(outputs, torch.float16)
    warnings = []
    if others := samples.other_leaves((inputs, keywords)):
        warnings.append(f"the model also takes {', '.join(others)}: the kit's runner passes tensors only")
    if (request.backend, request.memory_format) == ("portable", "channels_last"):
        # Seen with ExecuTorch 1.5.1: either the runtime refuses the dim order, or the numbers are wrong.
        warnings.append("portable kernels do not reshape or permute channels-last tensors correctly: check the outputs")
    warnings += suspicious(samples.arrays_of(outputs), " of the eager model")
    model = replace(loaded, module=module, inputs=inputs, keyword_inputs=keywords)
    return Prepared(model, samples.tensors_of((inputs, keywords)), outputs, warnings, cost, weights=weights)


def quantize(prepared: Prepared, request: ExportRequest) -> Prepared:
    """Quantize the model as the dtype asks for it."""
    model, dtype = prepared.model, request.dtype
    module, call = model.module, (model.inputs, model.keyword_inputs)
    calibration = None
    if dtype in QUANTIZED_AS_GRAPH:
        # Before quantization splits each layer into several nodes.
        captured = capture(module, *call, model.dynamic_shapes)
        give_own_weights(captured, each=True)
        before = [name for name, rewrite in REWRITES.items() if not rewrite.after_quantization]
        prepared = _rewrite(captured, request, prepared, before)
        batches, calibration = _calibration(request, call)
        module = quantized_graph(captured.module(), *call, dtype, batches, request.keep_fp32)
    else:
        module = weights_to_int4(module, request.keep_fp32)
    cost = dtype_cost(module, call, prepared.outputs)
    return replace(prepared, model=replace(model, module=module), cost=cost, calibration=calibration)


def _calibration(request: ExportRequest, call: Call) -> tuple[list[Call], CalibrationRecord | None]:
    """What the ranges of int8 are set by: the user's samples, or the example inputs with some noise."""
    if request.calibration is None:
        return varied_calls(call, request.seed), None
    batches = list(calibration_calls(request.calibration, call))
    return batches, calibration_record(request.calibration, len(batches))


def lower_prepared(prepared: Prepared, request: ExportRequest, stages: Stages) -> tuple[LoweredProgram, Any, Prepared]:
    """Capture, rewrite and lower the model: the graph, the program that ExecuTorch emitted, and what was found."""
    captured, prepared = capture_prepared(prepared, request, stages)
    with stages.stage("lower to the backend"):
        lowered = lower(captured, **lowering_of(request))
    prepared = _with_remarks(prepared, lowered, request)
    with stages.stage("plan memory and emit"):
        program = emit(lowered)
    if request.candidates:
        with stages.stage("look what rewrites would give"):
            prepared = with_candidates(prepared, request, program)
    if request.io_layout == "channels_last":
        with stages.stage("lower with channels-last inputs and outputs"):
            lowered, program, prepared = _with_channels_last_border(captured, lowered, program, prepared, request)
    return lowered, program, prepared


def capture_prepared(
    prepared: Prepared, request: ExportRequest, stages: Stages
) -> tuple[torch.export.ExportedProgram, Prepared]:
    """The graph that is lowered, with the rewrites that were asked for."""
    model = prepared.model
    with stages.stage("capture the graph"):
        call = model.inputs, model.keyword_inputs
        captured = stages.captured = capture(model.module, *call, model.dynamic_shapes)
        if request.keep_fp32 and request.dtype == "fp16":
            keep_in_fp32(captured, request.keep_fp32, prepared.weights)
            prepared = replace(prepared, cost=dtype_cost(captured.module(), call, prepared.outputs))
        pending = tuple(name for name in REWRITES if name not in (prepared.rewrites or {}))
        plain = copied(captured) if request.candidates and request.rewrites else captured
        prepared = _rewrite(captured, request, replace(prepared, captured=plain, pending=pending), list(pending))
    return captured, prepared


def with_candidates(prepared: Prepared, request: ExportRequest, program: Any) -> Prepared:
    """Lower the graph with each rewrite that finds something, `layout` first, and note how the programs differ.

    A rewrite whose graph cannot be lowered finds nothing. Of large graphs not all are looked at: each takes as long as
    lowering the model itself.
    """
    flow = _comparable(prepared, request, program)
    found = {name: places for name in prepared.pending if (places := (prepared.rewrites or {}).get(name))}
    if flow is not None and LAYOUT in prepared.pending and LAYOUT not in request.rewrites and turned_for_nothing(flow):
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
    """The program's data flow, if it can be held against that of other exports."""
    if (request.backend, request.delegation, request.io_layout) != ("xnnpack", "whole", "contiguous"):
        return None
    flow = io_layout.read_emitted(program)[1]
    return flow if flow is not None and flow.fixed else None


def candidate(prepared: Prepared, request: ExportRequest, rewrite: str) -> DataFlow | None:
    """The data flow of the program with one rewrite more."""
    if prepared.captured is None:
        return None
    program, asked = copied(prepared.captured), replace(request, rewrites=(*request.rewrites, rewrite))
    _do(program, asked, prepared.pending)
    return io_layout.read_emitted(emit(lower(program, **lowering_of(asked))))[1]


def lowering_of(request: ExportRequest) -> dict[str, Any]:
    """What `lower` is told for a request."""
    return {
        "backend": request.backend,
        "delegation": request.delegation,
        "keep_layout": LAYOUT in request.rewrites,
    }


def _with_channels_last_border(
    captured: torch.export.ExportedProgram,
    lowered: LoweredProgram,
    program: Any,
    prepared: Prepared,
    request: ExportRequest,
) -> tuple[LoweredProgram, Any, Prepared]:
    def build(moved: torch.export.ExportedProgram) -> tuple[LoweredProgram, Any]:
        again = lower(moved, **lowering_of(request))
        return again, emit(again)

    built = io_layout.with_channels_last_border(captured, (lowered, program), build)
    if isinstance(built, str):
        unchanged = f"--io-layout channels_last changed nothing: {built}"
        return lowered, program, replace(prepared, warnings=[*prepared.warnings, unchanged])
    again, program = built
    # The conversions at the border count as delegated, and are gone in the program.
    counted = msgspec.structs.replace(again.delegation, delegated_nodes=lowered.delegation.delegated_nodes)
    return replace(again, delegation=counted), program, prepared


def _rewrite(
    program: torch.export.ExportedProgram, request: ExportRequest, prepared: Prepared, names: list[str]
) -> Prepared:
    """Of the rewrites `names`, do those asked for, and look where others would find something."""
    without = _do(program, request, names)
    # What was done is done: looked at again, its own permutes are nothing to change.
    others = matches(program, [name for name in names if name not in request.rewrites])
    found = (prepared.rewrites or {}) | {name: others.get(name, []) for name in names}
    missed = (*prepared.without, *(name for name in without if name in request.rewrites))
    return replace(prepared, rewrites=dict(sorted(found.items())), without=missed)


def _do(program: torch.export.ExportedProgram, request: ExportRequest, names: Iterable[str]) -> list[str]:
    """Do the rewrites among `names` that were asked for, and those they imply; returns which found nothing."""
    asked = {*request.rewrites, *(name for each in request.rewrites for name in IMPLIED.get(each, ()))}
    return [name for name in names if name in asked and not _apply(name, program, request)]


def _apply(name: str, program: torch.export.ExportedProgram, request: ExportRequest) -> int:
    if name == LAYOUT and request.backend != "xnnpack":
        return 0  # portable kernels compute in the order that the model has
    if name == LAYOUT:
        # Their answers would hide whether the layout is right.
        write_as_parts(program, wrong_in_half(program))
    if name == LAYOUT and request.io_layout == "channels_last":
        # What is to be handed out as it lies in memory is not turned.
        return layout(program, large_by_rows=False)
    return REWRITES[name].apply(program)


def _with_remarks(prepared: Prepared, lowered: LoweredProgram, request: ExportRequest) -> Prepared:
    """Say which rewrites found nothing, in the graph or in its lowering."""
    without = [name for name in prepared.without if not (name == LAYOUT and lowered.keeps_images)]
    remarks = [f"the rewrite {name} finds nothing to change in {request.model} ({request.dtype})" for name in without]
    return replace(prepared, warnings=[*prepared.warnings, *remarks])


def write_program(program: Any, paths: ExportPaths) -> None:
    """Write the .pte, and the ETRecord beside it."""
    files.write_bytes(paths.pte, program.buffer)
    program.get_etrecord().save(str(paths.etrecord))


def write_samples(prepared: Prepared, paths: ExportPaths) -> None:
    """Write the inputs of the model and what it answers to them."""
    paths.inputs.mkdir()
    paths.expected.mkdir()
    for index, tensor in enumerate(prepared.inputs):
        files.write_bytes(paths.inputs / f"input_{index}.npy", samples.npy_bytes(tensor))
    for index, tensor in enumerate(prepared.outputs):
        files.write_bytes(paths.expected / f"output_{index}.npy", samples.npy_bytes(tensor))


def _record(
    request: ExportRequest,
    prepared: Prepared,
    lowered: LoweredProgram,
    staged: ExportPaths,
    seconds: dict[str, float],
    sequence: Sequence | None,
) -> ExportRecord:
    written = sorted(path for path in staged.directory.rglob("*") if path.is_file())
    random = prepared.model.weights == "random"
    program = pte.parse(staged.pte)
    method = program.methods[0]
    return ExportRecord(
        model=request.model,
        source=prepared.model.source,
        weights=f"random (seed {request.seed})" if random else prepared.model.weights,
        inputs=samples.describe(prepared.inputs, staged.inputs.name, "input", method.inputs),
        outputs=samples.describe(prepared.outputs, staged.expected.name, "output", method.outputs),
        delegation=lowered.delegation,
        versions=_versions(),
        files={str(path.relative_to(staged.directory)): files.sha256(path) for path in written},
        stage_seconds=dict(seconds),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        reference="eager PyTorch, fp32",
        warnings=prepared.warnings + remark(prepared.cost, request.dtype, prepared.model.weights),
        dtype_cost=prepared.cost,
        rewrites=_with_lowering(prepared.rewrites, program, staged, request),
        candidates=prepared.candidates,
        request=request.record(prepared.model.origin),
        sequence=sequence.record(staged) if sequence is not None else None,
        calibration=prepared.calibration,
        **request.recorded("export"),
    )


def _verified(
    request: ExportRequest,
    load: Callable[[], LoadedModel],
    record: ExportRecord,
    nodes: list[GraphNode],
    staged: ExportPaths,
    stages: Stages,
) -> ExportRecord:
    """Execute the program before it is published; one that does not run is an error."""
    if not request.verify:
        outcome = unverified(NOT_ASKED)
    else:
        with stages.stage("execute the program once"):
            outcome = execute_program(staged, record, stages.announce)
            if outcome.verification.verdict == "differs" and (why := not_comparable(load())):
                outcome = uncompared(outcome, why)
            if outcome.failure is not None:
                # Imports this module.
                from model_profiling.export.diagnosis import does_not_run

                raise does_not_run(request, load, outcome.failure, staged, record, nodes, stages)
    return msgspec.structs.replace(
        record,
        verification=outcome.verification,
        warnings=[*record.warnings, *outcome.remarks],
        stage_seconds=dict(stages.seconds),
    )


def _with_lowering(
    found: dict[str, list[str]] | None, program: pte.Program, staged: ExportPaths, request: ExportRequest
) -> dict[str, list[str]] | None:
    """Add where `layout` would also save a layout change in lowering: which there are, only the program shows."""
    flow = data_flow(program, program.methods[0]) if LAYOUT not in request.rewrites else None
    if found is None or flow is None or request.backend != "xnnpack" or request.delegation != "whole":
        return found
    places = map(shortened, needless_lines(flow, read_sources(staged.pte).of_steps(flow)))
    return {**found, LAYOUT: [*found[LAYOUT], *(place for place in places if place not in found[LAYOUT])]}


def _versions() -> dict[str, str]:
    packages = ("torch", "executorch", "torchao", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def _earlier_exports(paths: ExportPaths) -> ExportMeta:
    return _earlier(paths.meta, ExportMeta, "export record") or ExportMeta()


def _earlier(path: Path, kind: type[T], what: str) -> T | None:
    """The table that other exports share with this one; one that is no JSON any more is damaged, and written anew."""
    if not os.path.lexists(path):
        return None
    try:
        if files.is_file(path):
            return files.read_json(path, kind, what)
    except InputError:
        if _is_json(path):
            raise  # another kit's or another program's
    say_note(f"the {what} {path} was damaged: other exports there have to be made again")
    return None


def _is_json(path: Path) -> bool:
    try:
        msgspec.json.decode(files.content(path))
    except (OSError, UnicodeError, msgspec.DecodeError):
        return False
    except RecursionError:
        pass
    return True


def _write_tables(
    request: ExportRequest, record: ExportRecord, nodes: list[GraphNode], paths: ExportPaths, staged: ExportPaths
) -> None:
    """Add this export to the tables its directory shares with other exports."""
    meta = _earlier_exports(paths)
    files.write_json(staged.meta, ExportMeta(meta.schema, {**meta.exports, paths.stem: record}))
    if request.save_graph:
        kind = dict[str, list[GraphNode]]
        graphs = _earlier(paths.graph, kind, "graph") or {}
        files.write_json(staged.graph, {**graphs, paths.stem: nodes})
