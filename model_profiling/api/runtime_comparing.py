"""Measure one model in several runtimes, in turns; a runtime that cannot take it is a row that says why."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.analysis.accuracy.agreement import expected_outputs, read_outputs
from model_profiling.analysis.compare.metrics import layout_caveats
from model_profiling.analysis.compare.onnx_profile import onnx_side
from model_profiling.analysis.compare.program_changes import ProfiledProgram, program_changes
from model_profiling.analysis.compare.runtime_comparison import (
    EAGER_AT_EXPORT,
    Reference,
    RuntimeComparison,
    RuntimeRow,
    RuntimeSide,
    compare_runtimes,
    with_tracing_cost,
)
from model_profiling.analysis.run.selection import measured_side
from model_profiling.api.loaded_run import Run
from model_profiling.base import files
from model_profiling.base.dtypes import UNKNOWN, dtype_of
from model_profiling.base.errors import InputError, InterruptionError, KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnProgress
from model_profiling.base.visible import visible
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.formats.pte.dtypes import program_dtype
from model_profiling.pipeline.defaults import checked_program
from model_profiling.pipeline.group_state import ExperimentOutcome, MeasuredProgram
from model_profiling.pipeline.manifest_records import profile_file
from model_profiling.pipeline.phase_experiments import sequence_of
from model_profiling.pipeline.pipeline import export_record, sample_inputs
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import TIMEOUT_S, measure
from model_profiling.platforms.base import Platform
from model_profiling.runner.protocol import Ready
from model_profiling.runtimes import runtime_table
from model_profiling.store.artifacts import RUNTIMES as RUNTIMES_FILE
from model_profiling.store.artifacts import ExportPaths, ExportRecord

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OTHER_TOOL = "a file of another tool: its weights and its quantization are its own"


class ComparedRuntimes(RuntimeComparison, frozen=True, tag="runtime_comparison", tag_field="kind"):
    """One model in several runtimes: `rows` has the fastest first."""

    def report(self, output: str | Path, title: str = "") -> Path:
        """Write a page and say where: the table, a picture, and which lines ExecuTorch does in other time."""
        from model_profiling.report.drawing.drawing_process import DrawingPool
        from model_profiling.report.files.page_files import write_runtimes

        with DrawingPool() as artist:
            return write_runtimes(self, artist, Path(output), title)


@dataclass(frozen=True)
class RuntimeChoice:
    """A runtime by its name, or of a file of the user's; `name` is that of its row, unique."""

    name: str
    runtime: runtime_table.Runtime
    file: Path | None = None
    # 2 of the second of one runtime.
    number: int = 1


