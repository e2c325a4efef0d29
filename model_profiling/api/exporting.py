"""Export a model: by its name, from its file, or as it is in memory. torch is imported when it comes to that."""

import functools
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.api.calling import caller, place
from model_profiling.base import files
from model_profiling.base.errors import InputError, RunError, SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.options import Verb, settled
from model_profiling.export.request import ExportRequest, ExportResult, arguments, typed
from model_profiling.models.lookup import model_name, snake_case
from model_profiling.models.options import LoadOptions, input_spec, name_suffix
from model_profiling.platforms.base import Platform
from model_profiling.store.artifacts import ExportPaths, ExportRecord

if TYPE_CHECKING:
    from model_profiling.models.loading import LoadedModel
    from model_profiling.tune.bench import Bench
    from model_profiling.tune.metric import Metric
    from model_profiling.tune.tune_result import TuneResult

# Takes what is asked for and what to call it in progress.
Exporting = Callable[[ExportRequest, str], ExportResult]


def artifact_name(target: str, options: LoadOptions) -> str:
    """Return the name that a target's artifacts carry; refuses a target that is not there, before torch is imported."""
    return model_name(target) + name_suffix(options.settings)


def load_options(
    shapes: Any = None, settings: Mapping[str, Any] | None = None, checkpoint: str | Path | None = None
) -> LoadOptions:
    """Return what is said of a model beside its name, checked."""
    return LoadOptions(
        tuple(map(input_spec, shapes or ())),
        tuple(sorted((settings or {}).items())),
        Path(checkpoint) if checkpoint else None,
    )


def export_request(
    exports: Verb,
    model: Any,
    in_memory: tuple[Any, str, Any],
    out: str | Path | None,
    options: Mapping[str, Any],
    below: str = "artifacts",
    **more: Any,
) -> ExportRequest:
    """Return what is asked for; `in_memory` goes with a module only: example_inputs, name and dynamic_shapes. A command
    puts what has no place into `below` of the model's own folder."""
    example_inputs, name, dynamic_shapes = in_memory
    given = settled(exports, options)
    loading = load_options(*(given.pop(key, None) for key in ("input_shapes", "settings", "checkpoint")))
    # What does not go with the model is refused and not ignored.
    if not isinstance(model, (str, Path)):
        if loading.inputs or loading.settings or loading.checkpoint:
            raise InputError(
                "input_shapes, settings and checkpoint are for a model by its name or from a file",
                "Give a module with its weights, and example_inputs.",
            )
        target, known = "", name or snake_case(type(getattr(model, "_orig_mod", model)).__name__)
    elif example_inputs is not None or name or dynamic_shapes is not None:
        raise InputError(
            f"{model} brings its own inputs: example_inputs, name and dynamic_shapes are for a module in memory",
            "Leave them out; input_shapes gives a model from a file random inputs.",
        )
    else:
        target, known = str(model), artifact_name(str(model), loading)
    home = place(out, exports, f"out_{known}/{below}")
    return ExportRequest(known, home, target=target, options=loading, **{"loud": caller().loud, **given, **more})


def exported_request(pte: Path, changed: bool, allow_wrong: bool = True) -> ExportRequest:
    """Return what a .pte was exported from, if the kit did that and the model is still the same; nothing of it can be
    `changed`."""
    from model_profiling.export.cache import cached

    paths = ExportPaths(pte.resolve())
    if changed:
        raise InputError(
            f"{paths.pte.name} is exported already", "Leave the flags of an export out, or give the model."
        )
    _, request = request_of(paths.pte)
    if cached(request) is None:
        raise InputError(
            f"{paths.pte.name} is not what an export would give now: the model, or the kit, has changed",
            "Give the model, as to sme2-kit export: it is exported again.",
        )
    return replace(request, allow_wrong=allow_wrong)


def request_of(pte: Path) -> tuple[ExportRecord, ExportRequest]:
    """Return the record of a .pte that the kit has exported from a model's name or file, and what was asked for."""
    from model_profiling.export.request import recorded
    from model_profiling.pipeline.pipeline import export_record

    paths = ExportPaths(pte.resolve())
    record = export_record(paths)
    if record is None or record.request.origin == "memory":
        raise InputError(
            f"{paths.pte.name} does not say which PyTorch model it was exported from",
            "It is held against PyTorch, or called as the model is: export the model by its name or from its file.",
        )
    asked, home = recorded(record, record.request), Path(record.request.directory)
    target = str(home / asked.target) if record.request.origin == "file" else asked.target
    return record, replace(asked, outdir=paths.directory, target=target, allow_wrong=True)


def from_target(on_progress: OnProgress, force: bool, on_cached: Callable[[], None] = lambda: None) -> Exporting:
    """Return a function that exports what requests name; what is on disk already, and would be the same, is reused."""

    def export(request: ExportRequest, label: str) -> ExportResult:
        from model_profiling.export.cache import cached

        request.check()
        earlier = None if force else cached(request)
        if earlier is not None:
            on_cached()
            return earlier
        files.refuse_unwritable(request.paths.meta)
        announce = stage_listener(on_progress, label)
        exporter = import_exporter(announce, request.loud)
        return exporter(request, announce)

    return export


