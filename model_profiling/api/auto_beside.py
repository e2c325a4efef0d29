"""The model of a run with `--rewrite auto`: exported, measured in turns with the program of the run, and kept there."""

from dataclasses import replace

import msgspec

from model_profiling.analysis.compare.comparison import AutoComparison
from model_profiling.api.comparing import Measuring, measure_pair
from model_profiling.api.exporting import Exporting
from model_profiling.api.loaded_run import Run
from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnProgress
from model_profiling.base.rewrites import AUTO
from model_profiling.export.request import ExportRequest, ExportResult
from model_profiling.pipeline.schedule import Counts, default_budget_s
from model_profiling.platforms.base import Platform
from model_profiling.store.artifacts import AUTO_COMPARISON

# What the pair gets of a budget that a user named, and beyond the default one.
_SHARE = 1 / 3


def shared_counts(counts: Counts) -> tuple[Counts, Counts]:
    """Return what to measure of the run and of the pair: a budget is for both together."""
    own, pair = counts.budget_s, _SHARE * default_budget_s()
    if counts.budget_s is not None:
        own, pair = (1 - _SHARE) * counts.budget_s, _SHARE * counts.budget_s
    return replace(counts, budget_s=own), replace(counts, budget_s=pair, startup_launches=None)


def measure_auto(
    run: Run,
    stock: ExportResult,
    asked: tuple[ExportRequest, Exporting],
    how: tuple[Counts, int, Platform, OnProgress],
    force: bool,
) -> None:
    """Export the model of a run with `--rewrite auto` and measure both; what does not work out is its reason.

    `how` are counts, threads, platform and listener. What the run has is saved whatever happens to the pair.
    """
    counts, threads, platform, report = how
    if platform.timing != "measured":
        return
    sha256, found = run.manifest.model.sha256, stock.record.rewrites
    try:
        if found is not None and not any(found.values()):
            _keep(run, AutoComparison(sha256, reason="finds nothing to change in this model"))
            return
        request, export = asked
        made = export(replace(request, rewrites=(AUTO,), suffix=f"_{AUTO}"), f"export with --rewrite {AUTO}")
        about = AutoComparison(sha256, str(made.paths.pte), program_sha256(made.paths.pte), made.record.auto)
        if not any(choice.applied for choice in made.record.auto):
            _keep(run, msgspec.structs.replace(about, reason="leaves the program as it is"))
        elif force or run.auto is None or run.auto.auto_sha256 != about.auto_sha256 or not _is_known(run.auto):
            pair = Measuring(str(stock.paths.pte), str(made.paths.pte), counts, threads)
            _keep(run, msgspec.structs.replace(about, pairs=list(measure_pair(pair, None, report, platform))))
    except KitError as error:
        _keep(run, AutoComparison(sha256, reason=f"could not be measured ({error.message})"))
    except KeyboardInterrupt:
        run.save()
        raise


def _is_known(found: AutoComparison) -> bool:
    """Return whether there is a result that can be relied on, or one that measuring again would not better."""
    return bool(found.pairs) and not any(pair.told.contended for pair in found.pairs)


def _keep(run: Run, found: AutoComparison) -> None:
    files.write_json(run.path / AUTO_COMPARISON, found)
    run.take_inputs()