@dataclass(frozen=True)
class RuntimesRequest:
    """What to measure; `inputs` are files instead of the samples of the export."""

    choices: Sequence[RuntimeChoice]
    counts: Counts
    threads: int = 1
    inputs: Sequence[Path] = ()
    timeout_s: float = TIMEOUT_S
    # Where files stay; None: nowhere.
    home: Path | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What decides the numbers besides the model: the same again need not be measured again."""
        found = {}
        for choice in self.choices:
            words = [f"{name} {version}" for name, version in choice.runtime.versions.items()]
            words += [files.sha256(choice.file)] if choice.file is not None else []
            found[choice.name] = " ".join(words)
        counts = {name: str(value) for name, value in asdict(self.counts).items() if value is not None}
        inputs = {f"input {place}": files.sha256(path) for place, path in enumerate(self.inputs)}
        return {**found, **counts, **inputs, "threads": str(self.threads)}


def is_file_of_runtime(text: str) -> bool:
    """Return whether a text names a file that another runtime takes."""
    return Path(text).suffix.lower() in runtime_table.OF_FILES


def runtime_choices(asked: Sequence[str | Path]) -> list[RuntimeChoice]:
    """Return what names and files stand for, each with a name of its own; one may be named twice, as a check."""
    if not asked:
        raise InputError("no runtime is named", f"Use some of {', '.join(runtime_table.RUNTIMES)}.")
    found: list[RuntimeChoice] = []
    for text in map(str, asked):
        file = Path(text) if is_file_of_runtime(text) else None
        if file is not None and not files.is_file(file):
            raise InputError(f"there is no {file}", "Check the path.")
        row = runtime_table.OF_FILES[file.suffix.lower()] if file is not None else runtime_table.runtime_of(text)
        count = 1 + sum(each.runtime is row for each in found)
        found.append(RuntimeChoice(row.name if count == 1 else f"{row.name}_{count}", row, file, count))
    return found


def refuse_platform(platform: Platform) -> None:
    """Other runtimes are packages of this Python: they run where it does."""
    if platform.remote or platform.timing != "measured":
        raise InputError(f"other runtimes run on this machine only, not on {platform.name}", "Leave the platform out.")


@dataclass(frozen=True)
class ModelSource:
    """A .pte and the record of its export, from which the model is made again; `failure` is why there is no .pte.

    `load` gives a module that is only in memory.
    """

    paths: ExportPaths
    record: ExportRecord | None
    load: Callable[[], Any] | None = None
    failure: KitError | None = None

    @property
    def dtype(self) -> str:
        return self.record.dtype if self.record is not None else program_dtype(self.paths.pte).main


def program_source(pte: Path, load: Callable[[], Any] | None = None) -> ModelSource:
    """Return a program; language models are refused, which are measured by phase."""
    paths = ExportPaths(checked_program(pte).resolve())
    if sequence_of(paths.pte) is not None:
        raise InputError(
            f"{paths.pte.name} is a language model, which is measured by phase with ExecuTorch alone",
            "Use `sme2-kit run`, without other runtimes.",
        )
    return ModelSource(paths, export_record(paths), load)


def exported_source(
    request: ExportRequest, make: Callable[[], ExportResult], load: Callable[[], Any] | None, others: bool
) -> ModelSource:
    """Export a model. One that ExecuTorch cannot take is measured in `others` all the same, if it runs eagerly."""
    try:
        return program_source(make().paths.pte, load)
    except InterruptionError:
        raise
    except KitError as error:
        if not others or dtype_of(request.dtype).quantized:
            raise
        from model_profiling.export.exporter import keep_samples

        try:
            made = keep_samples(request, load)
        except KitError:
            raise error from None
        return ModelSource(ExportPaths(made.paths.pte.resolve()), made.record, load, error)


def measure_runtimes(
    asked: RuntimesRequest, source: ModelSource | None, platform: Platform, report: OnProgress
) -> ComparedRuntimes:
    """Measure a program and the same model in other runtimes; without a source only files of the user's."""
    refuse_platform(platform)
    record = source.record if source is not None else None
    sha256 = program_sha256(source.paths.pte) if source is not None and source.failure is None else ""
    inputs = tuple(asked.inputs) or (sample_inputs(source.paths, record) if source is not None else ())
    programs: dict[str, MeasuredProgram] = {}
    failures: dict[str, KitError] = {}
    for choice in asked.choices:
        try:
            file = choice.file or _made(choice.runtime, source, report)
            programs[choice.name] = MeasuredProgram(file.resolve(), file.stem, inputs)
        except KitError as error:
            failures[choice.name] = error
    with files.scratch_directory() as scratch:
        outcomes = _outcomes(asked, programs, platform, report, asked.home or scratch)
        if asked.home is None:
            _quote_logs(outcomes.values())
        sides = [_side(choice, outcomes.get(choice.name), failures, record) for choice in asked.choices]
        if not any(side.turns and side.failure is None for side in sides):
            raise next(side.failure for side in sides if side.failure is not None)
        # Of other inputs the export has no outputs: then those of eager PyTorch count, if it was measured.
        expected = expected_outputs(source.paths.directory, record) if source is not None and not asked.inputs else []
        ordered = sides if expected else sorted(sides, key=lambda side: side.row.runtime != runtime_table.EAGER)
        dtype = source.dtype if source is not None else UNKNOWN
        reference = Reference(EAGER_AT_EXPORT, expected, dtype, record.dtype_cost if record is not None else None)
        rows, baseline, against = compare_runtimes(ordered, reference, runtime_table.EXECUTORCH)
        base = next((row for row in rows if row.name == baseline), None)
        rows = [_by_line(row, base, outcomes) for row in rows]
    stem = source.paths.stem if source is not None else str(asked.choices[0].file)
    caveats = layout_caveats(platform.probe().environment)
    model = record.model if record is not None else stem
    return ComparedRuntimes(
        *(model, dtype, asked.threads, baseline, against, rows),
        caveats=caveats,
        pte_sha256=sha256,
        asked=asked.identity,
    )


