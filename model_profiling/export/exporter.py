"""One export from name to files: load, run eagerly, quantize, capture, lower, serialize, write."""

import datetime
import functools
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from model_profiling.analysis.accuracy.agreement import agreement_of
from model_profiling.analysis.graph.sources import read_sources
from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import say_note
from model_profiling.base.rewrites import AUTO, LAYOUT
from model_profiling.export.beside import beside, missing_parts, what_is_left_out
from model_profiling.export.cache import write_stamp
from model_profiling.export.check.diagnosis import Diagnosis, does_not_run, missing_remarks
from model_profiling.export.check.verification import (
    NOT_ASKED,
    VerificationOutcome,
    execute_program,
    uncompared,
    unverified,
)
from model_profiling.export.host import host_untouched
from model_profiling.export.lower.auto_rewrites import lower_settled, needless_lines
from model_profiling.export.lower.capture_and_lower import LoweredModel
from model_profiling.export.lower.delegation import LoweredNode
from model_profiling.export.prepare import samples
from model_profiling.export.prepare.preparation import Prepared, load_asked, prepare
from model_profiling.export.prepare.samples import remark
from model_profiling.export.prepare.sequences import Sequence, find_sequence
from model_profiling.export.publish import STAGING, publish, writable, write_program, write_samples
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.export.request import ExportRequest as ExportRequest
from model_profiling.export.request import ExportResult as ExportResult
from model_profiling.export.request import typable
from model_profiling.export.stages import Announce, Stages
from model_profiling.formats import pte
from model_profiling.formats.pte.dataflow import data_flow
from model_profiling.models.loading import LoadedModel
from model_profiling.store.artifacts import Delegation, ExportMeta, ExportPaths, ExportRecord, RewriteChoice

T = TypeVar("T")
_PACKAGES = ("torch", "executorch", "torchao", "numpy")
# Beside the artifacts: its record is of no .pte, and who reads those is not to find it.
_WITHOUT = "without_executorch"
# How much smaller than the change that another input makes an error is to be.
_ROOM_DB = 6.0


def export(request: ExportRequest, announce: Announce = lambda stage: None) -> ExportResult:
    """Export one model by its name or from its file."""
    return export_loaded(request, functools.partial(load_asked, request), announce, cacheable=True)


def export_loaded(
    request: ExportRequest, load: Callable[[], LoadedModel], announce: Announce, cacheable: bool
) -> ExportResult:
    """Export what `load` gives; on any failure the directory keeps what it held before, plus a log of the failure.

    `cacheable` says that the request alone decides what is loaded.
    """
    request.check()
    files.refuse_unwritable(request.paths.meta)
    left_out: list[RewriteChoice] = []
    while True:
        try:
            return _export(request, load, announce, cacheable, left_out)
        except _WrongWithRewritesError as wrong:
            # One at a time: the others may be what makes it fast.
            left_out.append(wrong.left_out)
            say_note(f"exported again without the rewrite {wrong.left_out.name} that --rewrite {AUTO} chose: {wrong}")
        except Diagnosis as found:
            say_note(found.remedy(request))
            instead = replace(found.way_out or request, mend=False)
            same = instead.paths.pte == request.paths.pte
            return _export(instead, load, announce, cacheable and same, [], request, found)


class _WrongWithRewritesError(Exception):
    """The program with what `--rewrite auto` chose does not run, or its outputs differ from eager's."""

    def __init__(self, why: str, chosen: list[RewriteChoice]) -> None:
        super().__init__(why)
        # The last is suspected first: `layout` is, which changes how the whole graph is lowered.
        suspect = [choice for choice in chosen if choice.applied][-1]
        self.left_out = msgspec.structs.replace(suspect, applied=False, reason=why)


