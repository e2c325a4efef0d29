"""Puts what was measured in place as the latest run; the run that was there before becomes an earlier one, whole.

First everything that is to happen is written down, in one step. From then on each step can be repeated, so whoever
finds such a note, after whatever killed its writer, carries it out.
"""

import contextlib
import re
import shutil
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.store import transaction
from model_profiling.store.artifacts import (
    AUTO_COMPARISON,
    DERIVED,
    EARLIER,
    FAILED,
    PARTIAL,
    PROGRAMS,
    ROOFS,
    RUNTIMES,
)
from model_profiling.store.derived import read_index, write_manifest
from model_profiling.store.run_directory import Manifest, RunDirectory

_NOTE = "publish.json"
# What experiments and labels can be called.
_PLAIN = re.compile(r"[A-Za-z0-9][^/\\\0-\x1f\x7f]{0,119}")
# Where a place below .partial holds experiments that are complete and not yet part of a run.
READY = "ready"


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is about to happen: `experiments` come from the place's ready folder, `dropped` go. The run that is there
    is first kept as `archive`, unless that is empty."""

    manifest: Manifest
    experiments: list[str]
    dropped: list[str] = []
    archive: str = ""


def publish(root: Path, place: Path, publication: Publication) -> None:
    """Carry a publication out. Killed at any point, `recover` does the rest."""
    files.write_json(place / _NOTE, publication)
    _carry_out(root, place, publication)


def recover(root: Path) -> None:
    """Carry out what a killed run had decided to publish; for whoever holds the directory."""
    for note in pending(root):
        try:
            files.inside(root, note)
            publication = files.read_json(note, Publication, "note of what is to be published")
        except KitError:
            continue  # of another version of the kit, or not of the kit at all
        names = (*publication.experiments, *publication.dropped, *filter(None, [publication.archive]))
        # A run directory may come from anywhere, and this is carried out by whoever reads it.
        if all(_PLAIN.fullmatch(name) and name not in (EARLIER, FAILED, PROGRAMS) for name in names):
            _carry_out(root, note.parent, publication)


def pending(root: Path) -> list[Path]:
    """Return notes of publications that were interrupted."""
    return sorted((root / PARTIAL).glob(f"*/{_NOTE}"))


def _carry_out(root: Path, place: Path, publication: Publication) -> None:
    # What a killed report of the run that is there was about to change belongs to that run.
    transaction.recover(root)
    if publication.archive:
        _archive(root, publication.archive)
        # They stay with the run that was held against them.
        for name in (ROOFS, RUNTIMES, AUTO_COMPARISON):
            (root / name).unlink(missing_ok=True)
    for name in publication.experiments:
        ready, home = place / READY / name, files.inside(root, root / name)
        if ready.is_dir():
            files.replace_directory(ready, home)
        shutil.rmtree(home.with_name(f".{name}.old"), ignore_errors=True)
    for name in publication.dropped:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            files.remove_directory(files.inside(root, root / name))
    write_manifest(RunDirectory(root), publication.manifest)
    (place / _NOTE).unlink()


def _archive(root: Path, label: str) -> None:
    """Keep the run that is in `root` as an earlier one; nothing to do if it is there already."""
    home = files.inside(root, root / EARLIER / label)
    if home.exists():
        return
    staged = home.with_name(f".{label}.staged")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    for entry in sorted(root.iterdir()):
        if entry.name.startswith(".") or entry.name in (EARLIER, FAILED, PROGRAMS) or entry.is_symlink():
            continue
        if entry.is_dir():
            # Files of experiments are never written again, only replaced: two runs can share them.
            files.copy_tree(entry, staged / entry.name, link=True)
        else:
            files.copy_file(entry, staged / entry.name)
    _move_references(staged)
    staged.rename(home)


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
