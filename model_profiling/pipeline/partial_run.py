"""Where a run measures until it is complete: a folder below .partial that the same command finds again, and of which
a run labelled as partial can be made meanwhile."""

import contextlib
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.pipeline import manifest_records
from model_profiling.pipeline.config_types import Config, Experiment
from model_profiling.pipeline.group_state import ExperimentOutcome, GroupState, MeasuredProgram
from model_profiling.pipeline.progress_log import ProgressLog, combined
from model_profiling.pipeline.run_plan import PARTIAL_RUN
from model_profiling.pipeline.schedule import LaneKind, groups, lanes_of
from model_profiling.store import transaction
from model_profiling.store.artifacts import EARLIER, FAILED, MANIFEST, PARTIAL
from model_profiling.store.made_by import RunnerRecord
from model_profiling.store.run_directory import ExperimentRecord, Manifest, RunDirectory, ScheduleRecord, Timing
from model_profiling.store.runs import READY, UNFINISHED, InterruptedRun, interrupted_runs, publish


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
        manifest_records.clear_directory(self.path)
        files.write_json(path, unfinished)
        return unfinished

    def scratch(self, name: str) -> Path:
        return self.path / "measuring" / name

    def ready(self, name: str) -> Path:
        return self.path / READY / name

    def progress(self, names: Sequence[str]) -> ProgressLog:
        """Return what a group has measured so far; nothing if that was a group of other experiments."""
        progress = ProgressLog(self._progress(names))
        if progress.entries and not (progress.attempts and progress.attempts[0].experiments == list(names)):
            self.forget(names)
            progress = ProgressLog(self._progress(names))
        return progress

    def state(
        self,
        program: MeasuredProgram,
        todo: Sequence[Experiment],
        runners: Mapping[str, RunnerRecord],
        timing: Timing,
        seed: int,
    ) -> GroupState:
        """Return a group that is yet to be taken up where an interrupted run left it."""
        outcomes = {e.name: ExperimentOutcome(program, e, runners[e.name], self.scratch(e.name)) for e in todo}
        foreign = {name for name, outcome in outcomes.items() if outcome.runner.kind == "foreign"}
        return GroupState(lanes_of(todo, foreign, timing == "measured"), outcomes, seed, self.progress([*outcomes]))

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
        self._progress(names).unlink(missing_ok=True)
        for name in names:
            manifest_records.clear_directory(self.scratch(name))

    def leave(self, done: bool) -> None:
        """Remove it, if the run is done or there is nothing in it to go on with."""
        if done or not [*self.path.glob("*.progress"), *self.path.glob(f"{READY}/*.json")]:
            manifest_records.clear_directory(self.path)
            with contextlib.suppress(OSError):  # others measure there
                self.path.parent.rmdir()

    def _progress(self, names: Sequence[str]) -> Path:
        return self.path / f"{names[0]}.progress"


def remove_leftovers(root: Path) -> None:
    """Remove what is in .partial and belongs to no run: half-removed places, and that of a run which was killed
    when all of it was in place already. What the kit removes things from must be no link."""
    for name in (EARLIER, FAILED, PARTIAL):
        files.inside(root, root / name / UNFINISHED)
    for path in (root / PARTIAL).glob("*"):
        if not (path / UNFINISHED).is_file():
            shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(KitError, OSError):
        left = list(interrupted_runs(root))
        latest = RunDirectory(root).manifest() if left else None
        for place, entry in left:
            if latest is not None and _is_in_place(entry, latest):
                manifest_records.clear_directory(place)
    with contextlib.suppress(OSError):  # there is none, or others measure there
        (root / PARTIAL).rmdir()


def _is_in_place(entry: InterruptedRun, latest: Manifest) -> bool:
    """Return whether a run is the latest of its directory, with all that it was to measure."""
    good = {name: record for name, record in latest.experiments.items() if record.status == "ok" and not record.partial}
    done = {name: record.fingerprint for name, record in good.items()}
    same = all(done.get(name) == fingerprint for name, fingerprint in entry.fingerprints.items())
    return same and latest.label == entry.manifest.label


FLAG = "--analyze-partial"


