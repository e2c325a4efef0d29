"""The jobs of a sweep: one export for each program, one run for each cell, one report for each run.

Each is one `sme2-kit` command. Whether it is finished is read from the files that it leaves, and from the note that the
sweep makes when a run has ended.
"""

import functools
import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling import __version__
from model_profiling.analysis.compare.comparison import MetricChange, read_metric
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.export.cache import cached
from model_profiling.export.request import ExportRequest, typed
from model_profiling.fleet.sweep.sweep_file import Cell, SweepFile, SweepProgram, SweepTarget
from model_profiling.models.lookup import model_name
from model_profiling.models.options import LoadOptions, input_spec, name_suffix, settings_of
from model_profiling.pipeline.pipeline import export_record
from model_profiling.platforms.environment import describe_host
from model_profiling.runner.sdk import installed_libraries
from model_profiling.store import artifacts
from model_profiling.store.artifacts import ExportPaths
from model_profiling.store.derived import current_fingerprint, read_index
from model_profiling.store.made_by import machine_of
from model_profiling.store.run_directory import Manifest, RunDirectory

Kind = Literal["export", "run", "report"]
# Where a sweep keeps its journal, notes, logs and locks.
STATE = ".sweep"


@dataclass(frozen=True)
class Job:
    """One command. `cell` is None for an export, which is for all cells of its variant; `after` has to end first."""

    kind: Kind
    subject: str
    words: tuple[str, ...]
    variant: SweepProgram
    cell: Cell | None = None
    after: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.subject}"

    @property
    def measures(self) -> SweepTarget | None:
        """The target that it has to have alone; None if nothing is timed."""
        timed = self.kind == "run" and self.cell is not None and self.cell.target.timing == "measured"
        return self.cell.target if timed and self.cell is not None else None


class RunNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the sweep notes of a run that has ended: what it was asked for, by which round, and what came of it."""

    key: str
    round: int
    fingerprints: dict[str, str]
    # The machine that ran the sweep, if it also made this measurement; '' if another one did.
    host: str = ""


class SweepFolder:
    """Where the files of a sweep lie."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / STATE
        self.journal = self.state / "journal.jsonl"
        # What came from a cluster and is not yet in its place.
        self.incoming = self.state / "incoming"

    def artifacts(self, variant: SweepProgram) -> Path:
        return self.home / "artifacts" / variant.name

    def run(self, cell: Cell) -> Path:
        return self.home / "runs" / cell.name

    def log(self, job: Job) -> Path:
        return self.state / "logs" / f"{job.kind}-{job.subject}.log"

    def lock(self, job: Job) -> Path:
        return self.state / "locks" / f"{job.kind}-{job.subject}"

    def note(self, cell: Cell) -> Path:
        return self.state / "notes" / f"{cell.name}.json"


