"""The pipeline: what is finished is kept, what is missing is run, and the manifest says all of it."""

import datetime
import hashlib
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_profiling import __version__, files
from model_profiling.artifacts import FAILED, ExportMeta, ExportPaths, ExportRecord
from model_profiling.errors import InputError, KitError
from model_profiling.pipeline.accelerator import fill_in
from model_profiling.pipeline.config import MODES, Config, Experiment, compare_pairs
from model_profiling.pipeline.execution import GroupRun, Outcome, Program, Report, clear_scratch, keep
from model_profiling.pipeline.foreign import NOTE as FOREIGN_NOTE
from model_profiling.pipeline.schedule import groups, lanes_of
from model_profiling.platforms.base import Platform, Probe
from model_profiling.run_directory import (
    Conditions,
    ExperimentRecord,
    Manifest,
    ModelRecord,
    RunDirectory,
    RunnerRecord,
    ScheduleRecord,
)
from model_profiling.runner.kernel_trace import generate_shim


@dataclass(frozen=True)
class PipelineResult:
    directory: RunDirectory
    manifest: Manifest
    ran: list[str]
    kept: list[str]


class Pipeline:
    """One run of a config on a platform, into the config's run directory."""

    def __init__(
        self,
        config: Config,
        platform: Platform,
        report: Report,
        only: list[str] | None = None,
        force: bool = False,
        command: str = "",
    ) -> None:
        """`command` is what a user typed for this run; empty if a program asked for it."""
        self._paths = ExportPaths(Path(config.model).resolve())
        self._config = fill_in(config, platform, model_dtype(self._paths, export_record(self._paths)))
        self._platform = platform
        self._report = report
        self._only = _checked_only(self._config, only)
        self._force = force
        self._command = command
        self._directory = RunDirectory(Path(config.output_root))
        self._scratch = self._directory.path / ".partial"
        self._runners: dict[str | None, RunnerRecord] = {}
        # Experiments whose earlier results were kept because the new run failed.
        self._put_aside: set[str] = set()
        self._earlier: Manifest | None = None

    def run(self) -> PipelineResult:
        """Run what is not finished yet, one group after another; raises at the end if an experiment failed."""
        with files.locked(self._directory.path, "pipeline"):
            return self._run_locked()

    def _run_locked(self) -> PipelineResult:
        clear_scratch(self._scratch)
        self._report("preparing", 0, 1)
        probe = self._platform.probe()
        export = export_record(self._paths)
        inputs = self._inputs(export)
        manifest = self._start_manifest(probe, export)
        fingerprints = {e.name: self._fingerprint(e, manifest.model, inputs) for e in self._config.experiments}
        wanted = [e for e in self._config.experiments if e.name in self._only]
        finished = {e.name for e in wanted if self._is_finished(manifest, e.name, fingerprints[e.name])}
        failures: list[tuple[str, KitError]] = []
        ran: list[str] = []
        for group in groups(self._config):
            todo = [e for e in group if e.name in self._only and e.name not in finished]
            if todo:
                failures += self._run_group(todo, manifest, fingerprints, inputs)
                ran += [e.name for e in todo]
        clear_scratch(self._scratch)
        manifest.status = "failed" if failures else "complete"
        if not ran or set(ran) - self._put_aside:
            self._write(manifest)
        if failures:
            raise self._combined(failures)
        return PipelineResult(self._directory, manifest, ran, sorted(finished))

    def _run_group(
        self, todo: list[Experiment], manifest: Manifest, fingerprints: dict[str, str], inputs: tuple[Path, ...]
    ) -> list[tuple[str, KitError]]:
        """Run a group side by side, put each finished experiment in place, then say so in the manifest."""
        session, started, load_before = uuid.uuid4().hex[:12], _now(), self._platform.load()
        program = Program(self._paths.pte, self._paths.stem, inputs)
        outcomes = {e.name: Outcome(program, e, self._runner(e), self._scratch / e.name) for e in todo}
        for outcome in outcomes.values():
            outcome.scratch.mkdir(parents=True)
        foreign = {name for name, outcome in outcomes.items() if outcome.runner.kind == "foreign"}
        _refuse_masking(todo, foreign)
        lanes = lanes_of(todo, foreign, timed=self._platform.timing == "measured")
        settings = (self._config.timeout_s, self._config.seed, self._config.budget_s)
        group_run = GroupRun(self._platform, lanes, outcomes, self._report, *settings)
        group_run.run()
        manifest.schedules[session] = _schedule_record(
            group_run, self._config.seed, bool(foreign), self._platform.conditions()
        )
        failures = [(name, outcome.failure) for name, outcome in outcomes.items() if outcome.failure is not None]
        for name, outcome in outcomes.items():
            if failures and self._succeeded_before(name):
                # A failure never replaces a success, its own or that of an experiment it is compared with.
                keep(outcome, self._directory.path / FAILED / name)
                self._put_aside.add(name)
                continue
            clear_scratch(self._directory.path / FAILED / name)
            hashes = keep(outcome, self._directory.experiment(name))
            manifest.experiments[name] = _record(
                outcome, self._platform, fingerprints[name], session, started, hashes, load_before
            )
        if set(outcomes) - self._put_aside:
            self._write(manifest)
        return failures

    def _succeeded_before(self, name: str) -> bool:
        """Whether the run directory as it was found has a good result of that name."""
        record = self._earlier.experiments.get(name) if self._earlier else None
        return record is not None and record.status == "ok"

    def _combined(self, failures: list[tuple[str, KitError]]) -> KitError:
        """One error for all failed experiments, with the kind of the first."""
        name, first = failures[0]
        error = first.within(f"experiment '{name}' failed")
        if len(failures) > 1:
            error.message += f" (and {len(failures) - 1} more)"
        if self._put_aside:
            aside = self._directory.path / FAILED
            error.hint += f" Earlier results were not replaced; what this run left is in {aside}."
        return error

    def _start_manifest(self, probe: Probe, export: ExportRecord | None) -> Manifest:
        """A new manifest that takes over what an earlier one knows of the same model."""
        pte = self._paths.pte
        model = ModelRecord(
            str(pte), self._paths.stem, files.sha256(pte), pte.stat().st_size, model_dtype(self._paths, export), export
        )
        environment: dict[str, object] = {
            "arch": probe.arch,
            "features": list(probe.features),
            "features_proof": probe.proof,
        }
        config: dict[str, object] = msgspec.to_builtins(self._config)
        config |= {"command": self._command, "directory": str(Path.cwd())}
        manifest = Manifest(
            kit_version=__version__,
            platform=self._platform.name,
            created=_now(),
            updated=_now(),
            config=config,
            model=model,
            environment=environment | probe.environment,
            compare_pairs=compare_pairs(self._config),
            timing=self._platform.timing,
        )
        if self._directory.manifest_path.exists():
            self._earlier = self._directory.manifest()
            self._take_over(manifest, self._earlier)
        return manifest

    def _take_over(self, manifest: Manifest, earlier: Manifest) -> None:
        if earlier.model.stem != manifest.model.stem:
            root = self._directory.path
            raise InputError(
                f"{root} holds a run of {earlier.model.stem}, not of {manifest.model.stem}",
                f"Give another one, for example --output-root {root}-{manifest.model.dtype}, or remove it.",
            )
        if earlier.model.sha256 == manifest.model.sha256:
            manifest.created = earlier.created
            manifest.experiments = dict(earlier.experiments)
            manifest.schedules = dict(earlier.schedules)

    def _is_finished(self, manifest: Manifest, name: str, fingerprint: str) -> bool:
        """Whether an experiment was run as it would be now and its files are all still what they were."""
        record = manifest.experiments.get(name)
        if self._force or record is None or record.status != "ok" or record.fingerprint != fingerprint:
            return False
        home = self._directory.experiment(name)
        return all(
            (home / file).is_file() and files.sha256(home / file) == digest for file, digest in record.files.items()
        )

    def _fingerprint(self, experiment: Experiment, model: ModelRecord, inputs: tuple[Path, ...]) -> str:
        """A hash of everything that decides what an experiment measures."""
        digest = hashlib.sha256(msgspec.json.encode(experiment))
        runner = self._runner(experiment)
        platform = (self._platform.name, self._platform.identity)
        # What is chosen follows from the budget.
        budget = "" if experiment.num_runs and experiment.launches else str(self._config.budget_s)
        for part in (model.sha256, runner.sha256, *platform, str(self._config.seed), budget):
            digest.update(part.encode() + b"\0")
        for path in inputs:
            digest.update(files.sha256(path).encode())
        if MODES[experiment.mode] == "trace":
            digest.update(generate_shim([]).encode())
        return digest.hexdigest()

    def _runner(self, experiment: Experiment) -> RunnerRecord:
        if experiment.runner_path not in self._runners:
            self._runners[experiment.runner_path] = self._platform.runner(experiment.runner_path)
        return self._runners[experiment.runner_path]

    def _inputs(self, export: ExportRecord | None) -> tuple[Path, ...]:
        """The config's inputs, else the samples saved beside the .pte."""
        if self._config.inputs:
            return tuple(Path(file).resolve() for file in self._config.inputs)
        return sample_inputs(self._paths, export)

    def _write(self, manifest: Manifest) -> None:
        used = {record.session for record in manifest.experiments.values()}
        manifest.schedules = {session: value for session, value in manifest.schedules.items() if session in used}
        manifest.updated = _now()
        files.write_json(self._directory.manifest_path, manifest)


