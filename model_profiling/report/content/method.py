"""How the numbers came about: what was not measured, on which machine and in which order."""

import shlex
from pathlib import Path

from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.directories import working_directory
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.units import counted
from model_profiling.export.request import arguments, recorded, repeated
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Code, Name, Paragraph, Row, Section, Table
from model_profiling.report.content import startup
from model_profiling.store.artifacts import ExportRecord
from model_profiling.store.run_directory import ExperimentRecord, Manifest, ScheduleRecord

_HIDDEN = ("cpu", "arch", "memory_bytes", "load_1m_5m_15m")
_RESOLUTION = "Anything below a microsecond inside the delegate: XNNPACK times its operators in whole microseconds."
_TRACED = "Latency is from executions without a tracer, breakdown and operators from others with one; they never mix."
_STARTED = "The run was started by a Python program; `config` in manifest.json is what it asked for."
_WHERE = "Type these in the directory in which the run was started: `config.directory` in manifest.json."


def cpu(run: RunView) -> str:
    environment = run.manifest.environment
    return str(environment.get("cpu") or environment.get("device") or environment.get("arch") or "unknown CPU")


def not_measured(run: RunView) -> Section:
    """Say what a reader might take for granted and this run does not show."""
    records, experiments = run.manifest.experiments, run.summary.experiments
    items = [f"{run.label(n)} failed: {r.failure or r.status}." for n, r in records.items() if r.status != "ok"]
    if not run.measured:
        items.append("Time: the CPU was emulated. Run on real hardware for latency, speedup and shares.")
    elif not run.summary.comparisons and experiments:
        items.append("A speedup: no two experiments were compared.")
    # Failures are said already, in the manifest's words.
    failed = tuple(f"{name} failed:" for name in records)
    items += [f"{run.labelled(note.rstrip('.'))}." for note in run.summary.notes if not note.startswith(failed)]
    noted = [*((n, e.notes) for n, e in experiments.items()), *((n, r.notes) for n, r in records.items())]
    items += [f"{run.label(name)}: {note.rstrip('.')}." for name, notes in noted for note in notes]
    export = run.manifest.model.export
    if export is None:
        lack = "there is no export_meta.json next to the model: delegation and expected outputs are unknown"
        items.append(f"The export: {lack}.")
    else:
        unused = "Latency does not depend on them; outputs are not meaningful."
        items += [f"Accuracy: weights are {export.weights}. {unused}"] if "random" in export.weights else []
        items += [f"The export: {warning.rstrip('.')}." for warning in export.warnings]
    coarse = any(each.breakdown.clock_ns > 1 for each in experiments.values())
    items += [_RESOLUTION] if run.measured and coarse else []
    items += [*startup.unknown(run), "Power and temperature."]
    result = f"{counted(len(items), 'thing')} to know"
    return Section("not_measured", "What was not measured", [Bullets(items)], True, result)


def _calibrated(export: ExportRecord) -> str:
    """Return what set the ranges of int8."""
    samples = export.calibration
    if samples is None:
        return "the example inputs with noise: enough for timing, not for accuracy"
    return f"{counted(samples.batches, 'batch', 'batches')} from {samples.directory}"


def environment(run: RunView) -> Section:
    """Return the machine, the features in force, and the order in which executions took turns."""
    values = dict(run.manifest.environment)
    rows: list[Row] = [("CPU", cpu(run)), ("architecture", str(values.get("arch", "not known")))]
    memory, load = values.get("memory_bytes"), values.get("load_1m_5m_15m")
    if isinstance(memory, int | float):
        rows.append(("memory", f"{memory / 2**30:.1f} GiB"))
    if isinstance(load, list):
        rows.append(("load (1, 5, 15 minutes)", ", ".join(map(str, load))))
    rows += [(key.replace("_", " "), _plain(value)) for key, value in values.items() if key not in _HIDDEN]
    model = run.manifest.model
    rows.append(("model", f"{model.stem}, {model.dtype_words}, {numbers.mebibytes(model.bytes)}"))
    if (export := model.export) is not None:
        last = f"{', '.join(export.channels_last)}; all others are contiguous"
        rows += [("channels-last in memory", last)] if export.channels_last else []
        rows += [("exported as", export.dtype)] if export.dtype != model.dtype_words else []
        rows += [("weights", export.weights), ("exported with", _plain(export.versions))]
        rows += [("calibrated on", _calibrated(export))] if dtype_of(export.dtype).calibrated else []
        rows += [("kept in fp32", ", ".join(export.keep_fp32))] if export.keep_fp32 else []
    rows += _known_by(run)
    blocks: list[Block] = [Table("environment", ("what", "value"), rows), _experiments(run)]
    blocks += [Paragraph(_schedule(schedule)) for schedule in run.manifest.schedules.values()]
    blocks += [Paragraph(_TRACED)] if run.measured else []
    result = f"{cpu(run)}, kit {run.manifest.kit_version}, {run.manifest.updated[:10]}"
    return Section("environment", "Environment and method", blocks, True, result)