def _by_line(row: RuntimeRow, base: RuntimeRow | None, outcomes: Mapping[str, ExperimentOutcome]) -> RuntimeRow:
    """Return the row of a runtime with what it does in other time than the baseline, if both say what they did."""
    if base is None or row.comparison is None:
        return row
    sides = [(each.label, outcomes[each.name]) for each in (base, row) if each.name in outcomes]
    if len(sides) < 2 or any(outcome.failure is not None or not outcome.dumps for _, outcome in sides):
        return row
    try:
        before, after = (_profiled(outcome, label) for label, outcome in sides)
    except KitError as error:
        return msgspec.structs.replace(row, notes=[*row.notes, f"not compared by line: {error.message}"])
    changes = program_changes(before, after, True)
    return msgspec.structs.replace(row, changes=with_tracing_cost(changes, (base.latency, row.latency)))


def _profiled(outcome: ExperimentOutcome, label: str) -> ProfiledProgram:
    if outcome.runner.kind != "runtime":
        return measured_side(outcome, label).profiled()
    profiles = [profile_file(outcome, number) for number in range(len(outcome.dumps))]
    optimized = runtime_table.optimized_file(outcome.dumps[0])
    made = optimized if files.is_file(optimized) else None
    return onnx_side(label, outcome.program.pte, profiles, made, outcome.traced_warmup)


def _outcomes(
    asked: RuntimesRequest, programs: dict[str, MeasuredProgram], platform: Platform, report: OnProgress, home: Path
) -> dict[str, ExperimentOutcome]:
    if not programs:
        return {}
    of_name = {choice.name: choice.runtime for choice in asked.choices if choice.name in programs}
    runtimes = {name: row.record for name, row in of_name.items() if row.module}
    # In executions of their own, where two runtimes have profiles of operators.
    profiled = [name for name, row in of_name.items() if row.profiles]
    how = (platform, programs, home, asked.threads, report, len(profiled) > 1, asked.counts)
    wait: dict[str, Any] = {"keep_failures": True, "timeout_s": asked.timeout_s}
    return measure(*how, runtimes=runtimes, profiled=profiled, **wait)


def _quote_logs(outcomes: Iterable[ExperimentOutcome]) -> None:
    """Have each failure quote the end of its log instead of naming a file that goes with the scratch directory."""
    for outcome in outcomes:
        log = outcome.file(".log")
        if outcome.failure is not None and outcome.failure.names(log):
            words = [line.strip() for line in _COLOURS.sub("", files.tail(log)).splitlines()]
            said = [line for line in words if line and not line.startswith(("{", "error: ", "hint: "))]
            outcome.failure.hint = visible(f"It said last: {said[-1][:300]}") if said else "It said nothing else."


def _made(runtime: runtime_table.Runtime, source: ModelSource | None, report: OnProgress) -> Path:
    """Return the program of a runtime that has no file of its own: the .pte, or what is made of the same model."""
    if not runtime.made:
        raise InputError(
            f"{runtime.label} takes a {runtime.suffix}, which the kit does not make",
            f"Give one of your own: --runtimes {runtime_table.EXECUTORCH},model{runtime.suffix}.",
        )
    if source is None:
        raise InputError(f"{runtime.label} needs the model itself", "Give it by its name, as file.py:Class or as .pte.")
    paths, record = source.paths, source.record
    if runtime.name == runtime_table.EXECUTORCH:
        if source.failure is not None:
            raise source.failure
        return paths.pte
    if record is None or (record.request.origin == "memory" and source.load is None):
        raise InputError(
            f"{paths.pte.name} does not say which PyTorch model it was exported from", "Give the model itself."
        )
    if dtype_of(record.dtype).quantized or record.keep_fp32:
        refusal = f"{record.dtype} is ExecuTorch's quantization; {runtime.label} would have another"
        if not dtype_of(record.dtype).quantized:
            refusal = f"{runtime.label} has no layers that keep fp32"
        raise InputError(refusal, f"Give a file of your own: --runtimes {runtime_table.EXECUTORCH},model.onnx.")
    if runtime.suffix != ".onnx":
        if record.request.origin == "memory":
            raise InputError(
                f"{runtime.label} runs in a process of its own, which cannot get a module that is only in memory",
                "Give the model as file.py:Class.",
            )
        return paths.pte
    report("export to ONNX", 0, 0)
    from model_profiling.export.onnx_file import make_onnx

    return make_onnx(paths, record, source.load)


