"""How a new run stands to the one that is there: what it takes over, what it would replace, and what it is called."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import Experiment
from model_profiling.store.artifacts import EARLIER, FAILED
from model_profiling.store.run_directory import ExperimentRecord, Manifest, RunDirectory
from model_profiling.store.runs import interrupted_runs, time_label, unique_label, used_labels

# The end of the label of a run that was put in place before it was complete.
PARTIAL_RUN = "-partial"


@dataclass(frozen=True)
class RunPlan:
    """`replaces`: good results would go. When the new ones are there they become an earlier run, called `archive`; ''
    where nothing has to be kept."""

    found: Manifest | None
    label: str
    goes_on: bool
    todo: list[str]
    finished: set[str]
    replaces: bool
    archive: str

    def taken_over(self, fresh: Manifest) -> Manifest:
        """Return `fresh` with the results of the run that is there, as far as this run is about the same program."""
        fresh.label = self.label
        if self.goes_on and self.found is not None:
            fresh.experiments, fresh.schedules = dict(self.found.experiments), dict(self.found.schedules)
            if not self.replaces:
                fresh.created, fresh.revision = self.found.created, self.found.revision
                fresh.labels = {**self.found.labels, **fresh.labels}
        return fresh

    def dropped(self, manifest: Manifest) -> list[str]:
        """Return experiments that are there and are none of the new run."""
        there = self.found.experiments if self.found else {}
        mine = (EARLIER, FAILED)
        return [name for name in there if name not in manifest.experiments and name not in mine and name[0] != "."]


@dataclass(frozen=True)
class RequestedRun:
    """What the user wants; `place` is where it is or will be measured."""

    label: str | None
    force: bool
    wanted: Sequence[Experiment]
    fingerprints: dict[str, str]
    place: Path


def plan_run(root: Path, found: Manifest | None, fresh: Manifest, asked: RequestedRun) -> RunPlan:
    """Compare what is there with what is asked for."""
    label, wanted, fingerprints = asked.label, asked.wanted, asked.fingerprints
    if found is None:
        chosen = _free(root, asked) if label else unique_label(root, time_label(fresh.created))
        return RunPlan(None, chosen, False, [e.name for e in wanted], set(), False, "")
    if found.model.stem != fresh.model.stem:
        raise InputError(
            f"{root} holds a run of {found.model.stem}, not of {fresh.model.stem}",
            f"Give another one, for example --output-root {root}-{fresh.model.dtype}, or remove it.",
        )
    there = found.label
    goes_on = (label is None or _is_called(found, label)) and found.model.sha256 == fresh.model.sha256
    records = found.experiments if goes_on else {}
    finished = {
        e.name
        for e in wanted
        if not asked.force and e.name in records and _is_finished(root, records[e.name], fingerprints[e.name])
    }
    todo = [e.name for e in wanted if e.name not in finished]
    affected = [record for name, record in found.experiments.items() if name in todo or not goes_on]
    replaces = bool(todo) and any(record.status == "ok" for record in affected)
    # A part of this very run: the whole of it will hold that, too.
    own = all(record.partial and fingerprints.get(record.name) == record.fingerprint for record in affected)
    chosen = _label(root, found, fresh, asked, replaces and not own)
    if not replaces or own:
        return RunPlan(found, chosen, goes_on, todo, finished, replaces, "")
    archive = there if not (root / EARLIER / there).exists() else unique_label(root, there)
    return RunPlan(found, chosen, goes_on, todo, finished, True, archive)


def _label(root: Path, found: Manifest, fresh: Manifest, asked: RequestedRun, new: bool) -> str:
    there, label = found.label, asked.label
    if label is None:
        return unique_label(root, time_label(fresh.created)) if new else there.removesuffix(PARTIAL_RUN)
    if there.lower() == label.lower() and new:
        raise InputError(
            f"the run '{there}' in {root} has other settings or results, which a run of the same label would replace",
            "Give this run another --label, or none.",
        )
    return label if _is_called(found, label) else _free(root, asked)


def _is_called(found: Manifest, label: str) -> bool:
    return found.label.lower() in (label.lower(), f"{label}{PARTIAL_RUN}".lower())


def _free(root: Path, asked: RequestedRun) -> str:
    """Return the label asked for, which names one run of a directory, complete or interrupted."""
    label = asked.label or ""
    mine = {entry.label for place, entry in interrupted_runs(root) if place == asked.place}
    if label.lower() in used_labels(root) and label not in mine:
        raise InputError(
            f"{root} has a run labelled '{label}' already",
            f"Give this one another --label, or remove that one: sme2-kit runs {root} --remove {label}",
        )
    return label


def _is_finished(root: Path, record: ExperimentRecord, fingerprint: str) -> bool:
    """Return whether an experiment was run as it would be now and its files are all still what they were."""
    if record.status != "ok" or record.partial or record.fingerprint != fingerprint:
        return False
    return record.is_whole(RunDirectory(root).experiment(record.name))
