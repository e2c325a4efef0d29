"""The pipeline: what is finished is kept, what is missing is run, and the manifest says all of it."""

import contextlib
import hashlib
import shlex
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling import __version__
from model_profiling.base import directories, files
from model_profiling.base.errors import InputError, InterruptionError, KitError
from model_profiling.base.file_memo import program_sha256
from model_profiling.base.on_progress import OnNote, OnProgress, no_notes
from model_profiling.formats.pte.dtypes import ProgramDtype, program_dtype
from model_profiling.pipeline import manifest_records, phase_experiments
from model_profiling.pipeline.axes import fill_in
from model_profiling.pipeline.config import MODES, compare_pairs
from model_profiling.pipeline.config_types import Config, Experiment
from model_profiling.pipeline.execution import GroupRun
from model_profiling.pipeline.group_state import ExperimentOutcome, GroupState, MeasuredProgram
from model_profiling.pipeline.partial_run import GroupRecord, PartialRun, remove_leftovers
from model_profiling.pipeline.progress_log import ConditionsRecord, SessionStart, combined
from model_profiling.pipeline.run_plan import RequestedRun, plan_run
from model_profiling.pipeline.schedule import groups
from model_profiling.platforms.base import Platform
from model_profiling.runner.kernel_trace import generate_shim
from model_profiling.store import transaction
from model_profiling.store.artifacts import FAILED, ExportMeta, ExportPaths, ExportRecord
from model_profiling.store.derived import write_manifest
from model_profiling.store.kept_programs import is_keeping_off, keep_program
from model_profiling.store.labels import device_name, model_revision, revision
from model_profiling.store.made_by import RunnerRecord, machine_of
from model_profiling.store.run_directory import Conditions, Manifest, ModelRecord, RunDirectory
from model_profiling.store.runs import InterruptedRun, interrupted_runs, publish, refuse_strangers


@dataclass(frozen=True)
class PipelineResult:
    directory: RunDirectory
    manifest: Manifest
    ran: list[str]
    kept: list[str]
    # The label under which the run that was there before is kept; '' if nothing was replaced.
    archived: str = ""


