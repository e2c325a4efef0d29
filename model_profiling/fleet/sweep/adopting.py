"""Puts what came from a machine of a cluster where a job of this machine would have left it."""

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from model_profiling import files, places, publication
from model_profiling.artifacts import EARLIER, PARTIAL, ExportPaths
from model_profiling.errors import KitError, RunError
from model_profiling.fleet.sweep.jobs import Job, finished_run
from model_profiling.kept_programs import keep, switched_off
from model_profiling.labels import revision
from model_profiling.publication import READY, Publication
from model_profiling.remembered import program_sha256
from model_profiling.run_directory import Manifest, RunDirectory
from model_profiling.runs import label_of, time_label, unique_label


def adopt_run(job: Job, incoming: Path, root: Path, program: Path, note: Callable[[Manifest], None]) -> None:
    """Make a run that was measured elsewhere the latest of its cell; the one that was there becomes an earlier one.

    `note` says that the job is finished with that result. It comes before the result is in place: a kill in between
    leaves a note of something that is not there, and so an unfinished job; a kill later is recovered from.
    """
    with files.locked(root, "pipeline"):
        publication.recover(root)
        manifest = _checked(job, incoming, program)
        before = RunDirectory(root).manifest() if finished_run(root) is not None else None
        manifest.label = unique_label(root, time_label(manifest.created))
        # As if it had been measured here: later commands look for the program where it is.
        manifest.model = msgspec.structs.replace(manifest.model, path=str(program.resolve()))
        manifest.config |= {"model": str(program), "output_root": str(root), "directory": places.working_directory()}
        # The user's code is here, not where it ran.
        manifest.revision = revision(manifest.labels)
        place = root / PARTIAL / f"cluster-{uuid.uuid4().hex[:12]}"
        for name in manifest.experiments:
            target = place / READY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (incoming / name).rename(target)
        note(manifest)
        there = before.experiments if before is not None else {}
        dropped = [name for name in there if name not in manifest.experiments]
        archive = label_of(before) if before is not None else ""
        if archive and (root / EARLIER / archive).exists():
            archive = unique_label(root, archive)
        publication.publish(root, place, Publication(manifest, list(manifest.experiments), dropped, archive))
        files.remove_directory(place)
        if manifest.timing == "measured" and not switched_off():
            # For the history of the cell, as a run here would.
            with contextlib.suppress(KitError, OSError):
                keep(root, ExportPaths(program), manifest.model.sha256, manifest.model.export)


def _checked(job: Job, incoming: Path, program: Path) -> Manifest:
    manifest = finished_run(incoming)
    if manifest is None or manifest.model.sha256 != program_sha256(program):
        raise RunError(f"{job.name}: the cluster sent no complete run of its program", "Run the sweep again.")
    for name, record in manifest.experiments.items():
        home = incoming / name
        whole = all((home / f).is_file() and files.sha256(home / f) == digest for f, digest in record.files.items())
        if record.name != name or not whole:
            raise RunError(f"{job.name}: the run that the cluster sent is damaged", "Run the sweep again.")
    return manifest
