"""Makes a run, labelled as partial, of what an interrupted one has measured so far. That one can go on later."""

import shlex
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import Config, Experiment
from model_profiling.pipeline.experiment_files import clear_directory, collect
from model_profiling.pipeline.group_state import ExperimentOutcome, GroupState, MeasuredProgram
from model_profiling.pipeline.manifest_records import experiment_record, now, resumed_notes, schedule_record
from model_profiling.pipeline.partial_run import PartialRun
from model_profiling.pipeline.progress_log import combined
from model_profiling.pipeline.run_plan import PARTIAL_RUN
from model_profiling.pipeline.schedule import groups, lanes_of
from model_profiling.store import transaction
from model_profiling.store.artifacts import EARLIER, MANIFEST
from model_profiling.store.publication import READY, publish
from model_profiling.store.run_directory import Manifest, RunDirectory
from model_profiling.store.runs import InterruptedRun, interrupted_runs

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
        clear_directory(staged)
        manifest = _collected(root, place, unfinished, staged)
        names = list(manifest.experiments)
        found = RunDirectory(root).manifest() if (root / MANIFEST).is_file() else None
        if _may_be_latest(found, manifest, unfinished):
            manifest.experiments = {**(found.experiments if found else {}), **manifest.experiments}
            manifest.schedules = {**(found.schedules if found else {}), **manifest.schedules}
            publish(root, staged, manifest, names)
            clear_directory(staged)
            return RunDirectory(root)
        files.write_json(staged / READY / MANIFEST, manifest)
        home = files.inside(root, root / EARLIER / manifest.label)
        files.replace_directory(staged / READY, home)
        clear_directory(staged)
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
    """Collect every experiment that has something to be analysed into `staged`; the manifest that explains it."""
    manifest, home = unfinished.manifest, PartialRun(root, place.name)
    raw = {key: value for key, value in manifest.config.items() if key in Config.__struct_fields__}
    config = msgspec.convert(raw, Config)
    manifest = msgspec.structs.replace(
        manifest,
        label=f"{unfinished.label}{PARTIAL_RUN}",
        status="partial",
        updated=now(),
        experiments={},
        schedules={},
    )
    for group in groups(config):
        todo = [e for e in group if e.name in unfinished.fingerprints]
        if todo:
            _collect_group(home, unfinished, todo, staged, manifest, config.seed)
    if not manifest.experiments:
        raise InputError(
            "nothing can be analysed yet: no experiment has a complete launch with and one without a tracer",
            f"Run the command without {FLAG} to continue.",
        )
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
    progress, model = home.progress(names), manifest.model
    program = MeasuredProgram(Path(model.path), model.stem, ())
    outcomes = {e.name: ExperimentOutcome(program, e, unfinished.runners[e.name], home.scratch(e.name)) for e in todo}
    foreign = {name for name, outcome in outcomes.items() if outcome.runner.kind == "foreign"}
    account = GroupState(lanes_of(todo, foreign, manifest.timing == "measured"), outcomes, seed, progress)
    account.restore()
    timed = {lane.experiment.name for lane in account.lanes if lane.kind.value == "timed"}
    usable = {name: o for name, o in outcomes.items() if o.dumps and (o.timed or name not in timed)}
    account.launches = progress.launches
    for name, outcome in usable.items():
        first = progress.sittings[0]
        hashes = collect(outcome, staged / READY / name)
        if outcome.failure is not None:
            raise outcome.failure
        manifest.experiments[name] = experiment_record(
            outcome,
            unfinished.fingerprints[name],
            first,
            hashes,
            unfinished.machine,
            manifest.timing,
            resumed_notes(progress),
            0.0,
            progress.said(),
        )
        manifest.schedules[first.session] = schedule_record(account, seed, bool(foreign), combined(progress.conditions))


def _may_be_latest(found: Manifest | None, manifest: Manifest, unfinished: InterruptedRun) -> bool:
    """Return whether no good result would go: there is none, or what there is belongs to the same run."""
    if found is None:
        return True
    mine = found.label in (unfinished.label, manifest.label) and found.model.sha256 == manifest.model.sha256
    mine = mine and all(record.machine == unfinished.machine for record in found.experiments.values())
    there = [record for name, record in found.experiments.items() if name in manifest.experiments]
    return mine and all(record.status != "ok" or record.partial for record in there)
