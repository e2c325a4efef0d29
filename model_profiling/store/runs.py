"""The runs of one directory: the latest in its usual place, the earlier ones under their labels, interrupted ones;
and how what was measured becomes the latest one.

A run is named `DIR` (the latest), `DIR@LABEL`, or `DIR/earlier/LABEL`.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.store import transaction
from model_profiling.store.artifacts import (
    AUTO_COMPARISON,
    DERIVED,
    EARLIER,
    FAILED,
    MANIFEST,
    PARTIAL,
    PROGRAMS,
    ROOFS,
    RUN,
    RUNTIMES,
    wrong_folder,
)
from model_profiling.store.derived import change_manifest, read_index
from model_profiling.store.labels import RUN_LABEL
from model_profiling.store.made_by import Machine, RunnerRecord
from model_profiling.store.run_directory import Manifest, RunDirectory

LATEST = "latest"
UNFINISHED = "run.json"
# Words that mean something else where a label can stand.
_WORDS = (LATEST, EARLIER, FAILED, PARTIAL)
_NAMED = re.compile(r"(?P<directory>.+)@(?P<label>[^@/:]+)(?P<rest>[:/].*)?", re.DOTALL)


class InterruptedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """run.json of a place below .partial: the run that measures there until it is complete, as it began."""

    manifest: Manifest
    # By experiment.
    fingerprints: dict[str, str]
    runners: dict[str, RunnerRecord]
    threads: list[int]
    # None if the kit that began it did not say.
    machine: Machine | None = None

    @property
    def label(self) -> str:
        return self.manifest.label


class RunListing(msgspec.Struct, frozen=True):
    """One run of a directory. `path` is where it can be read; None of an interrupted one, which is not a run yet."""

    label: str
    kind: str
    created: str
    model: str
    dtype: str
    threads: list[int]
    experiments: list[str]
    status: str
    path: str | None


def checked_label(text: str) -> str:
    """Return `text` if it can name a run: a file name on every system, and no word with a meaning of its own."""
    if not RUN_LABEL.fullmatch(text) or text.endswith(".") or text.lower() in _WORDS:
        raise InputError(
            f"{text[:80]!r} cannot be a label",
            "Use up to 64 letters, digits and _ . + -, beginning with a letter or digit; "
            f"{LATEST}, {EARLIER} and {FAILED} have a meaning.",
        )
    return text


def time_label(created: str) -> str:
    """Return `2026-11-15T17:26:14+00:00` as a file name: 2026-11-15_172614."""
    return re.sub(r"[^0-9_-]", "", created[:19].replace("T", "_").replace(":", ""))


def earlier_labels(root: Path) -> list[str]:
    """Return the labels of the runs before the latest, oldest first."""
    found = [p for p in _folders(root / EARLIER) if RUN_LABEL.fullmatch(p.name) and files.is_file(p / MANIFEST)]
    manifests = {path: _readable_manifest(path) for path in found}
    created = {path: manifest.created if manifest is not None else "" for path, manifest in manifests.items()}
    return [path.name for path in sorted(found, key=lambda path: (created[path], path.name))]


def used_labels(root: Path) -> set[str]:
    """Return all labels of a directory, in lower case: not every file system tells a from A."""
    home = root / EARLIER
    found = {path.name for path in home.iterdir()} if home.is_dir() else set()
    found |= {entry.label for _, entry in interrupted_runs(root)}
    latest = _label_in(root)
    return {label.lower() for label in found | ({latest} if latest else set())}


def unique_label(root: Path, wanted: str) -> str:
    """Return `wanted`, with a number behind it if another run of this directory has that label."""
    taken, label, number = used_labels(root), wanted, 1
    while label.lower() in taken:
        number += 1
        label = f"{wanted}-{number}"
    return label


def resolve(text: str | Path, writes: bool = False) -> Path:
    """Return the path that `DIR`, `DIR@LABEL` or either with an experiment means; what exists is itself.

    For a command that `writes` there, what a killed one had begun to put in place is put in place first.
    """
    path = Path(_resolved(str(text), writes))
    if writes:
        transaction.recover(path)
    return path


def _run_below(path: Path) -> Path:
    """Return the one run below `out_<model>` or its `runs`, if `path` is such a directory; else `path` itself."""
    try:
        if not path.is_dir() or (path / MANIFEST).exists() or any(interrupted_runs(path)):
            return path
        below = [place for place in roots_below(path) if (place / MANIFEST).is_file()]
    except OSError:
        return path
    if len(below) > 1:
        raise wrong_folder(path, RUN)
    return below[0] if below else path


def _resolved(text: str, writes: bool) -> str:
    named = _NAMED.fullmatch(text)
    if named is None or _exists(text) or _exists(f"{named['directory']}@{named['label']}"):
        # `out_<model>` is the run below it, an experiment behind it or not.
        place, colon, rest = text.rpartition(":")
        if colon and not _exists(text) and _exists(place):
            return f"{_run_below(Path(place))}:{rest}"
        return str(_run_below(Path(text))) if _exists(text) else text
    root, label, rest = Path(named["directory"]), named["label"], named["rest"] or ""
    if not root.is_dir():
        return text
    root = _run_below(root)
    if writes:
        transaction.recover(root)
    if label in (LATEST, _label_in(root)):
        return f"{root}{rest}"
    if label not in earlier_labels(root):
        known = [*([_label_in(root)] if _label_in(root) else []), *reversed(earlier_labels(root))]
        hint = f"It has: {', '.join(known)}." if known else "It has no run at all: measure one with sme2-kit run."
        raise InputError(f"{root} has no run labelled '{label}'", hint)
    return f"{root / EARLIER / label}{rest}"


def _exists(text: str) -> bool:
    return os.path.exists(text)  # noqa: PTH110 - where Path raises an error, there is nothing


def interrupted_runs(root: Path) -> Iterator[tuple[Path, InterruptedRun]]:
    """Yield the places below .partial in which runs wait to be continued."""
    for path in _folders(root / PARTIAL):
        with contextlib.suppress(KitError):
            entry = files.read_json(path / UNFINISHED, InterruptedRun, "interrupted run")
            if RUN_LABEL.fullmatch(entry.label):
                yield path, entry


def _folders(home: Path) -> list[Path]:
    """Return the folders in one of the kit's, none for a link: a directory may come from anywhere."""
    with contextlib.suppress(OSError), os.scandir(home) as entries:
        return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and not home.is_symlink())
    return []


