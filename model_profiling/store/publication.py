"""Puts what was measured in place as the latest run; the run that was there before becomes an earlier one, whole."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.store import transaction
from model_profiling.store.artifacts import AUTO_COMPARISON, DERIVED, EARLIER, FAILED, PROGRAMS, ROOFS, RUNTIMES
from model_profiling.store.derived import change_manifest, read_index
from model_profiling.store.run_directory import Manifest, RunDirectory

# Where a place below .partial holds experiments that are complete and not yet part of a run.
READY = "ready"


def publish(
    root: Path,
    place: Path,
    manifest: Manifest,
    experiments: Iterable[str],
    dropped: Iterable[str] = (),
    archive: str = "",
) -> None:
    """Have `experiments` of the place's ready folder in the run, and files of those that are `dropped` no longer.

    The run that is there is first kept as `archive`, unless that is empty. Killed at any point, the next command that
    writes does the rest, or everything is as it was.
    """
    directory = RunDirectory(root)
    change = transaction.begin_or_fail(directory.manifest_path)
    with change.committing():
        if archive and not (home := files.inside(root, root / EARLIER / archive)).exists():
            change.place(_archived(root, change.folder / EARLIER), home.relative_to(root).as_posix())
        if archive:
            # They stay with the run that was held against them.
            for name in (ROOFS, RUNTIMES, AUTO_COMPARISON):
                change.remove(name)
        for name in experiments:
            change.place(place / READY / name, name)
        before = directory.manifest().experiments if dropped else {}
        for name in dropped:
            for file in before[name].files:
                change.remove(f"{name}/{file}")
        change_manifest(change, directory, manifest)


def _archived(root: Path, staged: Path) -> Path:
    """Return a copy of the run that is in `root`, made at `staged`."""
    staged.mkdir()
    for entry in sorted(root.iterdir()):
        if entry.name.startswith(".") or entry.name in (EARLIER, FAILED, PROGRAMS) or entry.is_symlink():
            continue
        if entry.is_dir():
            # Files of experiments are never written again, only replaced: two runs can share them.
            files.copy_tree(entry, staged / entry.name, link=True)
        else:
            files.copy_file(entry, staged / entry.name)
    _move_references(staged)
    return staged


def _move_references(staged: Path) -> None:
    """Move the references in the record of derived files: other run directories are now two levels further away."""
    with contextlib.suppress(KitError):
        index = read_index(RunDirectory(staged))
        if index is None or not any(entry.others for entry in index.files.values()):
            return
        moved = {
            name: msgspec.structs.replace(
                entry, others={f"../../{other}": seen for other, seen in entry.others.items()}
            )
            for name, entry in index.files.items()
        }
        files.write_json(staged / DERIVED, msgspec.structs.replace(index, files=moved))