def from_memory(module: Any, example_inputs: Any, dynamic_shapes: Any, on_progress: OnProgress) -> Exporting:
    """Return a function that exports this module in the way each request asks for."""

    def export(request: ExportRequest, label: str) -> ExportResult:
        announce = stage_listener(on_progress, label)
        import_exporter(announce, request.loud)
        from model_profiling.export.in_memory import export_as_asked

        return export_as_asked(request, module, example_inputs, dynamic_shapes, announce)

    return export


def maker(
    request: ExportRequest, model: Any, example_inputs: Any, report: OnProgress, force: bool, dynamic_shapes: Any = None
) -> Exporting:
    """Return what exports the model of a request, which is in memory unless it has a target."""
    if request.target:
        return from_target(report, force, caller().on_cached)
    return from_memory(model, example_inputs, dynamic_shapes, report)


def repeated_by(request: ExportRequest) -> str:
    """Return what a user types for it, wherever it is put; for a module in memory, what a program calls."""
    in_memory = f"sme2_kit.export(module, example_inputs, {arguments(request)})"
    return shlex.join(typed(request)) if request.target else in_memory


def stage_listener(on_progress: OnProgress, label: str) -> Callable[[str], None]:
    return lambda stage: on_progress(f"{label}: {stage}", 0, 0)


def import_exporter(announce: Callable[[str], None], loud: bool) -> "Callable[..., ExportResult]":
    """Import torch and ExecuTorch, whatever they print while they are."""
    announce("import torch and executorch")
    from model_profiling.export.quiet import kept_off_terminal

    try:
        with kept_off_terminal(loud):
            from model_profiling.export.exporter import export
    except ModuleNotFoundError as error:
        raise SetupError(f"exporting needs {error.name}, which is not installed", install_command("export")) from error
    return export


def loading(request: ExportRequest, in_memory: tuple[Any, Any] | None) -> "Callable[[], LoadedModel]":
    """Return what loads the model of a request; `in_memory` is its module with the example inputs."""
    if in_memory is not None:
        from model_profiling.export import in_memory as memory

        return memory.loader(request.model, *in_memory, None)
    from model_profiling.export.prepare.preparation import load_asked

    return functools.partial(load_asked, request)


def search_by_metric(
    base: ExportRequest,
    judged: tuple[Any, Any, float, bool],
    in_memory: tuple[Any, Any] | None,
    numerics: Callable[[ExportRequest, ExportResult], Numerics],
) -> "Callable[[Bench], TuneResult]":
    """Read a metric (with its data, how much it may drop, and whether lower is better); return what tunes by it."""
    from model_profiling.tune.metric import Judge, Metric
    from model_profiling.tune.within_drop import best_within_drop

    metric = Metric(*judged[:2], base.outdir / "metric_output.txt", *judged[2:])
    load = loading(base, in_memory)
    return lambda bench: best_within_drop(Judge(metric, bench, load), numerics)


def export_with_metric(
    request: ExportRequest,
    make: Exporting,
    judged: tuple[Any, Any, bool],
    model: Any,
    report: OnProgress,
    force: bool,
) -> ExportResult:
    """Export, and say what a metric (with its data, and whether lower is better) is of that and of eager PyTorch."""
    from model_profiling.analysis.compare.comparison import MetricRecord, metric_sources, read_metric

    words = str(judged[0]), str(judged[1])
    known = functools.partial(read_metric, *words, judged[2], request.paths)

    def read() -> "Metric":
        import_exporter(stage_listener(report, "metric"), caller().loud)
        from model_profiling.tune.metric import Metric

        return Metric(*judged[:2], None, math.inf, judged[2])

    # A mistake in it is said before the export, which may take long.
    scored = read() if force or known() is None else None
    made = make(request, "export")
    if scored is None and (found := known()) is not None:
        return replace(made, metric=found)
    scored = scored or read()
    from model_profiling.platforms.process_platform import LocalPlatform
    from model_profiling.tune.metric import Scorer

    load = loading(request, None if request.target else model)
    with files.scratch_directory() as home:
        change = Scorer(scored, load, 1, LocalPlatform(), home, report).compared(None, made)
    if all(isinstance(each, (str, Path)) for each in judged[:2]):
        files.write_json(made.paths.metric, MetricRecord(change, metric_sources(*words, made.paths.pte)))
    return replace(made, metric=change)


def numerics_of(
    request: ExportRequest,
    made: ExportResult,
    platform: Platform,
    on_progress: OnProgress,
    in_memory: tuple[Any, Any] | None = None,
    trial: bool = True,
) -> Numerics:
    """Look at the layers of what was exported for a request; `in_memory` is its module with the example inputs.

    `trial`: what would be recommended is exported and run, too.
    """
    from model_profiling.export.numerics.measuring import measure_numerics

    load = loading(request, in_memory)
    return measure_numerics(request, made, load, platform, on_progress, trial=trial)


def reproduced(request: ExportRequest, make: Exporting) -> str:
    """Return a script that shows with torch and executorch alone what is wrong with the program of a request."""
    with files.scratch_directory("sme2-kit-reproduce-") as folder:
        request = replace(request, outdir=folder)
        try:
            make(request, "export")
        except RunError:
            if not request.paths.reproduction.is_file():
                raise
            return files.content(request.paths.reproduction).decode()
    raise InputError(f"the outputs of {request.model} are right: there is nothing to show", "Try another --dtype.")
