"""Where a run measures until it is complete: a folder below .partial that the same command finds again."""

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.pipeline.experiment_files import clear_directory
from model_profiling.pipeline.progress_log import ProgressLog
from model_profiling.store.artifacts import PARTIAL
from model_profiling.store.publication import READY
from model_profiling.store.run_directory import ExperimentRecord, Manifest, RunDirectory, ScheduleRecord
from model_profiling.store.runs import UNFINISHED, InterruptedRun, interrupted_runs


class GroupRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest will say of a group that is complete; its experiments lie in the ready folder."""

    session: str
    schedule: ScheduleRecord
    experiments: dict[str, ExperimentRecord]


class PartialRun:
    """Names and keeps what lies there:

    run.json               the run as it began
    <experiment>.progress  what a group has measured so far, named after its first experiment
    measuring/<experiment> files of its launches
    ready/<experiment>     files of a complete experiment; ready/<experiment>.json is the record of its group
    """

    def __init__(self, root: Path, name: str) -> None:
        self.path = files.inside(root, root / PARTIAL / name)

    def begin(self, unfinished: InterruptedRun) -> InterruptedRun:
        """Return what was begun here before, else `unfinished`, which then is."""
        path = self.path / UNFINISHED
        with contextlib.suppress(KitError):
            if path.is_file():
                return files.read_json(path, InterruptedRun, "interrupted run")
        clear_directory(self.path)
        files.write_json(path, unfinished)
        return unfinished

    def scratch(self, name: str) -> Path:
        return self.path / "measuring" / name

    def ready(self, name: str) -> Path:
        return self.path / READY / name

    def progress(self, names: Sequence[str]) -> ProgressLog:
        """Return what a group has measured so far; nothing if that was a group of other experiments."""
        progress = ProgressLog(self._progress(names))
        if progress.entries and not (progress.sittings and progress.sittings[0].experiments == list(names)):
            self.forget(names)
            progress = ProgressLog(self._progress(names))
        return progress

    def record(self, names: Sequence[str]) -> GroupRecord | None:
        """Return the record of a group that is complete; None if it is not."""
        path = self.ready(f"{names[0]}.json")
        with contextlib.suppress(KitError):
            if path.is_file():
                found = files.read_json(path, GroupRecord, "record of finished experiments")
                whole = all(record.is_whole(self.ready(name)) for name, record in found.experiments.items())
                if whole and list(found.experiments) == list(names):
                    return found
        return None

    def complete(self, names: Sequence[str], record: GroupRecord) -> None:
        """Mark the group as complete: from here on it is not measured again."""
        files.write_json(self.ready(f"{names[0]}.json"), record)
        self.forget(names)

    def forget(self, names: Sequence[str]) -> None:
        """Remove what the launches of a group have left."""
        self._progress(names).unlink(missing_ok=True)
        for name in names:
            clear_directory(self.scratch(name))

    def leave(self, done: bool) -> None:
        """Remove it, if the run is done or there is nothing in it to go on with."""
        if done or not [*self.path.glob("*.progress"), *self.path.glob(f"{READY}/*.json")]:
            clear_directory(self.path)
            with contextlib.suppress(OSError):  # others measure there
                self.path.parent.rmdir()

    def _progress(self, names: Sequence[str]) -> Path:
        return self.path / f"{names[0]}.progress"


def remove_leftovers(root: Path) -> None:
    """Remove what is in .partial and belongs to no run: half-removed places, and that of a run which was killed
    when all of it was in place already."""
    for path in (root / PARTIAL).glob("*"):
        if not (path / UNFINISHED).is_file():
            shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(KitError, OSError):
        left = list(interrupted_runs(root))
        latest = RunDirectory(root).manifest() if left else None
        for place, entry in left:
            if latest is not None and _is_in_place(entry, latest):
                clear_directory(place)
    with contextlib.suppress(OSError):  # there is none, or others measure there
        (root / PARTIAL).rmdir()


def _is_in_place(entry: InterruptedRun, latest: Manifest) -> bool:
    """Return whether a run is the latest of its directory, with all that it was to measure."""
    good = {name: record for name, record in latest.experiments.items() if record.status == "ok" and not record.partial}
    done = {name: record.fingerprint for name, record in good.items()}
    same = all(done.get(name) == fingerprint for name, fingerprint in entry.fingerprints.items())
    return same and latest.label == entry.manifest.label