class Pipeline:
    """One run of a config on a platform, into the config's run directory."""

    def __init__(
        self,
        config: Config,
        platform: Platform,
        report: OnProgress,
        only: list[str] | None = None,
        force: bool = False,
        command: str = "",
        on_note: OnNote = no_notes,
    ) -> None:
        """`command` is what a user typed for this run; empty if a program asked for it."""
        self._paths = ExportPaths(Path(config.model).resolve())
        self._sequence = phase_experiments.sequence_of(self._paths.pte)
        config = self._with_phases(config, platform)
        self._config = fill_in(config, platform, self._dtype(config).main)
        self._platform = platform
        self._report = report
        self._only = _checked_only(self._config, only)
        self._force = force
        self._command = command
        self._note = on_note
        self._directory = RunDirectory(Path(config.output_root))
        self._runners: dict[tuple[str | None, str | None], RunnerRecord] = {}

    def _dtype(self, config: Config) -> ProgramDtype:
        return program_dtype(self._paths.pte, {e.method for e in config.experiments if e.method is not None})

    def _with_phases(self, config: Config, platform: Platform) -> Config:
        """Return a config that says nothing of phases, for a language model: each experiment in every phase."""
        if self._sequence is None:
            if phased := next((e for e in config.experiments if e.phase is not None), None):
                raise InputError(
                    f"experiment '{phased.name}' has a phase, and {self._paths.pte.name} is not a language model: it "
                    "does not take token ids [1, n] with their positions, and keep a cache",
                    "Leave `phase` (--prefill, --decode, --depth) out.",
                )
            return config
        if not phase_experiments.wants_phases(config):
            return config
        evidence = platform.timing != "measured" or all(MODES[e.mode] == "trace" for e in config.experiments)
        return phase_experiments.expand_phases(
            config,
            phase_experiments.chosen_phases(self._sequence, phase_experiments.Lengths(), evidence),
            "with its phases",
        )

    def run(self) -> PipelineResult:
        """Run what is not finished yet, one group after another; raises at the end if an experiment failed."""
        with files.locked(self._directory.path, "pipeline"):
            return self._run_locked()

    def _run_locked(self) -> PipelineResult:
        root = self._directory.path
        transaction.recover(root)
        remove_leftovers(root)
        self._report("preparing", 0, 1)
        self._probe = self._platform.probe()
        self._export = export = export_record(self._paths)
        given = tuple(Path(file).resolve() for file in self._config.inputs)
        self._inputs = given or sample_inputs(self._paths, export)
        phased, sequence = any(e.phase is not None for e in self._config.experiments), self._sequence
        self._tokens = None
        if sequence is not None and phased:
            self._tokens = phase_experiments.token_sequence(self._config, sequence, self._paths, export)
        fresh = self._new_manifest(export)
        probe = self._probe
        self._machine = machine_of(probe.arch, probe.features, probe.environment, self._platform.identity)
        fingerprints = {e.name: self._fingerprint(e, fresh.model) for e in self._config.experiments}
        found = self._directory.manifest() if self._directory.manifest_path.exists() else None
        wanted = [e for e in self._config.experiments if e.name in self._only]
        self._place = PartialRun(root, self._key(fingerprints))
        runners = {e.name: self._runner(e) for e in wanted}
        asked = RequestedRun(
            self._config.label, self._force, wanted, fingerprints, self._place.path, self._machine, runners
        )
        self._plan = plan_run(root, found, fresh, asked)
        for why in self._plan.why_again:
            self._note(f"existing results are not reused: {why}")
        if not self._plan.todo:
            fresh.status = "complete"
            _forget_unused(self._plan.taken_over(fresh))
            fresh.updated = manifest_records.now()
            write_manifest(self._directory, fresh)
            self._keep_program(fresh)
            return PipelineResult(self._directory, fresh, [], sorted(self._plan.finished))
        refuse_strangers(root, self._plan.todo)
        with self._platform.exclusive():
            return self._measure(fresh, fingerprints)

    def _measure(self, fresh: Manifest, fingerprints: dict[str, str]) -> PipelineResult:
        manifest = self._begin(fresh, fingerprints)
        failures: list[tuple[str, KitError]] = []
        ran: list[str] = []
        ready: list[str] = []
        todo = [[e for e in group if e.name in self._plan.todo] for group in groups(self._config)]
        todo = [group for group in todo if group]
        for number, group in enumerate(todo, 1):
            failed, complete = self._run_group(group, manifest, fingerprints)
            failures += failed
            ready += complete
            ran += [e.name for e in group]
            if number == len(todo):
                manifest.status = "failed" if failures else "complete"
            if ready and not (self._plan.replaces and (failures or number < len(todo))):
                self._publish(manifest, ready)
                ready = []
        self._place.leave(done=not failures)
        if failures:
            raise self._combined(failures)
        self._keep_program(manifest)
        return PipelineResult(self._directory, manifest, ran, sorted(self._plan.finished), self._plan.archive)

    def _begin(self, fresh: Manifest, fingerprints: dict[str, str]) -> Manifest:
        """Return the manifest of this run: as it was begun by a run that was interrupted, else new."""
        manifest = self._plan.taken_over(fresh)
        runners = {e.name: self._runner(e) for e in self._config.experiments}
        threads = sorted({e.num_threads for e in self._config.experiments})
        mine = {name: fingerprints[name] for name in self._plan.todo}
        begun = self._place.begin(InterruptedRun(manifest, mine, runners, threads, self._machine)).manifest
        manifest.label, manifest.created = begun.label, begun.created
        for place, other in interrupted_runs(self._directory.path):
            if place != self._place.path:
                command = shlex.quote(str(self._directory.path))
                elsewhere = other.machine is not None and other.machine != self._machine
                what = f"of another machine ({other.machine})" if elsewhere else "with other settings"
                self._note(
                    f"an interrupted run {what} is kept as {other.label}: run its command"
                    f"{' there' if elsewhere else ''} to resume it, or remove it: "
                    f"`sme2-kit history runs {command} --remove {other.label}`"
                )
        return manifest

    def _run_group(
        self, todo: list[Experiment], manifest: Manifest, fingerprints: dict[str, str]
    ) -> tuple[list[tuple[str, KitError]], list[str]]:
        """Measure a group side by side; what failed and why, and which experiments are ready to be put in place."""
        names = [e.name for e in todo]
        record = self._place.record(names)
        if record is None:
            outcomes, record = self._measure_group(todo, fingerprints)
            failures = [(name, outcome.failure) for name, outcome in outcomes.items() if outcome.failure is not None]
            if failures:
                # Where all of them failed, the device or the machine did: what they measured before is worth keeping.
                if len(failures) < len(names) or not self._place.progress(names).launches:
                    self._place.forget(names)
                if self._plan.replaces:
                    # A failure never replaces a success, its own or that of an experiment it is compared with.
                    for name in names:
                        files.replace_directory(self._place.ready(name), self._home_of_failure(name))
                    return failures, []
            else:
                self._place.complete(names, record)
        else:
            failures = []
        manifest.schedules[record.session] = record.schedule
        manifest.experiments.update(record.experiments)
        return failures, names

    def _measure_group(
        self, todo: list[Experiment], fingerprints: dict[str, str]
    ) -> tuple[dict[str, ExperimentOutcome], GroupRecord]:
        program = MeasuredProgram(self._paths.pte, self._paths.stem, self._inputs, self._sequence, self._tokens)
        runners, timing = {e.name: self._runner(e) for e in todo}, self._platform.timing
        state = self._place.state(program, todo, runners, timing, self._config.seed)
        for outcome in state.outcomes.values():
            outcome.scratch.mkdir(parents=True, exist_ok=True)
            if outcome.runner.kind == "foreign" and outcome.experiment.disable_features:
                what = f"experiment '{outcome.experiment.name}' disables features, which only the kit's runner can do"
                raise InputError(what, "Leave runner_path out, or give a runner that was built without them.")
        conditions, load = self._take_rounds(state), self._platform.load()
        records = {}
        for name, outcome in state.outcomes.items():
            hashes = manifest_records.collect(outcome, self._place.ready(name))
            if outcome.failure is not None:
                outcome.failure.moved(outcome.scratch, self._home_of_failure(name))
            how = (fingerprints[name], hashes, self._machine, timing)
            evidence = timing != "measured" or MODES[outcome.experiment.mode] == "trace"
            notes = [self._platform.trace_note] if evidence and self._platform.trace_note else []
            # Models are exported by the installed ExecuTorch, and another one may run them.
            if outcome.experiment.executorch is not None and self._export is not None:
                by = self._export.versions.get("executorch", "of unknown version")
                notes.append(f"the program was exported by ExecuTorch {by}; `executorch` chooses only what runs it")
            records[name] = manifest_records.experiment_record(outcome, state.progress, *how, notes, load)
        schedule = manifest_records.schedule_record(state, conditions)
        return state.outcomes, GroupRecord(state.progress.attempts[0].session, schedule, records)

    def _take_rounds(self, state: GroupState) -> Conditions:
        """Measure all that is missing; interrupted, say what is kept. Returns what the machine went through."""
        rest, progress = state.restore(), state.progress
        progress.save()
        earlier = progress.attempts
        if progress.turns:
            self._note(f"resuming an interrupted run: {progress.describe_progress()} are measured already")
        session = earlier[0].session if earlier else uuid.uuid4().hex[:12]
        here = (self._platform.load(), self._probe.boot, self._probe.environment, progress.launches, progress.turns)
        progress.add(SessionStart(session, [*state.outcomes], manifest_records.now(), time.time(), *here))
        try:
            GroupRun(self._platform, state, self._report, self._config.timeout_s, self._config.budget_s).run(rest)
        except KeyboardInterrupt:
            with contextlib.suppress(KitError):
                progress.add(ConditionsRecord(self._platform.conditions()))
            kept = f"{progress.describe_progress()} are kept" if progress.turns else "nothing was complete yet"
            hint = "Run the same command to resume; add --analyze-partial to analyse what was measured."
            raise InterruptionError(f"interrupted: {kept}", hint) from None
        return combined([*progress.conditions, self._platform.conditions()])

    def _publish(self, manifest: Manifest, names: list[str]) -> None:
        """Put complete experiments in place. A run whose results they replace becomes an earlier one first."""
        _forget_unused(manifest)
        manifest.updated = manifest_records.now()
        dropped = self._plan.dropped(manifest)
        publish(self._directory.path, self._place.path, manifest, names, dropped, self._plan.archive)
        for name in names:
            manifest_records.clear_directory(self._directory.path / FAILED / name)
        with contextlib.suppress(OSError):  # others failed
            (self._directory.path / FAILED).rmdir()

    def _home_of_failure(self, name: str) -> Path:
        """Return where the files of an experiment that failed end up: in its place, unless a good result is there."""
        root = self._directory.path
        return root / FAILED / name if self._plan.replaces else root / name

    def _combined(self, failures: list[tuple[str, KitError]]) -> KitError:
        name, first = failures[0]
        error = first.within(f"experiment '{name}' failed")
        if len(failures) > 1:
            error.message += f" (and {len(failures) - 1} more)"
        if self._plan.replaces:
            aside = self._directory.path / FAILED
            error.hint += f" Earlier results were not replaced; the files of this run are in {aside}."
            if self._place.path.exists():
                error.hint += " Finished experiments are not measured again; --analyze-partial analyses them."
        return error

    def _new_manifest(self, export: ExportRecord | None) -> Manifest:
        pte, probe = self._paths.pte, self._probe
        dtype = self._dtype(self._config)
        sha256, size = program_sha256(pte), pte.stat().st_size
        model = ModelRecord(str(pte), self._paths.stem, sha256, size, dtype.main, export, dtype.shares)
        environment: dict[str, object] = {
            "arch": probe.arch,
            "features": list(probe.features),
            "features_proof": probe.proof,
        }
        config: dict[str, object] = msgspec.to_builtins(self._config)
        config |= {"command": self._command, "directory": directories.working_directory()}
        return Manifest(
            kit_version=__version__,
            platform=self._platform.name,
            created=manifest_records.now(),
            updated=manifest_records.now(),
            config=config,
            model=model,
            environment=environment | probe.environment,
            compare_pairs=compare_pairs(self._config),
            timing=self._platform.timing,
            labels=dict(self._config.labels),
            revision=revision(self._config.labels),
            model_revision=model_revision(export, pte),
            device=device_name(probe.environment, self._platform.identity),
        )

    def _keep_program(self, manifest: Manifest) -> None:
        """Keep the .pte with the run: a later export may replace it before anybody asks since when it is slower."""
        if not self._config.keep_program or self._platform.timing != "measured" or is_keeping_off():
            return
        try:
            keep_program(self._directory.path, self._paths, manifest.model.sha256, manifest.model.export)
        except (KitError, OSError) as error:
            self._note(f"the program could not be kept for later comparisons: {error}")

    def _key(self, fingerprints: dict[str, str]) -> str:
        """Return what tells this run from other interrupted ones: how it is asked for, on which machine and of what."""
        asked = [self._force, self._config.label, sorted(self._only), sorted(fingerprints.items())]
        return hashlib.sha256(msgspec.json.encode([__version__, asked])).hexdigest()[:12]

    def _fingerprint(self, experiment: Experiment, model: ModelRecord) -> str:
        """Return a hash of everything that decides what an experiment measures: program, inputs and settings, the
        runner with all libraries that it loads, and the machine."""
        digest = hashlib.sha256(msgspec.json.encode(experiment))
        runner = self._runner(experiment)
        platform = (self._platform.name, self._platform.identity)
        # What is chosen follows from the budget.
        budget = "" if experiment.num_runs and experiment.launches else str(self._config.budget_s)
        made_by = (runner.content, self._machine.sha256)
        for part in (model.sha256, *made_by, *platform, str(self._config.seed), budget):
            digest.update(part.encode() + b"\0")
        read = self._inputs if experiment.phase is None or self._tokens is None else (self._tokens,)
        for path in read:
            digest.update(files.sha256(path).encode())
        if MODES[experiment.mode] == "trace":
            digest.update(generate_shim([]).encode())
        return digest.hexdigest()

    def _runner(self, experiment: Experiment) -> RunnerRecord:
        asked = (experiment.runner_path, experiment.executorch)
        if asked not in self._runners:
            self._runners[asked] = self._platform.runner(*asked, self._paths.pte)
        return self._runners[asked]