def _export(
    request: ExportRequest,
    load: Callable[[], LoadedModel],
    announce: Announce,
    cacheable: bool,
    left_out: list[RewriteChoice],
    asked: ExportRequest | None = None,
    mended: Diagnosis | None = None,
) -> ExportResult:
    """Export once; `left_out` is what became of `--rewrite auto` if that is known to go wrong, and `mended` what is
    wrong with what was `asked` for, if this is something else."""
    asked, paths = asked or request, request.paths
    log = request.outdir / f"{paths.stem}_export.log"
    _earlier_exports(paths)  # one that cannot be read is better found now than at the end
    left = what_is_left_out()
    with kept_off_terminal(request.loud) as said, writable(request.outdir), host_untouched(request.seed):
        stages = Stages(log, said, announce)
        with stages.stage("load the model"):
            loaded = load()
        with stages.stage("run the eager model"):
            # First: to prepare a model may convert its weights.
            sequence = None
            with beside("whether it is a language model is not known"):
                sequence = find_sequence(loaded, request.seed)
            prepared = prepare(loaded, request)
        made = lower_settled(prepared, request, stages, left_out)
        request, prepared, nodes = made.request, made.prepared, made.lowered.nodes
        with files.locked(request.outdir, "export"), files.scratch_directory(STAGING, request.outdir) as staged:
            staged_paths = ExportPaths(staged / paths.pte.name)
            with stages.stage("serialize", writes=True):
                write_program(made.lowered.program, staged_paths)
            write_samples(prepared, staged_paths)
            if sequence is not None:
                sequence.write(staged_paths)
            record = _record(made, staged_paths, stages.seconds, sequence)
            second = _second(prepared, staged_paths)
            # The runner holds the weights, too: what is on disk now need not stay in memory beside it.
            del loaded, prepared, made
            stages.captured = None
            record = _verified(request, load, record, nodes, (staged_paths, second), stages)
            record.warnings.extend(f"{what} ({why})" for what, why in left.items())
            if mended is not None:
                record = msgspec.structs.replace(record, remedy=mended.remedy(asked))
            _write_tables(request, record, nodes, paths, staged_paths)
            # export_meta.json comes last: until it is there, the older record is the valid one.
            graph = [paths.graph.name] if request.save_graph else []
            folders = [paths.inputs.name, paths.expected.name]
            publish(staged, request.outdir, [paths.pte.name, paths.etrecord.name, *folders, *graph, paths.meta.name])
            if cacheable:
                write_stamp(asked, record)
            log.unlink(missing_ok=True)
    return ExportResult(paths, record)


@dataclass(frozen=True)
class _Second:
    """Other samples beside the program (None: there are none), and how far apart the outputs of both are in decibel."""

    paths: ExportPaths | None = None
    apart_db: float | None = None
    why_none: str = ""


def _second(prepared: Prepared, paths: ExportPaths) -> _Second:
    """Lay the program beside other samples, if there are some that test it."""
    inputs, outputs = prepared.second
    if not inputs or not outputs:
        return _Second()
    first, changed = samples.arrays_of(prepared.outputs), samples.arrays_of(outputs)
    pairs = zip(first, changed, strict=False)
    if all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True) for a, b in pairs):
        return _Second(why_none="the outputs do not depend on the input")
    if prepared.quantized:  # what that costs depends on the input, and is known of the first
        return _Second()
    other = ExportPaths(paths.directory / "second" / paths.pte.name)
    other.directory.mkdir()
    other.pte.symlink_to(paths.pte)
    write_samples(replace(prepared, inputs=inputs, outputs=outputs), other)
    between = agreement_of("second", changed, "first", first, "")
    return _Second(other, between.sqnr_db if between is not None else None)


def _tested(outcome: VerificationOutcome, second: _Second) -> VerificationOutcome:
    """Return an outcome that agrees as untested where a program that ignores its input would agree as well."""
    error, apart = outcome.verification.sqnr_db, second.apart_db
    if outcome.failure is not None or not outcome.verification.verdict:
        return outcome
    if second.why_none:
        return uncompared(outcome, second.why_none)
    if outcome.verification.verdict == "differs" or error is None or apart is None or error > apart + _ROOM_DB:
        return outcome
    return uncompared(outcome, f"the outputs change with the input by less ({apart:.0f} dB) than the program's error")


def _record(
    made: LoweredModel, staged: ExportPaths, seconds: dict[str, float], sequence: Sequence | None
) -> ExportRecord:
    program, request = pte.parse_own(staged.pte), made.request
    return msgspec.structs.replace(
        described(request, made.prepared, staged, made.lowered.delegation, program),
        stage_seconds=dict(seconds),
        rewrites=_with_lowering(made.prepared.rewrites, program, staged, request),
        sequence=sequence.record(staged) if sequence is not None else None,
        lowering=made.lowered.way,
    )


def keep_samples(request: ExportRequest, load: Callable[[], LoadedModel] | None = None) -> ExportResult:
    """Run the eager model and write its inputs, its outputs and what was asked for; there is no .pte."""
    request = replace(request, outdir=request.outdir / _WITHOUT)
    paths = request.paths
    with kept_off_terminal(request.loud), writable(request.outdir), host_untouched(request.seed):
        prepared = prepare(load() if load else load_asked(request), request)
        request.outdir.mkdir(parents=True, exist_ok=True)
        with files.locked(request.outdir, "export"), files.scratch_directory(STAGING, request.outdir) as staged:
            at = ExportPaths(staged / paths.pte.name)
            write_samples(prepared, at)
            record = described(request, prepared, at, Delegation(0, 0, 0, []))
            files.write_json(at.meta, ExportMeta(exports={paths.stem: record}))
            publish(staged, request.outdir, [paths.inputs.name, paths.expected.name, paths.meta.name])
    return ExportResult(paths, record)