class Jobs:
    """All jobs of a sweep, in an order in which each comes after what it needs."""

    def __init__(self, asked: SweepFile, cells: list[Cell], folder: SweepFolder) -> None:
        self.folder = folder
        self.cells = cells
        self._asked = asked
        self.all = self._made()
        self.by_name = {job.name: job for job in self.all}

    def _made(self) -> list[Job]:
        exports: dict[str, Job] = {}
        runs, reports = [], []
        for cell in self.cells:
            variant, place = cell.variant, self.folder.run(cell)
            if not variant.is_program and variant.name not in exports:
                words = self.export_words(variant, self.folder.artifacts(variant))
                exports[variant.name] = Job("export", variant.name, words, variant)
            after = "" if variant.is_program else exports[variant.name].name
            run = Job("run", cell.name, self.run_words(cell, self.program(variant), place), variant, cell, after)
            runs.append(run)
            if self._asked.reports:
                words = ("report", str(place), "--html")
                reports.append(Job("report", cell.name, words, variant, cell, run.name))
        return [*exports.values(), *runs, *reports]

    def export_words(self, variant: SweepProgram, place: Path) -> tuple[str, ...]:
        """Return the command that exports a program, in the words that an export is printed with everywhere."""
        asked = self._asked
        judged = (f"--metric={asked.metric}", f"--data={asked.data}") if asked.metric else ()
        better = ("--lower-is-better",) if asked.lower_is_better else ()
        return (*typed(self.request(variant))[1:], f"--out={place}", *judged, *better)

    def metric(self, variant: SweepProgram) -> MetricChange | None:
        """Return what the metric says of an exported program; None if that is not known, or nobody asked."""
        asked = self._asked
        if variant.is_program or not asked.metric or not asked.data:
            return None
        return read_metric(asked.metric, asked.data, asked.lower_is_better, self.request(variant).paths)

    def run_words(self, cell: Cell, program: Path, place: Path) -> tuple[str, ...]:
        labels = [f"--label={key}={value}" for key, value in self._asked.labels.items()]
        return ("run", str(program), f"--out={place}", "--no-html", *self._settings(cell), *labels)

    def _settings(self, cell: Cell) -> list[str]:
        """Return all that decides what a run measures, beside its program."""
        asked = self._asked
        counts = {
            "--runs": asked.runs,
            "--launches": asked.launches,
            "--budget": asked.budget_s,
            "--startup-launches": asked.startup_launches,
        }
        measured = cell.target.timing == "measured"
        given = {flag: value for flag, value in counts.items() if value is not None and measured}
        words = ["--quiet", *([f"--threads={cell.threads}"] if measured else [])]
        words += [f"--runtimes={','.join(asked.runtimes)}"] if asked.runtimes and cell.target.is_host else []
        return [*words, *(f"{flag}={value}" for flag, value in given.items()), *cell.target.flags]

    def request(self, variant: SweepProgram) -> ExportRequest:
        """Return what the export of a variant asks for, as the command does."""
        asked = variant.asked
        settings = tuple(sorted(settings_of(asked.set).items()))
        checkpoint = Path(asked.checkpoint) if asked.checkpoint else None
        options = LoadOptions(tuple(map(input_spec, asked.input)), settings, checkpoint)
        return ExportRequest(
            model_name(asked.model) + name_suffix(settings),
            self.folder.artifacts(variant),
            variant.dtype,
            target=asked.model,
            options=options,
            rewrites=variant.rewrites,
        )

    def program(self, variant: SweepProgram) -> Path:
        return Path(variant.asked.model) if variant.is_program else self.request(variant).paths.pte

    def key(self, cell: Cell) -> str:
        """Return a hash of everything that decides what a run measures, so far as it is known before it is run.

        What else there is (the runner, another device) the run itself looks at: it measures nothing twice.
        """
        pte = self.program(cell.variant)
        digest = hashlib.sha256(program_sha256(pte).encode())
        code = (__version__, _executorch(), installed_libraries())
        record = export_record(ExportPaths(pte))
        inputs = [record.files.get(tensor.file, "") for tensor in record.inputs] if record is not None else []
        for part in (*code, *self._settings(cell), *inputs):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:32]

    def finished(self, rounds: Mapping[str, int]) -> Iterator[tuple[Job, bool]]:
        """Yield every job with whether it is finished; each is looked at once. `rounds` has for cells that were begun
        anew the oldest round of which results count."""
        known: dict[str, bool] = {}
        for job in self.all:
            known[job.name] = self.is_finished(job, rounds.get(job.subject, 1), known)
            yield job, known[job.name]

    def is_finished(self, job: Job, round_: int, known: Mapping[str, bool]) -> bool:
        """Return whether its result is there, and is what it would be; `round_` is the oldest round that counts, and
        `known` has the answer for the job that comes before it."""
        try:
            if job.kind == "export":
                judged = not self._asked.metric or self.metric(job.variant) is not None
                return judged and cached(self.request(job.variant)) is not None
            assert job.cell is not None
            if job.after and not known[job.after]:
                return False
            if job.kind == "report":
                return has_report(self.folder.run(job.cell))
            note = files.read_json(self.folder.note(job.cell), RunNote, "note of a sweep")
            finished = finished_run(self.folder.run(job.cell))
            same = finished is not None and fingerprints(finished) == note.fingerprints
            same = same and note.host in ("", this_host())
            return same and note.round >= round_ and note.key == self.key(job.cell)
        except (KitError, OSError):
            return False

    def note(self, cell: Cell, manifest: Manifest, round_: int) -> None:
        """Say that a run has ended; from here on it is finished as long as nothing it depends on changes."""
        machines = {str(record.machine) for record in manifest.experiments.values()}
        host = this_host() if cell.target.is_host and machines == {this_host()} else ""
        files.write_json(self.folder.note(cell), RunNote(self.key(cell), round_, fingerprints(manifest), host))


def finished_run(directory: Path) -> Manifest | None:
    try:
        manifest = RunDirectory(directory).manifest()
    except InputError:
        return None
    done = manifest.status == "complete" and manifest.experiments
    return manifest if done and all(r.status == "ok" for r in manifest.experiments.values()) else None


def fingerprints(manifest: Manifest) -> dict[str, str]:
    """Return what tells this result from another one of the same cell: what was measured, and when."""
    return {name: f"{record.fingerprint} {record.session}" for name, record in manifest.experiments.items()}


def has_report(directory: Path) -> bool:
    """Return whether the report page is there, as it was written, and of this very run."""
    run = RunDirectory(directory)
    index, page = read_index(run), directory / artifacts.REPORT_PAGE
    entry = index.files.get(page.name) if index is not None else None
    if entry is None or not page.is_file() or files.sha256(page) != entry.sha256:
        return False
    return entry.sources == current_fingerprint(run, index)


@functools.cache
def this_host() -> str:
    """Return this machine in words: CPU, cores, memory."""
    return str(machine_of("", (), describe_host()))


@functools.cache
def _executorch() -> str:
    try:
        return importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        return ""