def _forget_unused(manifest: Manifest) -> None:
    """Leave out schedules of which no experiment is left."""
    used = {record.session for record in manifest.experiments.values()}
    manifest.schedules = {session: value for session, value in manifest.schedules.items() if session in used}


def export_record(paths: ExportPaths) -> ExportRecord | None:
    """Return what export_meta.json beside the .pte says of it; None if it says nothing or of another file."""
    if not paths.meta.is_file():
        return None
    record = files.read_json(paths.meta, ExportMeta, "export metadata").exports.get(paths.stem)
    if record is None or record.files.get(paths.pte.name) != program_sha256(paths.pte):
        return None
    return record


def sample_inputs(paths: ExportPaths, export: ExportRecord | None) -> tuple[Path, ...]:
    """Return the inputs an export saved beside the .pte; none if it is not known how it was exported."""
    if export is None:
        return ()
    inputs = tuple(paths.directory / tensor.file for tensor in export.inputs)
    missing = [path for path in inputs if not path.is_file()]
    if missing:
        raise InputError(
            f"sample input {missing[0]} is missing", "Export the model again, or give `inputs` in the config."
        )
    return inputs


def asked_dtype(paths: ExportPaths) -> str:
    """Return what results are filed under: the dtype its export was asked for, else what it computes in."""
    export = export_record(paths)
    return export.dtype if export is not None else program_dtype(paths.pte).main


def _checked_only(config: Config, only: list[str] | None) -> set[str]:
    names = {experiment.name for experiment in config.experiments}
    # An experiment that was there before its phases means all of them.
    phases = {e.name: e.name.replace(f"_{e.phase.in_names}", "") for e in config.experiments if e.phase is not None}
    only = [each for name in only or [] for each in [n for n, whole in phases.items() if whole == name] or [name]]
    for name in only:
        if name not in names:
            raise InputError(
                f"--only names '{name}', which is not an experiment", f"Experiments: {', '.join(sorted(names))}."
            )
    return set(only) if only else names