def described(
    request: ExportRequest,
    prepared: Prepared,
    staged: ExportPaths,
    delegation: Delegation,
    program: pte.Program | None = None,
) -> ExportRecord:
    """Return the record of what was asked for and of the files that are there, before anything is known of lowering."""
    written = sorted(path for path in staged.directory.rglob("*") if path.is_file())
    random, asked = prepared.model.weights == "random", request.record(prepared.model.origin)
    takes, gives = (program.methods[0].inputs, program.methods[0].outputs) if program is not None else ((), ())
    return ExportRecord(
        model=request.model,
        source=prepared.model.source,
        weights=f"random (seed {request.seed})" if random else prepared.model.weights,
        inputs=samples.describe(prepared.inputs, staged.inputs.name, "input", takes),
        outputs=samples.describe(prepared.outputs, staged.expected.name, "output", gives, prepared.names),
        delegation=delegation,
        versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        files={str(path.relative_to(staged.directory)): files.sha256(path) for path in written},
        stage_seconds={},
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        reference="eager PyTorch, fp32",
        warnings=[
            *missing_parts(request),
            *prepared.warnings,
            *remark(prepared.cost, request.dtype, prepared.model.weights),
        ],
        dtype_cost=prepared.cost,
        auto=prepared.auto,
        request=msgspec.structs.replace(asked, command=typable(request, asked.origin)),
        calibration=prepared.calibration,
        **request.recorded("export"),
    )


def _verified(
    request: ExportRequest,
    load: Callable[[], LoadedModel],
    record: ExportRecord,
    nodes: list[LoweredNode],
    samples_at: tuple[ExportPaths, _Second],
    stages: Stages,
) -> ExportRecord:
    """Execute the program on both samples before it is published; one that does not run is an error."""
    staged, second = samples_at
    if not request.verify:
        outcome = replace(unverified(NOT_ASKED), remarks=tuple(missing_remarks(staged, nodes)))
    else:
        found = None
        with stages.stage("execute the program once"):
            outcome = unverified("what executes it failed")
            with beside("the program was not executed"):
                unsure = functools.cache(lambda: samples.not_comparable(load()))
                outcome = execute_program(staged, record, unsure)
                if outcome.verification.verdict == "agrees" and second.paths is not None:
                    again = execute_program(second.paths, msgspec.structs.replace(record, files={}), unsure)
                    outcome = again if again.failure is not None else outcome
            outcome = _tested(outcome, second)
            chosen = any(choice.applied for choice in record.auto)
            allowed = request.allow_wrong and outcome.failure is not None and outcome.failure.wrong
            if outcome.failure is not None and not chosen and not allowed:
                found = does_not_run(request, load, outcome.failure, staged, record, nodes, stages)
                if found.way_out is None or not request.mend:
                    raise found.error
        if found is not None:
            raise found  # it is to go on with another export of the model
        if chosen and outcome.failure is not None:
            raise _WrongWithRewritesError("the program does not run with it", record.auto)
        if chosen and outcome.verification.verdict == "differs":
            raise _WrongWithRewritesError("the outputs differ from eager's with it", record.auto)
    return msgspec.structs.replace(
        record,
        verification=outcome.verification,
        warnings=[*record.warnings, *outcome.remarks],
        stage_seconds=dict(stages.seconds),
    )


def _with_lowering(
    found: dict[str, list[str]] | None, program: pte.Program | None, staged: ExportPaths, request: ExportRequest
) -> dict[str, list[str]] | None:
    """Add where `layout` would also save a layout change in lowering: which there are, only the program shows."""
    applied = LAYOUT in request.rewrites
    flow = data_flow(program, program.methods[0]) if program is not None and not applied else None
    if found is None or flow is None or request.backend != "xnnpack" or request.delegation != "whole":
        return found
    places: list[str] = []
    with beside("which layout changes lowering could save is not known"):
        places += needless_lines(flow, read_sources(staged.pte).of_steps(flow))
    return {**found, LAYOUT: [*dict.fromkeys([*found.get(LAYOUT, []), *places])]}


def _earlier_exports(paths: ExportPaths) -> ExportMeta:
    return _earlier(paths.meta, ExportMeta, "export record") or ExportMeta()


def _earlier(path: Path, kind: type[T], what: str) -> T | None:
    """Return the table that other exports share with this one; None if it is damaged (no JSON), to be written anew."""
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
    request: ExportRequest, record: ExportRecord, nodes: list[LoweredNode], paths: ExportPaths, staged: ExportPaths
) -> None:
    """Add this export to the tables its directory shares with other exports."""
    meta = _earlier_exports(paths)
    files.write_json(staged.meta, ExportMeta(meta.schema, {**meta.exports, paths.stem: record}))
    if request.save_graph:
        graphs = _earlier(paths.graph, dict[str, list[LoweredNode]], "graph") or {}
        files.write_json(staged.graph, {**graphs, paths.stem: nodes})