def export_record(paths: ExportPaths) -> ExportRecord | None:
    """What export_meta.json beside the .pte says of it; None if it says nothing or of another file."""
    if not paths.meta.is_file():
        return None
    record = files.read_json(paths.meta, ExportMeta, "export metadata").exports.get(paths.stem)
    if record is None or record.files.get(paths.pte.name) != files.sha256(paths.pte):
        return None
    return record


def sample_inputs(paths: ExportPaths, export: ExportRecord | None) -> tuple[Path, ...]:
    """The inputs an export saved beside the .pte; none if it is not known how it was exported."""
    if export is None:
        return ()
    inputs = tuple(paths.directory / tensor.file for tensor in export.inputs)
    missing = [path for path in inputs if not path.is_file()]
    if missing:
        raise InputError(
            f"sample input {missing[0]} is missing", "Export the model again, or give `inputs` in the config."
        )
    return inputs


def model_dtype(paths: ExportPaths, export: ExportRecord | None) -> str:
    """The model's dtype, from its export or its file name; 'unknown' if neither tells."""
    if export is not None:
        return export.dtype
    return next((dtype for dtype in ("fp32", "fp16", "int8") if paths.stem.endswith(f"_{dtype}")), "unknown")


def _checked_only(config: Config, only: list[str] | None) -> set[str]:
    names = {experiment.name for experiment in config.experiments}
    for name in only or []:
        if name not in names:
            raise InputError(
                f"--only names '{name}', which is no experiment", f"Experiments: {', '.join(sorted(names))}."
            )
    return set(only) if only else names