def _known_by(run: RunView) -> list[Row]:
    """Return the commits that the run is of, and its labels, if it has any."""
    here, model, labels = run.manifest.revision, run.manifest.model_revision, run.manifest.labels
    rows: list[Row] = []
    # One repository is named once, and runs of earlier versions know of the working directory alone.
    one = model.commit in ("", here.commit)
    for name, each in (("commit" if one else "commit, working directory", here), ("commit, model", model)):
        if each.commit and (each is here or not one):
            branch = f" on {each.branch}" if each.branch else ""
            rows.append((name, f"{each.commit}{branch}{', with changed files' if each.dirty else ''}"))
    said = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return [*rows, ("labels", said)] if labels else rows


def _experiments(run: RunView) -> Table:
    rows: list[Row] = []
    for name, record in run.manifest.experiments.items():
        off = ", ".join(record.features.disabled) if record.features else ", ".join(record.disable_features)
        status = "partial" if record.partial else record.status
        how = (status, record.mode, str(record.threads), Name(off) if off else "nothing", _runner(record))
        rows.append((run.label(name), Name(name), *how))
    columns = ("experiment", "name in files", "status", "mode", "threads", "switched off", "runner")
    return Table("experiments", columns, rows)


def _runner(record: ExperimentRecord) -> str:
    runner = record.runner
    version = f"ExecuTorch {runner.executorch_name}" if runner.executorch else ""
    path = f"from {runner.executorch_path}" if runner.executorch_path else ""
    return ", ".join(filter(None, (runner.kind, runner.target, runner.compiler, version, path)))


def _schedule(schedule: ScheduleRecord) -> str:
    settle = f", {schedule.settle_runs} untimed runs before each" if schedule.settle_runs else ""
    why = f" ({schedule.plan})" if schedule.plan else ""
    counts = f"{schedule.launches} launches{why}, {schedule.turns} turns"
    return f"Schedule: {schedule.kind}, {counts}, seed {schedule.seed}{settle}."


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def reproduce(run: RunView) -> Section:
    manifest, model = run.manifest, run.manifest.model
    base = str(manifest.config.get("directory") or "")
    blocks: list[Block] = []
    commands: list[str] = []
    measuring = measuring_command(manifest)
    # `profile` of a model exports it, too.
    exports = "sme2-kit profile " in measuring and f"{manifest.model.stem}.pte" not in measuring
    if model.export is not None and not exports:
        words = repeated(model.export, base)
        blocks += [] if words else _not_typed(model.export)
        commands += [shlex.join(words)] if words else []
    commands += [measuring] if measuring else []
    blocks += [Paragraph(_STARTED)] if not measuring else []
    commands.append(f"sme2-kit report {shlex.quote(_place(run.directory, base))} --html")
    blocks += [Paragraph(_WHERE)] if base else []
    rows: list[Row] = [(Name(f"{manifest.model.stem}.pte"), Name(manifest.model.sha256))]
    runners = {record.runner.sha256: record.runner.kind for record in manifest.experiments.values()}
    rows += [(f"runner ({kind})", Name(digest)) for digest, kind in runners.items()]
    dumps = [(f"{name}/{file}", d) for name, r in manifest.experiments.items() for file, d in r.files.items()]
    rows += [(Name(file), Name(digest)) for file, digest in dumps if file.endswith(".etdump")]
    blocks += [Code("\n".join(commands)), Table("hashes", ("file", "SHA-256"), rows)]
    if run.sources:
        made = f"This report was made from sources {run.sources}"
        checks = Paragraph(f"{made}; the command below checks that the run is still the same.")
        blocks += [checks, Code(f"sme2-kit validate {shlex.quote(run.directory)} FILE")]
    return Section("reproduce", "How to reproduce", blocks, True, f"`{commands[0]}`")


def _not_typed(export: ExportRecord) -> list[Block]:
    """Return what to do about a model that no command line makes again."""
    asked = export.request
    if asked.origin != "memory":
        text = f"The model's settings ({asked.settings}) cannot be typed: export it from Python, with ExportRequest."
        return [Paragraph(text)]
    text = (
        f"The model ({asked.target}) was a module in the memory of a Python process, so no command line exports it "
        f"again. With the same module and example inputs (saved as {export.model}_*_inputs) it is:"
    )
    given = f"name={export.model!r}, {arguments(recorded(export, asked))}"
    code = f"export_module(module, example_inputs, {asked.outdir!r}, {given})"
    return [Paragraph(text), Code(f"from model_profiling.export.in_memory import export_module\n\n{code}")]


def measuring_command(manifest: Manifest) -> str:
    """Return the command that measured, as one would type it; empty if nobody did."""
    return str(manifest.config.get("command") or "")


def _place(directory: str, base: str) -> str:
    """Return the run directory as it must be written in `base`."""
    full = Path(directory).resolve()
    if not base or base == working_directory():
        return directory
    return str(full.relative_to(base)) if full.is_relative_to(base) else str(full)
