"""Puts what came from a machine of a cluster where a job of this machine would have left it."""

import contextlib
import dataclasses
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from model_profiling.analysis.run.validation import problems
from model_profiling.base import directories, files
from model_profiling.base.errors import KitError, RunError
from model_profiling.base.file_memo import program_sha256
from model_profiling.export.cache import cached
from model_profiling.export.request import ExportRequest
from model_profiling.fleet.sweep.jobs import Job, finished_run
from model_profiling.pipeline.config import is_experiment_name
from model_profiling.store import transaction
from model_profiling.store.artifacts import EARLIER, PARTIAL, ExportPaths
from model_profiling.store.kept_programs import is_keeping_off, keep_program
from model_profiling.store.labels import model_revision, revision
from model_profiling.store.publication import READY, publish
from model_profiling.store.run_directory import Manifest, RunDirectory
from model_profiling.store.runs import time_label, unique_label


def adopt_run(job: Job, incoming: Path, root: Path, program: Path, note: Callable[[Manifest], None]) -> None:
    """Make a run that was measured elsewhere the latest of its cell; the one that was there becomes an earlier one.

    `note` says that the job is finished with that result. It comes before the result is in place: a kill in between
    leaves a note of something that is not there, and so an unfinished job; a kill later is recovered from.
    """
    with files.locked(root, "pipeline"):
        transaction.recover(root)
        manifest = _checked(job, incoming, program)
        before = RunDirectory(root).manifest() if finished_run(root) is not None else None
        manifest.label = unique_label(root, time_label(manifest.created))
        # As if it had been measured here: later commands look for the program where it is.
        manifest.model = msgspec.structs.replace(manifest.model, path=str(program.resolve()))
        manifest.config |= {
            "model": str(program),
            "output_root": str(root),
            "directory": directories.working_directory(),
        }
        # The user's code is here, not where it ran.
        manifest.revision = revision(manifest.labels)
        manifest.model_revision = model_revision(manifest.model.export, program)
        place = root / PARTIAL / f"cluster-{uuid.uuid4().hex[:12]}"
        for name in manifest.experiments:
            target = place / READY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (incoming / name).rename(target)
        note(manifest)
        there = before.experiments if before is not None else {}
        dropped = [name for name in there if name not in manifest.experiments]
        archive = before.label if before is not None else ""
        if archive and (root / EARLIER / archive).exists():
            archive = unique_label(root, archive)
        publish(root, place, manifest, manifest.experiments, dropped, archive)
        files.remove_directory(place)
        if manifest.timing == "measured" and not is_keeping_off():
            # For the history of the cell, as a run here would.
            with contextlib.suppress(KitError, OSError):
                keep_program(root, ExportPaths(program), manifest.model.sha256, manifest.model.export)


def adopt_export(request: ExportRequest, incoming: Path) -> None:
    """Put an export that was made elsewhere in its place, if it is what an export here would be."""
    if cached(dataclasses.replace(request, outdir=incoming)) is None:
        raise RunError(
            f"the cluster sent no complete export of {request.model}",
            "See its log. All machines of a cluster need the same kit, Python and packages.",
        )
    files.replace_directory(incoming, request.outdir)


def _checked(job: Job, incoming: Path, program: Path) -> Manifest:
    """Return the manifest of a run that came from elsewhere, which has to be valid before anything of it is kept."""
    manifest = finished_run(incoming)
    if manifest is None or manifest.model.sha256 != program_sha256(program):
        raise RunError(f"{job.name}: the cluster sent no complete run of its program", "Run the sweep again.")
    found = problems(RunDirectory(incoming))
    for name, record in manifest.experiments.items():
        if record.name != name or not is_experiment_name(name):
            found.append(f"no experiment can be called {name!r}")
    if found:
        raise RunError(f"{job.name}: the run that the cluster sent is damaged: {found[0]}", "Run the sweep again.")
    return manifest
