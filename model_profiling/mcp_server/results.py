"""From what a command prints to what a tool answers: the part an assistant acts on, with paths of the workspace."""

from collections.abc import Iterable

import msgspec

from model_profiling.analysis.accuracy.numerics import Layer, Numerics, Trial, side
from model_profiling.analysis.advice.finding import Advice
from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.movement.layout_reasons import LayoutReasons, MoveGroup
from model_profiling.analysis.roofs.group_work import compute_of_roof, roofs_by_row
from model_profiling.analysis.run.dumps import AnalysisSummary, ExperimentAnalysis
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.mcp_server import answers
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.report.kernel_view import Kernels
from model_profiling.store.artifacts import Delegation, ExportRecord, UndelegatedOperator

_MOST_PLACES = 5
_MOST_CHANGES = 5
_WORST = 10


class PrintedExport(msgspec.Struct, frozen=True):
    """What `export --json` prints."""

    paths: dict[str, str]
    record: ExportRecord


class PrintedCheck(msgspec.Struct, frozen=True):
    """What `check --json` prints."""

    delegation: Delegation
    layout: LayoutReasons
    warnings: list[str]
    missing_operators: list[UndelegatedOperator] | None = None


def export_answer(workspace: Workspace, printed: PrintedExport) -> answers.ExportAnswer:
    record = printed.record
    return answers.ExportAnswer(
        pte=workspace.relative(printed.paths["pte"]),
        etrecord=workspace.relative(printed.paths["etrecord"]),
        model=record.model,
        dtype=record.dtype,
        rewrites=record.request.rewrites if record.request else [],
        memory_format=record.memory_format,
        io_layout=record.io_layout,
        inputs=[answers.Signature(entry.shape, entry.dtype, entry.layout) for entry in record.inputs],
        outputs=[answers.Signature(entry.shape, entry.dtype, entry.layout) for entry in record.outputs],
        weights=record.weights,
        delegation=record.delegation,
        # A rewrite that finds nothing is recorded with no line.
        applicable_rewrites=None
        if record.rewrites is None
        else {name: [workspace.place(line) for line in lines] for name, lines in record.rewrites.items() if lines},
        warnings=record.warnings,
        seconds=round(sum(record.stage_seconds.values()), 1),
        verified=str(record.verification or ""),
        auto=record.auto,
    )


def check_answer(workspace: Workspace, model: str, dtype: str, printed: PrintedCheck) -> answers.CheckAnswer:
    delegation = printed.delegation
    left = _left_portable(workspace, delegation.not_delegated)
    counts = (delegation.delegated_nodes, delegation.portable_nodes, delegation.delegate_calls)
    layout = printed.layout
    moved = (_moves(workspace, layout.transposes), _moves(workspace, layout.copies))
    absent = printed.missing_operators
    missing = None if absent is None else _left_portable(workspace, absent)
    return answers.CheckAnswer(
        model, dtype, *counts, left, *moved, layout.removable, printed.warnings, layout.note, missing
    )


def _moves(workspace: Workspace, groups: list[MoveGroup]) -> list[MoveGroup]:
    return [msgspec.structs.replace(group, lines=_distinct(map(workspace.place, group.lines))) for group in groups]


def _left_portable(workspace: Workspace, operators: list[UndelegatedOperator]) -> list[answers.LeftPortable]:
    return [
        answers.LeftPortable(each.op, each.count, each.reason, _distinct(map(workspace.place, each.sources)))
        for each in operators
    ]


def _distinct(places: Iterable[str]) -> list[str]:
    return [place for place in dict.fromkeys(places) if place][:_MOST_PLACES]


def run_answer(run_dir: str, summary: AnalysisSummary) -> answers.RunAnswer:
    metrics = summary.metrics or Metrics(summary.model, summary.platform, {}, [], [])
    told = msgspec.structs.asdict(metrics)
    return answers.RunAnswer(**told, run_dir=run_dir, timing=summary.timing, notes=summary.notes)


def analysis_answer(
    workspace: Workspace, summary: AnalysisSummary, most: int, summary_file: str = ""
) -> answers.AnalysisAnswer:
    return answers.AnalysisAnswer(
        model=summary.model,
        platform=summary.platform,
        timing=summary.timing,
        experiments={name: _experiment(workspace, entry, most) for name, entry in summary.experiments.items()},
        shifts=[
            answers.NamedShift(
                **msgspec.structs.asdict(entry.shift), before_experiment=entry.before, after_experiment=entry.after
            )
            for entry in summary.comparisons
        ],
        comparisons=summary.metrics.comparisons if summary.metrics else [],
        notes=summary.notes,
        summary_file=summary_file,
        operator_scaling=[
            msgspec.structs.replace(curve, operators=curve.operators[:most]) for curve in summary.operator_scaling
        ],
        sme2=[
            msgspec.structs.replace(found, forecast=found.forecast and forecast(found.forecast, most))
            for found in summary.sme2
        ],
    )