def list_runs(root: Path) -> list[RunListing]:
    """Return all runs of a directory: the latest, the earlier ones from new to old, and the interrupted ones."""
    found = []
    if (root / MANIFEST).is_file():
        found.append(_run(root, "latest", RunDirectory(root).manifest()))
    for label in reversed(earlier_labels(root)):
        path = root / EARLIER / label
        try:
            found.append(_run(path, "earlier", RunDirectory(path).manifest(), label))
        except KitError as error:
            found.append(RunListing(label, "earlier", "", "", "", [], [], f"damaged: {error.message}", str(path)))
    for _, entry in interrupted_runs(root):
        listed = _run(None, "interrupted", entry.manifest)
        names = list(entry.fingerprints)
        found.append(msgspec.structs.replace(listed, threads=entry.threads, experiments=names, status="interrupted"))
    return found


def _run(path: Path | None, kind: str, manifest: Manifest, label: str = "") -> RunListing:
    threads = sorted({record.threads for record in manifest.experiments.values()})
    model = manifest.model
    names = list(manifest.experiments)
    shown = (label or manifest.label, kind, manifest.created, model.stem, model.asked_dtype, threads, names)
    return RunListing(*shown, manifest.status, str(path) if path else None)


def remove(root: Path, label: str) -> Path:
    """Remove an earlier or an interrupted run; returns what was removed. The latest one stays."""
    with files.locked(root, "pipeline"):
        transaction.recover(root)
        waiting = {entry.label: place for place, entry in interrupted_runs(root)}
        place = root / EARLIER / label if label in earlier_labels(root) else waiting.get(label)
        if place is None and label in (LATEST, _label_in(root)):
            hint = f"Measure another one first, or remove the whole directory: rm -r {root}"
            raise InputError(f"'{label}' is the latest run of {root}, which is not removed by its label", hint)
        if place is None:
            known = [entry.label for entry in list_runs(root)]
            raise InputError(f"{root} has no run labelled '{label}'", f"It has: {', '.join(known) or 'none'}.")
        files.remove_directory(files.inside(root, place))
        with contextlib.suppress(OSError):  # not empty
            place.parent.rmdir()
        return place


def roots_below(home: Path) -> list[Path]:
    """Run directories of `out_<model>` or of its `runs`; a link that leads elsewhere is not below it."""
    places = [*home.glob("*"), *home.glob("runs/*")]
    real = home.resolve()
    found = [path for path in places if (path / MANIFEST).is_file() or any(interrupted_runs(path))]
    return sorted(path for path in found if real in path.resolve().parents)


def find_runs_below(home: Path) -> list[Path]:
    """Run directories where the kit puts them: out_<model>/runs/<platform>, here or one level down."""
    places = [*home.glob("out_*/runs/*"), *home.glob("*/out_*/runs/*")]
    return sorted(path for path in set(places) if (path / MANIFEST).is_file() or any(interrupted_runs(path)))


def _label_in(root: Path) -> str:
    manifest = _readable_manifest(root) if (root / MANIFEST).is_file() else None
    return manifest.label if manifest is not None else ""


def _readable_manifest(root: Path) -> Manifest | None:
    try:
        return RunDirectory(root).manifest()
    except KitError:
        return None


# Where a place below .partial holds experiments that are complete and not yet part of a run.
READY = "ready"


def refuse_strangers(root: Path, experiments: Iterable[str]) -> None:
    """Refuse to put experiments in the place of folders that hold anything but an experiment of that name."""
    for name in experiments:
        for path in (root / name).glob("[!.]*"):
            if f"_{name}_t" not in path.name or path.is_dir():
                message = f"{root / name} would be replaced, and {path} is no result of the kit"
                raise InputError(message, "Choose another place (--out), or move it away.")


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
    directory, experiments = RunDirectory(root), list(experiments)
    refuse_strangers(root, experiments)
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
