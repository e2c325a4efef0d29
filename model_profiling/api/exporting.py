"""Export a model: by its name, from its file, or as it is in memory. torch is imported when it comes to that."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from model_profiling.base.errors import SetupError
from model_profiling.base.installation import install_command
from model_profiling.base.on_progress import OnProgress
from model_profiling.export.command import arguments, typed
from model_profiling.export.publish import refuse_unwritable
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.models.lookup import model_name
from model_profiling.models.options import LoadOptions, input_spec, name_suffix

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


def from_target(on_progress: OnProgress, force: bool, on_cached: Callable[[], None] = lambda: None) -> Exporting:
    """Return a function that exports what requests name; what is on disk already, and would be the same, is reused."""

    def export(request: ExportRequest, label: str) -> ExportResult:
        from model_profiling.export.cache import cached

        request.check()
        earlier = None if force else cached(request)
        if earlier is not None:
            on_cached()
            return earlier
        refuse_unwritable(request.outdir)
        announce = stage_listener(on_progress, label)
        exporter = _imported(announce, request.loud)
        return exporter(request, announce)

    return export


def from_memory(module: Any, example_inputs: Any, dynamic_shapes: Any, on_progress: OnProgress) -> Exporting:
    """Return a function that exports this module in the way each request asks for."""

    def export(request: ExportRequest, label: str) -> ExportResult:
        announce = stage_listener(on_progress, label)
        _imported(announce, request.loud)
        from model_profiling.export.in_memory import export_as_asked

        return export_as_asked(request, module, example_inputs, dynamic_shapes, announce)

    return export


def maker(
    request: ExportRequest, model: Any, example_inputs: Any, report: OnProgress, force: bool, dynamic_shapes: Any = None
) -> Exporting:
    """Return what exports the model of a request, which is in memory unless it has a target."""
    if request.target:
        return from_target(report, force)
    return from_memory(model, example_inputs, dynamic_shapes, report)


def repeated_by(request: ExportRequest) -> str:
    """Return what a user types for it, wherever it is put; for a module in memory, what a program calls."""
    in_memory = f"sme2_kit.export(module, example_inputs, {arguments(request)})"
    return shlex.join(typed(request)) if request.target else in_memory


def stage_listener(on_progress: OnProgress, label: str) -> Callable[[str], None]:
    return lambda stage: on_progress(f"{label}: {stage}", 0, 0)


def _imported(announce: Callable[[str], None], loud: bool) -> "Callable[..., ExportResult]":
    announce("import torch and executorch")
    from model_profiling.export.quiet import kept_off_terminal

    try:
        with kept_off_terminal(loud):
            from model_profiling.export.exporter import export
    except ModuleNotFoundError as error:
        raise SetupError(f"exporting needs {error.name}, which is not installed", install_command("export")) from error
    return export