def _experiment(workspace: Workspace, entry: ExperimentAnalysis, most: int) -> answers.AnalysedExperiment:
    breakdown, lines = entry.breakdown, _lines(workspace, entry.breakdown)
    return answers.AnalysedExperiment(
        execute_ms=breakdown.execute_ms,
        categories=breakdown.categories,
        operators=breakdown.operators[:most],
        operators_left_out=max(0, len(breakdown.operators) - most),
        lines=lines[:most],
        lines_left_out=max(0, len(lines) - most),
        advice=[Advice(**{name: getattr(each, name) for name in Advice.__struct_fields__}) for each in entry.advice],
        notes=entry.notes,
        headroom_ms=entry.roofline.headroom_ms if entry.roofline else None,
        of_roof={str(name): value for name, value in compute_of_roof(breakdown, roofs_by_row(entry.roofline)).items()},
    )


def _lines(workspace: Workspace, breakdown: Breakdown) -> list[answers.HotLine]:
    """Return the model's lines, costliest first; operators whose line is not known are in none; no times, no lines."""
    if not breakdown.execute_ms:
        return []
    rows: dict[tuple[str, int], list[int]] = {}
    for row, entry in enumerate(breakdown.instances):
        if entry.source is not None and entry.source.file:
            rows.setdefault((entry.source.file, entry.source.line), []).append(row)
    found = []
    for (file, line), members in rows.items():
        entries = [breakdown.instances[row] for row in members]
        source = entries[0].source
        assert source is not None
        ms = sum(entry.ms for entry in entries)
        share = ms / breakdown.execute_ms
        operators = list(dict.fromkeys(entry.operator for entry in entries))
        found.append(answers.HotLine(workspace.relative(file), line, source.code, source.module, ms, share, operators))
    return sorted(found, key=lambda line: -line.ms)


def compared_pair(entry: PairComparison) -> answers.ComparedPair:
    return answers.ComparedPair(
        **msgspec.structs.asdict(entry.latency),
        categories=entry.profile.categories,
        shift=entry.profile.shift.sentence,
        startup=entry.startup,
        memory=entry.memory,
        outputs=entry.outputs,
        kernels=entry.kernels,
        changes=entry.changes.different[:_MOST_CHANGES] if entry.changes is not None else [],
        change_notes=entry.changes.notes if entry.changes is not None else [],
    )


def forecast(entry: Forecast, most: int) -> Forecast:
    return msgspec.structs.replace(entry, left=entry.left[:most], operators=entry.operators[:most])


def kernels(run_dir: str, data: Kernels) -> answers.KernelsAnswer:
    coverage = {name: experiment.coverage for name, experiment in data.experiments.items()}
    unknown = next((entry.unknown for entry in coverage.values() if entry.unknown), "")
    return answers.KernelsAnswer(run_dir, data.model, data.timing, unknown, coverage)


def layer_errors(found: Numerics) -> answers.LayerErrors:
    wrong = {alarm.layer.index: alarm.sentence for alarm in found.alarms}
    ranked = found.worst[:_WORST]
    return answers.LayerErrors(
        found.model,
        found.dtype,
        len(found.layers),
        {variant.title: variant.outputs.sqnr_db for variant in found.variants},
        [_layer_error(found, alarm.layer, alarm.sentence) for alarm in found.alarms[:_WORST]],
        [_layer_error(found, layer, wrong.get(layer.index, "")) for layer in ranked],
        found.left_out,
        None if found.trials is None else [_remedy(found, trial) for trial in found.trials],
    )


def _remedy(found: Numerics, trial: Trial) -> answers.RemedyTrial:
    titles = {variant.name: variant.title for variant in found.variants}
    outputs = {titles[name]: gap.sqnr_db for name, gap in trial.outputs.items() if name in titles}
    return answers.RemedyTrial([*found.kept, *trial.keep], trial.helps, outputs, trial.failure)


def _layer_error(found: Numerics, layer: Layer, alarm: str) -> answers.LayerError:
    own = side(found, layer)
    alone = own.alone.sqnr_db if own.alone is not None else None
    return answers.LayerError(
        layer.place, layer.operator, layer.source, alarm, alone, own.added.sqnr_db, own.error.sqnr_db, layer.keep
    )
