"""Jobs on a Ray cluster: the same commands on other machines, their results as files here.

A measurement goes to a node that offers its target as a custom resource (`ray start --resources='{"board": 1}'`), and
takes the target's lock there: it is the machine that measures which says who may. Exports go wherever a CPU is free;
what needs files of this machine (a model in a .py file, a checkpoint, a report) is done here.
"""

import contextlib
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError, SetupError
from model_profiling.base.on_progress import OnNote
from model_profiling.fleet.sweep.executor import OWN, FinishedJob, JobOutcome
from model_profiling.fleet.sweep.jobs import Job, Jobs, export_words
from model_profiling.fleet.sweep.local_executor import LocalExecutor
from model_profiling.fleet.sweep.parcels import pack, unpack
from model_profiling.fleet.sweep.ray_connection import connected, disconnect, token_notes
from model_profiling.fleet.sweep.ray_objects import LostError, fetch
from model_profiling.fleet.sweep.task import ARTIFACTS, RUN, Task, TaskResult, perform, read_result
from model_profiling.store.artifacts import ExportPaths

# How long to wait for a result that is said to be there, and for a node to come back that offers a target.
_FETCH_S, _NODE_S = 60.0, 120.0


@dataclass
class _Running:
    job: Job
    ref: Any
    began: float


class RayExecutor:
    """An executor that asks a Ray cluster, and this machine for what only it can do."""

    host_comes_last = False

    def __init__(self, address: str, jobs: Jobs, todo: list[Job], on_note: OnNote) -> None:
        self._jobs = jobs
        self._near = LocalExecutor(jobs.folder, [])
        self._ray = connected(address, jobs.folder.state / "logs" / "ray.log")
        self._running: dict[str, _Running] = {}
        self._programs: dict[str, Any] = {}
        # Since when a target is missing.
        self._missing: dict[str, float] = {}
        self._remote = self._ray.remote(max_retries=0)(perform)
        try:
            for note in token_notes(self._ray):
                on_note(note)
            self._refuse_missing(todo)
        except KitError:
            self.close()
            raise

    def _refuse_missing(self, todo: list[Job]) -> None:
        offered = self._ray.cluster_resources()
        wanted = dict.fromkeys(job.measures.label for job in todo if job.measures is not None)
        for label in wanted:
            if not offered.get(label):
                raise SetupError(
                    f"no node of the Ray cluster offers the target {label!r}",
                    f"Start Ray on the machine that has it with --resources='{{\"{label}\": 1}}'.",
                )

    def lane(self, job: Job) -> str:
        return "this machine" if _is_near(job) else self._near.lane(job)

    def start(self, job: Job, words: tuple[str, ...]) -> str:
        if _is_near(job):
            return self._near.start(job, words)
        offered = self._ray.cluster_resources()
        target = job.measures
        room = offered.get("CPU", 0.0) if target is None else offered.get(target.label, 0.0)
        if target is not None and not room:
            return self._without_node(job, target.label)
        if sum(running.job.measures == target for running in self._running.values()) >= max(1, room):
            return OWN
        # What measures waits for its target on the node, and uses no CPU before it has it.
        needs = {"num_cpus": 1} if target is None else {"num_cpus": 0, "resources": {target.label: 1}}
        program = self._program(job)
        ref = self._remote.options(**needs).remote(msgspec.msgpack.encode(self._task(job)), program)
        self._running[job.name] = _Running(job, ref, time.monotonic())
        return ""

    def _without_node(self, job: Job, label: str) -> str:
        since = self._missing.setdefault(job.name, time.monotonic())
        why = f"no node of the Ray cluster offers {label!r} any more"
        if time.monotonic() - since < _NODE_S:
            return why
        raise SetupError(why, "Start Ray on the machine that has it, and sweep again.")

    def _task(self, job: Job) -> Task:
        if job.cell is None:
            return Task(job.name, list(export_words(job.variant, Path(ARTIFACTS))), ARTIFACTS, None)
        program = Path(ARTIFACTS) / self._jobs.program(job.variant).name
        return Task(job.name, list(self._jobs.run_words(job.cell, program, Path(RUN))), RUN, job.measures)

    def _program(self, job: Job) -> Any:
        """Return what a run needs, put into the cluster once for all runs of one program."""
        if job.cell is None:
            return b""
        if job.variant.name not in self._programs:
            paths = ExportPaths(self._jobs.program(job.variant))
            beside = (paths.pte, paths.etrecord, paths.meta, paths.inputs, paths.expected)
            names = [path.name for path in beside if path.exists()]
            self._programs[job.variant.name] = self._ray.put(pack(paths.directory, names))
        return self._programs[job.variant.name]

    def ended(self, timeout_s: float) -> list[FinishedJob]:
        found = self._near.ended(0.0)
        refs = {running.ref: name for name, running in self._running.items()}
        if not refs:
            return found or self._near.ended(timeout_s)
        # Never `get` alone: that would wait for ever for what a lost node had.
        ready, _ = self._ray.wait(list(refs), num_returns=1, timeout=0.0 if found else timeout_s, fetch_local=False)
        for ref in ready:
            running = self._running.pop(refs[ref])
            found.append(FinishedJob(running.job, self._outcome(running)))
        return found

    def _outcome(self, running: _Running) -> JobOutcome:
        seconds = time.monotonic() - running.began
        try:
            return self._received(running.job, read_result(fetch(running.ref, _FETCH_S)))
        except LostError as error:
            # Its programs may have been lost with the node, too.
            self._programs.pop(running.job.variant.name, None)
            return JobOutcome(seconds, f"its node or worker was lost ({error})", "", lost=True)
        except KitError as error:
            return JobOutcome(seconds, error.message, error.hint)

    def _received(self, job: Job, result: TaskResult) -> JobOutcome:
        """Put what came into files: the log, and the result where it waits to be put in place."""
        log = self._jobs.folder.log(job)
        files.write_text(log, result.log)
        _keep_times(self._jobs.folder.state / "cluster.jsonl", job, result)
        if result.failure:
            return JobOutcome(result.seconds, result.failure, result.hint, node=result.node)
        incoming = self._jobs.folder.incoming / uuid.uuid4().hex
        try:
            unpack(result.parcel, incoming)
        except KitError as error:
            return JobOutcome(result.seconds, error.message, error.hint, node=result.node)
        return JobOutcome(result.seconds, node=result.node, incoming=incoming)

    def doing(self, job: Job) -> str:
        # It may still wait there for its target, or for those who measure.
        return f"{job.kind}: sent to the cluster" if job.name in self._running else self._near.doing(job)

    def close(self) -> None:
        self._near.close()
        for running in self._running.values():
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._ray.cancel(running.ref, force=True)
        self._running = {}
        with contextlib.suppress(Exception):
            disconnect(self._ray)


def _is_near(job: Job) -> bool:
    """Return whether a job needs files that only this machine has."""
    asked = job.variant.asked
    return job.kind == "report" or (job.kind == "export" and (".py" in asked.model or asked.checkpoint is not None))


def _keep_times(path: Path, job: Job, result: TaskResult) -> None:
    """Record when a node had a target for itself, so that one can see afterwards that nobody else had."""
    target = job.measures.label if job.measures is not None else ""
    line = {"job": job.name, "node": result.node, "target": target, "began": result.began, "ended": result.ended}
    files.append_line(path, msgspec.json.encode(line))