def _settings(ready: Ready) -> dict[str, str]:
    """Return what a process says of itself; the kit's runner names its backends and XNNPACK's load options."""
    if ready.settings:
        return dict(ready.settings)
    own = {"backends": ", ".join(ready.backends), "workspace": ready.workspace, "weight cache": ready.weight_cache}
    call = {"call": "Method.execute in C++, inputs set before"}
    return {"threads": str(ready.threads), **{name: value for name, value in own.items() if value}, **call}


def _side(
    choice: RuntimeChoice, outcome: ExperimentOutcome | None, failures: dict[str, KitError], record: ExportRecord | None
) -> RuntimeSide:
    runtime, versions = choice.runtime, choice.runtime.versions
    if outcome is not None and outcome.runner.executorch:
        versions = {runtime_table.EXECUTORCH: outcome.runner.executorch_name}
    marks = [" ".join(choice.file.name.split())] if choice.file is not None else []
    marks += [f"#{choice.number}"] if choice.number > 1 else []
    label = " ".join([runtime.label, *[*versions.values()][:1], *([f"({', '.join(marks)})"] if marks else [])])
    ready = outcome.ready if outcome is not None else None
    row = RuntimeRow(
        name=choice.name,
        runtime=runtime.name,
        label=label,
        versions=versions,
        settings=_settings(ready) if ready is not None else {},
        file=str(outcome.program.pte) if outcome is not None else str(choice.file or ""),
        notes=[_OTHER_TOOL] if choice.file is not None and record is not None else [],
    )
    if outcome is None:
        return RuntimeSide(row, failures[choice.name])
    outputs = read_outputs(outcome.file("_output"), outcome.done.outputs if outcome.done is not None else [])
    found = (row, outcome.failure, outcome.timed, outcome.starts, outcome.processes, outputs)
    return RuntimeSide(*found, compiles=runtime.compiles, own_file=choice.file is not None)


def others_beside(names: Sequence[str | Path], platform: Platform, executorch: Sequence[str]) -> list[RuntimeChoice]:
    """Return what to measure besides a run, before anything takes time. ExecuTorch is always one: a run is of it."""
    refuse_platform(platform)
    if executorch:
        raise InputError("other runtimes are measured beside the installed ExecuTorch", "Leave --executorch out.")
    return runtime_choices(
        [*([] if runtime_table.EXECUTORCH in map(str, names) else [runtime_table.EXECUTORCH]), *names]
    )


def measure_beside(
    run: Run,
    others: RuntimesRequest,
    load: Callable[[], Any] | None,
    force: bool,
    platform: Platform,
    report: OnProgress,
) -> str:
    """Measure a run's program beside other runtimes and keep the result; returns a remark if it was there already.

    `load` gives a module that is only in memory. What the run has is saved whatever happens to the runtimes.
    """
    program = run.program
    try:
        if program is None:
            raise InputError(f"{run.manifest.model.path} has changed since it was measured", "Measure it again.")
        if not force and run.runtimes is not None and run.runtimes.asked == others.identity:
            return "reused existing results of other runtimes (use --force to measure again)"
        found = measure_runtimes(others, program_source(program, load), platform, report)
    except (KitError, KeyboardInterrupt):
        run.save()
        raise
    files.write_json(run.path / RUNTIMES_FILE, found)
    run.take_inputs()
    return ""
