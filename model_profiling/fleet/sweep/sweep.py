"""Carries a sweep out: what is finished is skipped, what can run is started, and every end is written down at once."""

import contextlib
import dataclasses
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from model_profiling import __version__
from model_profiling.analysis.run.validation import problems
from model_profiling.base import directories, files
from model_profiling.base.directories import remedy
from model_profiling.base.errors import InputError, InterruptionError, KitError, RunError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnNote, OnProgress, no_notes, no_progress
from model_profiling.export.cache import cached
from model_profiling.export.request import ExportRequest
from model_profiling.fleet.sweep import portfolio
from model_profiling.fleet.sweep.executor import (
    OWN,
    Executor,
    FinishedJob,
    JobOutcome,
    Ledger,
    LocalExecutor,
    Queue,
    Seconds,
    usable_cpus,
)
from model_profiling.fleet.sweep.jobs import Job, Jobs, SweepFolder, finished_run
from model_profiling.fleet.sweep.result import RESULT, CellRecord, SweepResult, SweepStatus, cell_record, relative
from model_profiling.fleet.sweep.sweep_file import Cell, cells, load, parse
from model_profiling.pipeline.config import is_experiment_name
from model_profiling.pipeline.manifest_records import now
from model_profiling.pipeline.partial_run import remove_leftovers
from model_profiling.store import transaction
from model_profiling.store.artifacts import EARLIER, PARTIAL, ExportPaths
from model_profiling.store.kept_programs import is_keeping_off, keep_program
from model_profiling.store.labels import model_revision, revision
from model_profiling.store.run_directory import Manifest, RunDirectory
from model_profiling.store.runs import READY, publish, time_label, unique_label