def salvage_run(root: Path, label: str | None, command: str) -> RunDirectory:
    """Make a run of what `command`, or the run called `label`, has measured before it was interrupted.

    It lies where the complete run will lie, unless good results lie there: then among the earlier runs.
    """
    if not root.is_dir():
        raise InputError(f"there is no interrupted run in {root}", "Run the command without --analyze-partial.")
    with files.locked(root, "pipeline"):
        transaction.recover(root)
        place, unfinished = _chosen(root, label, command)
        staged = place.with_name(f"{place.name}{PARTIAL_RUN}")
        manifest_records.clear_directory(staged)
        manifest = _collected(root, place, unfinished, staged)
        names = list(manifest.experiments)
        found = RunDirectory(root).manifest() if (root / MANIFEST).is_file() else None
        if _may_be_latest(found, manifest, unfinished):
            manifest.experiments = {**(found.experiments if found else {}), **manifest.experiments}
            manifest.schedules = {**(found.schedules if found else {}), **manifest.schedules}
            publish(root, staged, manifest, names)
            manifest_records.clear_directory(staged)
            return RunDirectory(root)
        files.write_json(staged / READY / MANIFEST, manifest)
        home = files.inside(root, root / EARLIER / manifest.label)
        files.replace_directory(staged / READY, home)
        manifest_records.clear_directory(staged)
        return RunDirectory(home)


def _chosen(root: Path, label: str | None, command: str) -> tuple[Path, InterruptedRun]:
    """Return the interrupted run that is meant: by its label, by this command, or as the only one."""
    waiting = list(interrupted_runs(root))
    typed = shlex.join(word for word in shlex.split(command) if word != FLAG)
    for found in (
        [entry for entry in waiting if label is not None and entry[1].label == label],
        [entry for entry in waiting if label is None and entry[1].manifest.config.get("command") == typed],
        waiting if label is None else [],
    ):
        if len(found) == 1:
            return found[0]
    if not waiting:
        raise InputError(f"there is no interrupted run in {root}", f"Run the command without {FLAG}.")
    known = ", ".join(entry.label for _, entry in waiting)
    raise InputError(
        f"{root} has several interrupted runs, or none with this label: {known}", "Choose one with --label."
    )


def _collected(root: Path, place: Path, unfinished: InterruptedRun, staged: Path) -> Manifest:
    manifest, home = unfinished.manifest, PartialRun(root, place.name)
    raw = {key: value for key, value in manifest.config.items() if key in Config.__struct_fields__}
    config = msgspec.convert(raw, Config)
    manifest = msgspec.structs.replace(
        manifest,
        label=f"{unfinished.label}{PARTIAL_RUN}",
        status="partial",
        updated=manifest_records.now(),
        experiments={},
        schedules={},
    )
    for group in groups(config):
        todo = [e for e in group if e.name in unfinished.fingerprints]
        if todo:
            _collect_group(home, unfinished, todo, staged, manifest, config.seed)
    if not manifest.experiments:
        what = "nothing can be analysed yet: no experiment has a complete launch with and one without a tracer"
        raise InputError(what, f"Run the command without {FLAG} to continue.")
    return manifest


def _collect_group(
    home: PartialRun, unfinished: InterruptedRun, todo: list[Experiment], staged: Path, manifest: Manifest, seed: int
) -> None:
    names = [e.name for e in todo]
    complete = home.record(names)
    if complete is not None:
        for name in names:
            files.copy_tree(home.ready(name), staged / READY / name)
        manifest.experiments.update(complete.experiments)
        manifest.schedules[complete.session] = complete.schedule
        return
    program = MeasuredProgram(Path(manifest.model.path), manifest.model.stem, ())
    state = home.state(program, todo, unfinished.runners, manifest.timing, seed)
    state.restore()
    progress, timed = state.progress, {lane.experiment.name for lane in state.lanes if lane.kind is LaneKind.TIMED}
    state.launches = progress.launches
    for name, outcome in state.outcomes.items():
        if not outcome.dumps or not (outcome.timed or name not in timed):
            continue
        hashes = manifest_records.collect(outcome, staged / READY / name)
        if outcome.failure is not None:
            raise outcome.failure
        how = (unfinished.fingerprints[name], hashes, unfinished.machine, manifest.timing)
        manifest.experiments[name] = manifest_records.experiment_record(
            outcome, progress, *how, partial=progress.describe_progress()
        )
        schedule = manifest_records.schedule_record(state, combined(progress.conditions))
        manifest.schedules[progress.attempts[0].session] = schedule


def _may_be_latest(found: Manifest | None, manifest: Manifest, unfinished: InterruptedRun) -> bool:
    """Return whether no good result would go: there is none, or what there is belongs to the same run."""
    if found is None:
        return True
    mine = found.label in (unfinished.label, manifest.label) and found.model.sha256 == manifest.model.sha256
    mine = mine and all(record.machine == unfinished.machine for record in found.experiments.values())
    there = [record for name, record in found.experiments.items() if name in manifest.experiments]
    return mine and all(record.status != "ok" or record.partial for record in there)