def _refuse_masking(todo: list[Experiment], foreign: set[str]) -> None:
    for experiment in todo:
        if experiment.name in foreign and experiment.disable_features:
            raise InputError(
                f"experiment '{experiment.name}' disables features, which only the kit's runner can do",
                "Leave runner_path out, or give a runner that was built without them.",
            )


def _schedule_record(group_run: GroupRun, seed: int, foreign: bool, conditions: Conditions) -> ScheduleRecord:
    return ScheduleRecord(
        seed,
        "alternating launches" if foreign else "alternating launches, interleaved turns",
        len(group_run.order),
        group_run.settle_runs or 0,
        group_run.order,
        conditions,
        group_run.launches,
        group_run.plan,
    )


def _record(
    outcome: Outcome,
    platform: Platform,
    fingerprint: str,
    session: str,
    started: str,
    hashes: dict[str, str],
    load_before: float,
) -> ExperimentRecord:
    experiment, ready, failure = outcome.experiment, outcome.ready, outcome.failure
    foreign = outcome.runner.kind == "foreign"
    notes = [FOREIGN_NOTE] if foreign else []
    mode = MODES[experiment.mode] if platform.timing == "measured" else "trace"
    if mode == "trace" and platform.trace_note:
        notes.append(platform.trace_note)
    if outcome.features is not None:
        notes += [f"this CPU does not have '{name}'; nothing was disabled for it" for name in outcome.features.absent]
    return ExperimentRecord(
        name=experiment.name,
        status="ok" if failure is None else "failed",
        fingerprint=fingerprint,
        session=session,
        mode=mode,
        threads=experiment.num_threads,
        disable_features=experiment.disable_features,
        runner=outcome.runner,
        started=started,
        finished=_now(),
        features=outcome.features,
        load_ns=ready.load_ns if ready else 0,
        warmup_ns=ready.warmup_ns if ready else [],
        backends=ready.backends if ready else [],
        inputs=ready.inputs if ready else [],
        outputs=outcome.done.outputs if outcome.done else [],
        latency_source="none" if mode == "trace" else "traced executions" if foreign else "untraced executions",
        load_before=round(load_before, 2),
        load_after=round(platform.load(), 2),
        files=hashes,
        notes=notes,
        failure=failure.message if failure else "",
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