# How often a job whose machine was lost is begun again.
MOST_ATTEMPTS = 3
_LOOK_S, _LOOK_WAITING_S = 2.0, 0.2
# How long to wait before a board is asked again whether somebody still measures on it.
_PAUSE_S = 5.0
# Results are written after every job, unless writing takes more than this part of the time.
_WRITING_SHARE = 0.1


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the sweep began, how often it was begun anew, and for each cell the oldest round of which results count."""

    created: str
    round: int = 1
    since: dict[str, int] = {}

    def anew(self, cells: Iterable[str]) -> "_State":
        return _State(self.created, self.round + 1, self.since | dict.fromkeys(cells, self.round + 1))


class Sweep:
    """One sweep file and the folder of its results."""

    def __init__(
        self,
        asked: str | Path | Mapping[str, Any],
        out: str | Path | None,
        only: Sequence[str] = (),
        pages: bool = True,
    ) -> None:
        """Open a sweep by its file or its keys; results go to `out`, else where it says, else to out_<name>. Without
        `pages`, neither its own is written nor those of its runs."""
        if isinstance(asked, Mapping):
            where, name = "(given as a dictionary)", "sweep"
            found = parse(dict(asked), where)
        else:
            found, where, name = load(Path(asked)), str(Path(asked)), Path(asked).stem
        self.asked, self.pages = found if pages else msgspec.structs.replace(found, reports=False), pages
        self.folder = SweepFolder(Path(out or found.output or f"out_{name}"))
        self.name = self.folder.home.name.removeprefix("out_")
        self.jobs = Jobs(self.asked, cells(self.asked, where), self.folder)
        self.wanted = self._chosen(only)

    def _chosen(self, only: Sequence[str]) -> list[Job]:
        """Return the jobs of the cells that `only` names, and what these need."""
        for pattern in only:
            if not any(_is_named(cell, pattern) for cell in self.jobs.cells):
                some = ", ".join(cell.name for cell in self.jobs.cells[:5])
                raise InputError(f"--only {pattern!r} matches no cell", f"Cells are, for example: {some}.")
        chosen = [cell for cell in self.jobs.cells if not only or any(_is_named(cell, each) for each in only)]
        names = {cell.name for cell in chosen} | {cell.variant.name for cell in chosen}
        return [job for job in self.jobs.all if job.subject in names]

    def plan(self, fresh: bool = False) -> list[tuple[Job, bool]]:
        """Return the jobs, each with whether it is finished; nothing is started or written."""
        names = {job.name for job in self.wanted}
        state = self._read_state(fresh)
        return [pair for pair in self.jobs.finished(state.since) if pair[0].name in names]

    def _read_state(self, fresh: bool) -> _State:
        try:
            state = files.read_json(self.folder.state / "state.json", _State, "state of a sweep")
        except InputError:
            state = _State(now())
        return state.anew(job.subject for job in self.wanted if job.kind == "run") if fresh else state

    def run(
        self,
        ray: str | None = None,
        fresh: bool = False,
        on_progress: OnProgress = no_progress,
        on_note: OnNote = no_notes,
    ) -> SweepResult:
        """Do what is not finished, in processes of this machine or on the Ray cluster at an address. A failed job never
        stops the others; what failed is in the result."""
        with files.locked(files.inside(self.folder.home, self.folder.journal).parent, "sweep"):
            state = self._read_state(fresh)
            files.write_json(self.folder.state / "state.json", state)
            return _Round(self, state, on_progress, on_note).run(ray)


def _is_named(cell: Cell, pattern: str) -> bool:
    return fnmatchcase(cell.name, pattern if any(c in pattern for c in "*?[") else f"*{pattern}*")


class _Round:
    """One call of `run`: the state of every job from here on."""

    def __init__(self, sweep: Sweep, state: _State, on_progress: OnProgress, on_note: OnNote) -> None:
        self._sweep, self._state = sweep, state
        self._jobs, self._folder = sweep.jobs, sweep.folder
        self._report, self._note = on_progress, on_note
        self._journal = Journal(self._folder.journal)
        seconds = {entry.job: entry.seconds for entry in self._journal.entries if entry.event == "finished"}
        self._ledger = Ledger(self._jobs.all, seconds, usable_cpus())
        self._cells: dict[str, CellRecord] = {}
        self._attempts: dict[str, int] = {}
        self._running: dict[str, Job] = {}
        self._not_begun: list[FinishedJob] = []
        self._noted: set[str] = set()
        # What the executor said of its machines.
        self._said: list[str] = []
        # Until when a lane waits for somebody who measures on its target from another machine.
        self._paused: dict[str, float] = {}
        # The commands of jobs that wait to be started.
        self._prepared: dict[str, tuple[tuple[str, ...], str]] = {}
        self._written_at, self._writing_s = 0.0, 0.0

    def run(self, ray: str | None) -> SweepResult:
        shutil.rmtree(self._folder.incoming, ignore_errors=True)
        for cell in self._jobs.cells:
            directory = self._folder.run(cell)
            # What a killed run had decided to is put in place, and what it had no time to remove goes.
            with contextlib.suppress(KitError):
                if transaction.interrupted(directory) or (directory / PARTIAL).is_dir():
                    with files.locked(directory, "pipeline"):
                        transaction.recover(directory)
                        remove_leftovers(directory)
        wanted = {job.name for job in self._sweep.wanted}
        for job, done in self._jobs.finished(self._state.since):
            self._ledger.set(job, "finished" if done else "waiting" if job.name in wanted else "not asked for")
        for cell in self._jobs.cells:
            self._look_at(cell)
        todo = [job for job in self._sweep.wanted if self._ledger.state(job.name) == "waiting"]
        if todo:
            executor = self._executor(ray, todo)
            try:
                self._carry_out(executor, Queue(todo, executor.lane))
            except KeyboardInterrupt:
                executor.close()
                self._write()
                kept = f"{self._ledger.counted('finished')} of {len(self._jobs.all)} jobs are finished"
                raise InterruptionError(f"interrupted: {kept}", "Run the same command to continue.") from None
            finally:
                executor.close()
        return self._write(drawn=True)

    def _executor(self, ray: str | None, todo: list[Job]) -> Executor:
        if ray is None:
            return LocalExecutor(self._folder, todo)
        from model_profiling.fleet.sweep.ray_executor import RayExecutor

        return RayExecutor(ray, self._jobs, todo, self._keep_note)

    def _carry_out(self, executor: Executor, queue: Queue) -> None:
        while queue or self._running:
            waits = self._start_what_can(executor, queue)
            parts = [_said(job, executor.doing(job)) for job in self._running.values()]
            failed = self._ledger.counted("failed")
            words = f"{len(parts)} running" if parts else "waiting"
            words += f", {failed} failed" if failed else ""
            words += f", about {_duration(left)} left" if (left := self._ledger.left()) else ""
            over = self._ledger.counted("finished", "failed", "skipped")
            self._report(f"{words}: {'; '.join(parts)}" if parts else words, over, len(self._jobs.all))
            ended, self._not_begun = self._not_begun, []
            ended += executor.ended(0.0 if ended else _LOOK_WAITING_S if waits else _LOOK_S)
            for each in ended:
                del self._running[each.job.name]
                self._take(each, queue)
            # While nothing else runs here: a measurement that comes next is not disturbed.
            if ended and self._writing_s <= (time.monotonic() - self._written_at) * _WRITING_SHARE:
                self._write()

    def _start_what_can(self, executor: Executor, queue: Queue) -> bool:
        """Start jobs in their order; whether one waits for somebody else, of whom this sweep will not hear."""
        waits = False
        work = [job for lane in queue.ready.values() for job in list(lane)[:1] if job.measures is None]
        busy = bool(work) or any(job.measures is None for job in self._running.values())
        for name, lane in queue.ready.items():
            if lane and self._paused.get(name, 0.0) > time.monotonic():
                waits = True
                continue
            # A measurement on this machine stops all else, so all else comes first.
            if lane and executor.host_comes_last and busy and lane[0].measures is not None and lane[0].measures.is_host:
                continue
            while lane:
                reason = self._start(executor, lane[0])
                if reason:
                    waits = waits or reason != OWN
                    break
                lane.popleft()
        return waits

    def _start(self, executor: Executor, job: Job) -> str:
        """Start a job: return '' if it was started, else what it waits for."""
        if job.name not in self._prepared:
            self._prepared[job.name] = self._words(job)
        words, there = self._prepared[job.name]
        try:
            reason = executor.start(job, words)
        except (KitError, OSError) as error:
            # What keeps one job from being started is no reason to end the others.
            why = (error.message, error.hint) if isinstance(error, KitError) else (f"{error}", remedy(error))
            self._not_begun.append(FinishedJob(job, JobOutcome(0.0, *why)))
            reason = ""
        if reason:
            if reason != OWN:
                self._note_once(f"{job.name} waits: {reason}")
            return reason
        del self._prepared[job.name]
        self._journal.add("started", job.name, self._state.round, replaces=there)
        self._attempts[job.name] = self._attempts.get(job.name, 0) + 1
        self._running[job.name] = job
        self._ledger.set(job, "running")
        return ""

    def _keep_note(self, sentence: str) -> None:
        self._said.append(sentence)
        self._note(sentence)

    def _note_once(self, sentence: str) -> None:
        if sentence not in self._noted:
            self._noted.add(sentence)
            self._note(sentence)

    def _words(self, job: Job) -> tuple[tuple[str, ...], str]:
        """Return the command, and the label of the run that it will replace. A new round measures anew what is there.

        A run that ended just before its sweep was killed is there, too: it is of this round if it is not the one that
        was there when its job was started, and is not measured again.
        """
        if job.kind != "run":
            return job.words, ""
        manifest = self._finished_run(job)
        there = manifest.label if manifest is not None else ""
        since = self._state.since.get(job.subject, 1)
        mine = [entry for entry in self._journal.of(job.name) if entry.round >= since]
        first = mine[0].replaces if mine else there
        anew = since > 1 and bool(there) and there == first
        return (*job.words, *(["--force"] if anew else [])), first

    def _take(self, ended: FinishedJob, queue: Queue) -> None:
        """Write down how a job ended, and let in what it was waited for by."""
        job, outcome = ended.job, ended.outcome
        if outcome.lost or outcome.busy:
            event: Event = "busy" if outcome.busy else "lost"
            self._journal.add(event, job.name, self._state.round, seconds=outcome.seconds, failure=outcome.failure)
            if outcome.busy:
                self._attempts[job.name] -= 1
                self._paused[queue.lane(job)] = time.monotonic() + _PAUSE_S
            if self._attempts[job.name] < MOST_ATTEMPTS:
                self._note_once(f"{job.name} {'waits' if outcome.busy else 'is begun again'}: {outcome.failure}")
                self._ledger.set(job, "waiting")
                queue.again(job)
                return
        if not outcome.failure:
            outcome = self._confirmed(job, outcome)
        if outcome.failure:
            said = {"failure": outcome.failure, "hint": outcome.hint}
            self._journal.add("failed", job.name, self._state.round, seconds=outcome.seconds, **said)
            log = self._folder.log(job)
            self._ledger.set(job, "failed", outcome, log=relative(log, self._folder.home) if log.is_file() else "")
            self._note(f"{job.name} failed: {outcome.failure}")
            for later in queue.failed(job):
                self._ledger.set(later, "skipped", failure=f"{job.name} failed: {outcome.failure}")
                self._look_at(later.cell)
        else:
            self._journal.add("finished", job.name, self._state.round, seconds=outcome.seconds, node=outcome.node)
            self._ledger.set(job, "finished", outcome)
            queue.finished(job)
        self._look_at(job.cell)

    def _confirmed(self, job: Job, outcome: JobOutcome) -> JobOutcome:
        """Check that a command that says it did well left what it should, here or on the machine that it ran on."""
        try:
            if outcome.incoming is not None:
                if job.cell is None:
                    adopt_export(self._jobs.request(job.variant), outcome.incoming)
                else:
                    place, program = self._folder.run(job.cell), self._jobs.program(job.variant)
                    adopt_run(job, outcome.incoming, place, program, lambda found: self._note_run(job, found))
            elif job.kind == "run" and (manifest := self._finished_run(job)) is not None:
                self._note_run(job, manifest)
            if self._jobs.is_finished(job, self._state.since.get(job.subject, 1), {job.after: True}):
                return outcome
            failure, hint = "it left no complete result", "See its log, and run the sweep again."
            if outcome.incoming is not None:
                hint += " All machines of a cluster need the same kit, Python and packages."
        except KitError as error:
            failure, hint = error.message, error.hint
        except OSError as error:
            failure, hint = f"{error.strerror or error}: {error.filename or ''}", "Check space and permissions there."
        finally:
            if outcome.incoming is not None:
                shutil.rmtree(outcome.incoming, ignore_errors=True)
        return JobOutcome(outcome.seconds, failure, hint, node=outcome.node)

    def _finished_run(self, job: Job) -> Manifest | None:
        return finished_run(self._folder.run(job.cell)) if job.cell is not None else None

    def _note_run(self, job: Job, manifest: Manifest) -> None:
        assert job.cell is not None
        self._jobs.note(job.cell, manifest, self._state.round)

    def _look_at(self, cell: Cell | None) -> None:
        if cell is not None:
            run = self._ledger.records[f"run {cell.name}"]
            place = self._folder.run(cell)
            metric = self._jobs.metric(cell.variant)
            self._cells[cell.name] = cell_record(cell, self._folder.home, place, run.state, run.failure, metric)

    def _write(self, drawn: bool = False) -> SweepResult:
        began = time.monotonic()
        result = self._result()
        files.write_json(self._folder.home / RESULT, result)
        if self._sweep.pages:
            portfolio.write(result, self._folder.home, drawn)
        self._written_at = time.monotonic()
        self._writing_s = self._written_at - began
        return result

    def _result(self) -> SweepResult:
        ledger = self._ledger
        left = ledger.counted("waiting", "running", "not asked for")
        status: SweepStatus = "partial" if left else "failed" if ledger.counted("failed") else "complete"
        return SweepResult(
            name=self._sweep.name,
            kit_version=__version__,
            created=self._state.created,
            updated=now(),
            status=status,
            targets=list(dict.fromkeys(cell.target.label for cell in self._jobs.cells)),
            jobs=list(ledger.records.values()),
            cells=list(self._cells.values()),
            labels=dict(self._sweep.asked.labels),
            round=self._state.round,
            notes=list(self._said),
        )


def _said(job: Job, doing: str) -> str:
    """Return the job, and what it says of its progress; what else it prints is for its log."""
    kind, _, words = doing.partition(": ")
    return f"{job.name} ({words})" if kind == job.kind and words else job.name


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


Event = Literal["started", "finished", "failed", "lost", "busy"]


class JournalEntry(msgspec.Struct, frozen=True):
    """`round` counts the times that all was to be measured anew (--fresh). `replaces` is the label of the run that was
    there when a run was started."""

    at: str
    event: Event
    job: str
    round: int
    seconds: Seconds = 0.0
    failure: str = ""
    hint: str = ""
    replaces: str = ""
    node: str = ""


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries = read(path)
        self._by_job: dict[str, list[JournalEntry]] = {}
        for entry in self.entries:
            self._by_job.setdefault(entry.job, []).append(entry)
        # A line that a kill or a full disk tore is ended, so that the next one is not a part of it.
        if path.is_file() and files.tail(path, 1) not in ("", "\n"):
            files.append_line(path, b"")

    def add(self, event: Event, job: str, round_: int, **more: str | float) -> None:
        entry = msgspec.convert({"at": now(), "event": event, "job": job, "round": round_, **more}, JournalEntry)
        files.append_line(self._path, msgspec.json.encode(entry))
        self.entries.append(entry)
        self._by_job.setdefault(job, []).append(entry)

    def of(self, job: str) -> list[JournalEntry]:
        return self._by_job.get(job, [])


def read(path: Path) -> list[JournalEntry]:
    """Return all entries that can be read; a line that was torn is none."""
    if not path.is_file():
        return []
    found = []
    decode = msgspec.json.Decoder(JournalEntry).decode
    for line in files.read_bytes(path, "journal of a sweep").splitlines():
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            found.append(decode(line))
    return found


def adopt_run(job: Job, incoming: Path, root: Path, program: Path, note: Callable[[Manifest], None]) -> None:
    """Make a run that was measured elsewhere the latest of its cell; the one that was there becomes an earlier one.

    `note` says that the job is finished with that result. It comes before the result is in place: a kill in between
    leaves a note of something that is not there, and so an unfinished job; a kill later is recovered from.
    """
    with files.locked(root, "pipeline"):
        transaction.recover(root)
        manifest = _checked(job, incoming, program)
        before = RunDirectory(root).manifest() if finished_run(root) is not None else None
        manifest.label = unique_label(root, time_label(manifest.created))
        # As if it had been measured here: later commands look for the program where it is.
        manifest.model = msgspec.structs.replace(manifest.model, path=str(program.resolve()))
        manifest.config |= {
            "model": str(program),
            "output_root": str(root),
            "directory": directories.working_directory(),
        }
        # The user's code is here, not where it ran.
        manifest.revision = revision(manifest.labels)
        manifest.model_revision = model_revision(manifest.model.export, program)
        place = files.inside(root, root / PARTIAL / f"cluster-{uuid.uuid4().hex[:12]}")
        for name in manifest.experiments:
            target = place / READY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (incoming / name).rename(target)
        note(manifest)
        there = before.experiments if before is not None else {}
        dropped = [name for name in there if name not in manifest.experiments]
        archive = before.label if before is not None else ""
        if archive and (root / EARLIER / archive).exists():
            archive = unique_label(root, archive)
        publish(root, place, manifest, manifest.experiments, dropped, archive)
        files.remove_directory(place)
        if manifest.timing == "measured" and not is_keeping_off():
            # For the history of the cell, as a run here would.
            with contextlib.suppress(KitError, OSError):
                keep_program(root, ExportPaths(program), manifest.model.sha256, manifest.model.export)


def adopt_export(request: ExportRequest, incoming: Path) -> None:
    """Put an export that was made elsewhere in its place, if it is what an export here would be."""
    if cached(dataclasses.replace(request, outdir=incoming)) is None:
        hint = "See its log. All machines of a cluster need the same kit, Python and packages."
        raise RunError(f"the cluster sent no complete export of {request.model}", hint)
    files.replace_directory(incoming, request.outdir)


def _checked(job: Job, incoming: Path, program: Path) -> Manifest:
    """Return the manifest of a run that came from elsewhere, which has to be valid before anything of it is kept."""
    manifest = finished_run(incoming)
    if manifest is None or manifest.model.sha256 != program_sha256(program):
        raise RunError(f"{job.name}: the cluster sent no complete run of its program", "Run the sweep again.")
    found = problems(RunDirectory(incoming))
    for name, record in manifest.experiments.items():
        if record.name != name or not is_experiment_name(name):
            found.append(f"no experiment can be called {name!r}")
    if found:
        raise RunError(f"{job.name}: the run that the cluster sent is damaged: {found[0]}", "Run the sweep again.")
    return manifest
