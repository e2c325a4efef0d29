"""The samples and the record of a model that ExecuTorch cannot take: enough for other runtimes to be measured."""

from collections.abc import Callable
from dataclasses import replace

from model_profiling.base import files
from model_profiling.export.exporter import ExportRequest, ExportResult, described
from model_profiling.export.host import host_untouched
from model_profiling.export.prepare.preparation import prepare
from model_profiling.export.program_files import write_samples
from model_profiling.export.publish import publish, staging, writable
from model_profiling.export.quiet import kept_off_terminal
from model_profiling.models.loading import LoadedModel, load_model
from model_profiling.store.artifacts import Delegation, ExportMeta, ExportPaths

# Beside the artifacts: its record is of no .pte, and who reads those is not to find it.
_FOLDER = "without_executorch"


def keep_samples(request: ExportRequest, load: Callable[[], LoadedModel] | None = None) -> ExportResult:
    """Run the eager model and write its inputs, its outputs and what was asked for; there is no .pte."""
    request = replace(request, outdir=request.outdir / _FOLDER)
    paths = request.paths
    with kept_off_terminal(request.loud), writable(request.outdir), host_untouched(request.seed):
        loaded = load() if load else load_model(request.target or request.model, request.seed, request.options)
        prepared = prepare(loaded, request)
        request.outdir.mkdir(parents=True, exist_ok=True)
        with files.locked(request.outdir, "export"), staging(request.outdir) as staged:
            at = ExportPaths(staged / paths.pte.name)
            write_samples(prepared, at)
            record = described(request, prepared, at, Delegation(0, 0, 0, []))
            files.write_json(at.meta, ExportMeta(exports={paths.stem: record}))
            publish(staged, request.outdir, [paths.inputs.name, paths.expected.name, paths.meta.name])
    return ExportResult(paths, record)
