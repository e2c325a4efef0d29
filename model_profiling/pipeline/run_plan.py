"""How a new run stands to the one that is there: what it takes over, what it would replace, and what it is called."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import Experiment
from model_profiling.store.artifacts import EARLIER, FAILED
from model_profiling.store.made_by import Machine, Maker, RunnerRecord
from model_profiling.store.run_directory import BUSY_SHARE, ExperimentRecord, Manifest, RunDirectory, preempted_share
from model_profiling.store.runs import interrupted_runs, time_label, unique_label, used_labels

# The end of the label of a run that was put in place before it was complete.
PARTIAL_RUN = "-partial"
# Set, results of a busy machine are reused like others: for machines that are always busy, as those that test the kit.
REUSE_BUSY = "SME2_KIT_REUSE_BUSY"


@dataclass(frozen=True)
class RunPlan:
    """`replaces`: good results would go. When the new ones are there they become an earlier run, called `archive`; ''
    where nothing has to be kept."""

    found: Manifest | None
    label: str
    reuses_results: bool
    todo: list[str]
    finished: set[str]
    replaces: bool
    archive: str
    # Why results that are there are not those of this run: another machine, or other libraries of the runner.
    why_again: list[str] = field(default_factory=list)

    def taken_over(self, fresh: Manifest) -> Manifest:
        """Return `fresh` with the results of the run that is there, as far as this run is about the same program."""
        fresh.label = self.label
        if self.reuses_results and self.found is not None:
            fresh.experiments, fresh.schedules = dict(self.found.experiments), dict(self.found.schedules)
            if not self.replaces:
                fresh.created, fresh.revision = self.found.created, self.found.revision
                fresh.model_revision = self.found.model_revision
                fresh.labels = {**self.found.labels, **fresh.labels}
        return fresh

    def dropped(self, manifest: Manifest) -> list[str]:
        """Return experiments that are there and are none of the new run."""
        there = self.found.experiments if self.found else {}
        mine = (EARLIER, FAILED)
        return [name for name in there if name not in manifest.experiments and name not in mine and name[0] != "."]


@dataclass(frozen=True)
class RequestedRun:
    """What the user wants; `place` is where it is or will be measured, `machine` and `runners` are what measures."""

    label: str | None
    force: bool
    wanted: Sequence[Experiment]
    fingerprints: dict[str, str]
    place: Path
    machine: Machine
    runners: dict[str, RunnerRecord]

    def why_other(self, record: ExperimentRecord) -> str:
        """Return why a result is not of this machine and these runners, in words; '' if it is.

        A runner that none of the experiments asked for has is not looked at, unless it lies where one of them does.
        """
        mine = self.runners.get(record.name)
        mine = mine or next((each for each in self.runners.values() if each.path == record.runner.path), record.runner)
        theirs = Maker(record.machine, record.runner) if record.machine is not None else None
        return Maker(self.machine, mine).difference(theirs)


def plan_run(root: Path, found: Manifest | None, fresh: Manifest, asked: RequestedRun) -> RunPlan:
    label, wanted, fingerprints = asked.label, asked.wanted, asked.fingerprints
    if found is None:
        chosen = _free(root, asked) if label else unique_label(root, time_label(fresh.created))
        return RunPlan(None, chosen, False, [e.name for e in wanted], set(), False, "")
    if found.model.stem != fresh.model.stem:
        hint = f"Give another one, for example --out {root}-{fresh.model.dtype}, or remove it."
        raise InputError(f"{root} holds a run of {found.model.stem}, not of {fresh.model.stem}", hint)
    there = found.label
    reuses_results = (label is None or _is_called(found, label)) and found.model.sha256 == fresh.model.sha256
    why_again = _why_again(found, asked) if reuses_results and not asked.force else []
    reuses_results = reuses_results and not _mixes_machines(found, asked)
    records = found.experiments if reuses_results else {}
    finished = {
        e.name
        for e in wanted
        if not asked.force and e.name in records and _is_finished(root, records[e.name], fingerprints[e.name])
    }
    if finished and _was_busy(root, found, finished):
        finished, why_again = set(), [*why_again, "the machine was busy while they were measured"]
    todo = [e.name for e in wanted if e.name not in finished]
    affected = [record for name, record in found.experiments.items() if name in todo or not reuses_results]
    replaces = bool(todo) and any(record.status == "ok" for record in affected)
    # A part of this very run: the whole of it will hold that, too.
    own = all(record.partial and fingerprints.get(record.name) == record.fingerprint for record in affected)
    chosen = _label(root, found, fresh, asked, replaces and not own)
    if not replaces or own:
        return RunPlan(found, chosen, reuses_results, todo, finished, replaces, "", why_again)
    archive = there if not (root / EARLIER / there).exists() else unique_label(root, there)
    return RunPlan(found, chosen, reuses_results, todo, finished, True, archive, why_again)


def _was_busy(root: Path, found: Manifest, names: set[str]) -> bool:
    """Return whether other work took the processor away while results were measured, so that they cannot be used."""
    if found.timing != "measured" or os.environ.get(REUSE_BUSY):
        return False
    samples = (RunDirectory(root).samples(found, name) for name in names)
    return any(preempted_share(each.timed) > BUSY_SHARE for each in samples)


def _why_again(found: Manifest, asked: RequestedRun) -> list[str]:
    wanted = {e.name for e in asked.wanted}
    good = [record for name, record in found.experiments.items() if name in wanted and record.status == "ok"]
    others = [record for record in good if record.fingerprint != asked.fingerprints[record.name]]
    return sorted({why for why in map(asked.why_other, others) if why})


def _mixes_machines(found: Manifest, asked: RequestedRun) -> bool:
    """Return whether results would stand beside the new ones that another machine or other libraries have made."""
    wanted = {e.name for e in asked.wanted}
    return any(
        record.machine != asked.machine or (name not in wanted and asked.why_other(record))
        for name, record in found.experiments.items()
        if record.status == "ok"
    )


def _label(root: Path, found: Manifest, fresh: Manifest, asked: RequestedRun, new: bool) -> str:
    there, label = found.label, asked.label
    if label is None:
        return unique_label(root, time_label(fresh.created)) if new else there.removesuffix(PARTIAL_RUN)
    if there.lower() == label.lower() and new:
        what = f"the run '{there}' in {root} has other settings or results, which a run of the same label would replace"
        raise InputError(what, "Give this run another --label, or none.")
    return label if _is_called(found, label) else _free(root, asked)


def _is_called(found: Manifest, label: str) -> bool:
    return found.label.lower() in (label.lower(), f"{label}{PARTIAL_RUN}".lower())


def _free(root: Path, asked: RequestedRun) -> str:
    label = asked.label or ""
    mine = {entry.label for place, entry in interrupted_runs(root) if place == asked.place}
    if label.lower() in used_labels(root) and label not in mine:
        hint = f"Give this one another --label, or remove that one: sme2-kit history runs {root} --remove {label}"
        raise InputError(f"{root} has a run labelled '{label}' already", hint)
    return label


def _is_finished(root: Path, record: ExperimentRecord, fingerprint: str) -> bool:
    if record.status != "ok" or record.partial or record.fingerprint != fingerprint:
        return False
    return record.is_whole(RunDirectory(root).experiment(record.name))
