"""How the numbers came about: what was not measured, on which machine and in which order."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.base.dtypes import dtype_of
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Cell, Name, Paragraph, Section, Table
from model_profiling.report.content import startup
from model_profiling.report.content.headline import cpu
from model_profiling.store.artifacts import ExportRecord
from model_profiling.store.run_directory import ExperimentRecord, ScheduleRecord

_HIDDEN = ("cpu", "arch", "memory_bytes", "load_1m_5m_15m")


def not_measured(run: RunView) -> Section:
    """Say what a reader might take for granted and this run does not show."""
    items = []
    for name, record in run.manifest.experiments.items():
        if record.status != "ok":
            items.append(f"{run.label(name)} failed: {record.failure or record.status}.")
    if not run.measured:
        items.append("Time: the CPU was emulated. Run on real hardware for latency, speedup and shares.")
    elif not run.summary.comparisons and run.summary.experiments:
        items.append("A speedup: no two experiments were compared.")
    items += [f"{run.labelled(note.rstrip('.'))}." for note in run.summary.notes if not _said(run, note)]
    items += [f"{run.label(n)}: {note.rstrip('.')}." for n, e in run.summary.experiments.items() for note in e.notes]
    items += [f"{run.label(n)}: {note.rstrip('.')}." for n, r in run.manifest.experiments.items() for note in r.notes]
    export = run.manifest.model.export
    if export is None:
        items.append(
            "The export: there is no export_meta.json next to the model: delegation and expected outputs are unknown."
        )
    elif "random" in export.weights:
        items.append(
            f"Accuracy: weights are {export.weights}. Latency does not depend on them; outputs are not meaningful."
        )
    if run.measured:
        items.append(
            "Anything below a microsecond inside the delegate: XNNPACK times its operators in whole microseconds."
        )
    items += startup.unknown(run)
    items.append("Power and temperature.")
    return Section("not_measured", "What was not measured", [Bullets(items)])


def _calibrated(export: ExportRecord) -> str:
    """Return what set the ranges of int8."""
    samples = export.calibration
    if samples is None:
        return "the example inputs with noise: enough for timing, not for accuracy"
    return f"{counted(samples.batches, 'batch', 'batches')} from {samples.directory}"


def _said(run: RunView, note: str) -> bool:
    """Return whether a note is said already: failures are listed first, in the manifest's words."""
    return any(note.startswith(f"{name} failed:") for name in run.manifest.experiments)


def environment(run: RunView) -> Section:
    """Return the machine, the features in force, and the order in which executions took turns."""
    values = dict(run.manifest.environment)
    rows: list[tuple[Cell, ...]] = [("CPU", cpu(run)), ("architecture", str(values.get("arch", "not known")))]
    memory, load = values.get("memory_bytes"), values.get("load_1m_5m_15m")
    if isinstance(memory, int | float):
        rows.append(("memory", f"{memory / 2**30:.1f} GiB"))
    if isinstance(load, list):
        rows.append(("load (1, 5, 15 minutes)", ", ".join(map(str, load))))
    rows += [(key.replace("_", " "), _plain(value)) for key, value in values.items() if key not in _HIDDEN]
    model = run.manifest.model
    rows.append(("model", f"{model.stem}, {model.dtype_words}, {numbers.mebibytes(model.bytes)}"))
    if model.export and model.export.channels_last:
        rows.append(("channels-last in memory", f"{', '.join(model.export.channels_last)}; all others are contiguous"))
    if model.export:
        rows += [("exported as", model.export.dtype)] if model.export.dtype != model.dtype_words else []
        rows += [("weights", model.export.weights), ("exported with", _plain(model.export.versions))]
        rows += [("calibrated on", _calibrated(model.export))] if dtype_of(model.export.dtype).calibrated else []
        kept = model.export.keep_fp32
        rows += [("kept in fp32", ", ".join(kept))] if kept else []
    rows += _known_by(run)
    blocks: list[Block] = [Table("environment", ("what", "value"), rows), _experiments(run)]
    blocks += [Paragraph(_schedule(schedule)) for schedule in run.manifest.schedules.values()]
    if run.measured:
        text = (
            "Latency is from executions without a tracer, breakdown and operators from others with one; they never mix."
        )
        blocks.append(Paragraph(text))
    return Section("environment", "Environment and method", blocks)


def _known_by(run: RunView) -> list[tuple[Cell, ...]]:
    """Return the commits that the run is of, and its labels, if it has any."""
    here, model, labels = run.manifest.revision, run.manifest.model_revision, run.manifest.labels
    rows: list[tuple[Cell, ...]] = []
    # One repository is named once, and runs of earlier versions know of the working directory alone.
    one = model.commit in ("", here.commit)
    for name, each in (("commit" if one else "commit, working directory", here), ("commit, model", model)):
        if each.commit and (each is here or not one):
            branch = f" on {each.branch}" if each.branch else ""
            rows.append((name, f"{each.commit}{branch}{', with changed files' if each.dirty else ''}"))
    if labels:
        rows.append(("labels", ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))))
    return rows


def _experiments(run: RunView) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, record in run.manifest.experiments.items():
        off = ", ".join(record.features.disabled) if record.features else ", ".join(record.disable_features)
        status = "partial" if record.partial else record.status
        called = (run.label(name), Name(name))
        rows.append(
            (*called, status, record.mode, str(record.threads), Name(off) if off else "nothing", _runner(record))
        )
    columns = ("experiment", "name in files", "status", "mode", "threads", "switched off", "runner")
    return Table("experiments", columns, rows)


def _runner(record: ExperimentRecord) -> str:
    runner = record.runner
    parts = (
        runner.kind,
        runner.target,
        runner.compiler,
        f"ExecuTorch {runner.executorch_name}" if runner.executorch else "",
        f"from {runner.executorch_path}" if runner.executorch_path else "",
    )
    return ", ".join(part for part in parts if part)


def _schedule(schedule: ScheduleRecord) -> str:
    settle = f", {schedule.settle_runs} untimed runs before each" if schedule.settle_runs else ""
    why = f" ({schedule.plan})" if schedule.plan else ""
    counts = f"{schedule.launches} launches{why}, {schedule.turns} turns"
    return f"Schedule: {schedule.kind}, {counts}, seed {schedule.seed}{settle}."


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
