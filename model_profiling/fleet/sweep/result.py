"""sweep.json: every job and every cell of a sweep, with the numbers that a portfolio is judged by."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling.analysis.compare.comparison import MetricChange
from model_profiling.analysis.compare.metrics import Metrics
from model_profiling.analysis.compare.program_changes import ProgramChanges, largest
from model_profiling.analysis.compare.runtime_comparison import read_runtimes
from model_profiling.analysis.run.dumps import AnalysisSummary, ExperimentAnalysis
from model_profiling.analysis.run.selection import changes_between, choose
from model_profiling.analysis.sme2.coverage import Coverage
from model_profiling.analysis.sme2.forecast_record import Sme2Answer
from model_profiling.analysis.timing.latency import Comparison, Verdict, compare, latency_turns
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.records import record_of
from model_profiling.fleet.sweep.jobs import Kind
from model_profiling.fleet.sweep.sweep_file import Cell
from model_profiling.gates.baseline import refuse_wrong_baseline
from model_profiling.runtimes.runtime_table import EXECUTORCH
from model_profiling.store import artifacts
from model_profiling.store.derived import current_fingerprint, read_index
from model_profiling.store.run_directory import RunDirectory, Timing
from model_profiling.store.runs import earlier_labels

_NOT_TRACED = "kernels were not traced; a cell on the emulator shows them"
_NO_OPERATORS = "the program has no CONV or GEMM operators"


class PredictedSme2(msgspec.Struct, frozen=True):
    """A prediction: the latency with SME2 as on `target`, and how many times faster SME2 makes the whole, with its
    range; None where the target's numbers give none."""

    median_ms: float | None
    speedup: float
    low: float | None
    high: float | None
    target: str


def traced_coverage(analysed: ExperimentAnalysis | None) -> tuple[float | None, str, str]:
    """Return percent, in words, and why it is not known."""
    found = analysed.coverage if analysed is not None else None
    return _share(found, found.headline if found is not None else "")


def known_coverage(name: str, summary: AnalysisSummary) -> tuple[float | None, str, str]:
    """Return the same of the table of known kernels; switching features does not change what a program has."""
    found = _answer(name, summary)
    return _share(found, f"{found.headline} (known of ExecuTorch {found.executorch})" if found is not None else "")


def _share(found: Coverage | Sme2Answer | None, words: str) -> tuple[float | None, str, str]:
    if found is None or found.on_sme2 is None:
        return None, "", (found.unknown if found is not None else "") or _NOT_TRACED
    return (found.on_sme2 / found.eligible * 100, words, "") if found.eligible else (None, "", _NO_OPERATORS)


def predicted_sme2(name: str, summary: AnalysisSummary) -> tuple[PredictedSme2 | None, str]:
    """Return what SME2 is predicted to gain, or why that is not known."""
    found = _answer(name, summary)
    if found is None:
        return None, "the run says nothing of SME2"
    forecast = found.forecast
    if forecast is None:
        return None, found.no_forecast or found.unknown or _NO_OPERATORS
    low, high = forecast.speedup_range or (None, None)
    return PredictedSme2(found.with_sme2_ms, forecast.speedups[-1], low, high, forecast.target), ""


def _answer(name: str, summary: AnalysisSummary) -> Sme2Answer | None:
    metrics = summary.metrics.experiments if summary.metrics is not None else {}
    kinds = {key: entry.phase.kind if entry.phase is not None else "" for key, entry in metrics.items()}
    alike = [found for found in summary.sme2 if kinds.get(found.experiment) == kinds.get(name)]
    return alike[0] if alike else None


RESULT = "sweep.json"
# Skipped is what needs a job that failed.
JobState = Literal["finished", "failed", "skipped", "running", "waiting", "not asked for"]
SweepStatus = Literal["complete", "partial", "failed"]
Judgement = Literal["better", "worse", "no difference", "unknown"]
_JUDGED: dict[Verdict, Judgement] = {"faster": "better", "slower": "worse", "no difference seen": "no difference"}
_EMULATED = "the CPU was emulated, and emulated time is no latency"


class JobRecord(msgspec.Struct, frozen=True):
    """One job. `seconds` is how long it took when it was last carried out, None if that is not known."""

    name: str
    kind: Kind
    state: JobState
    seconds: float | None = None
    failure: str = ""
    hint: str = ""
    # Its log, relative to this file; '' if there is none here.
    log: str = ""
    # The machine of a cluster that carried it out; '' for this one.
    node: str = ""


class PreviousComparison(msgspec.Struct, frozen=True):
    """This result held against the one that the cell had before. `ratio` is how many times faster it is now, bounded by
    `low` and `high`; without them, `reason` says why nothing is known."""

    verdict: Judgement
    # The earlier run, relative to this file, and when it was made.
    run: str = ""
    created: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    # Of what is better or worse: what the difference consists of, by line; the largest changes. None: not known.
    changes: ProgramChanges | None = None


class Speedup(msgspec.Struct, frozen=True):
    """How many times faster `experiment` is than `baseline`, which runs without the accelerator."""

    baseline: str
    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    # Whether other work kept taking the processor away.
    contended: bool = False


class CellResult(msgspec.Struct, frozen=True):
    """What a run says of one experiment: the accelerated one; of a language model one for each phase.

    What is None is not known, and `unknown` says why, by field.
    """

    experiment: str
    phase: str = ""
    median_ms: float | None = None
    mad_percent: float | None = None
    token_per_sec: float | None = None
    speedup: Speedup | None = None
    # Of CONV and GEMM operators those on SME2, in percent of them, and in words.
    sme2_coverage_percent: float | None = None
    sme2_coverage: str = ""
    data_movement_percent: float | None = None
    startup_ms: float | None = None
    startup_low_ms: float | None = None
    startup_high_ms: float | None = None
    peak_bytes: int | None = None
    against: PreviousComparison | None = None
    warnings: list[str] = []
    unknown: dict[str, str] = {}
    # The baseline of the speedup: the same program without the accelerator.
    off_ms: float | None = None
    off_mad_percent: float | None = None
    predicted: PredictedSme2 | None = None


class RuntimeResult(msgspec.Struct, frozen=True):
    """The model of a cell in another runtime: `ratio` is how many times as fast as ExecuTorch it is, measured in turns,
    bounded by `low` and `high`. Without a ratio, `reason` says why."""

    runtime: str
    label: str
    median_ms: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Literal[Verdict, "unknown"] = "unknown"
    startup_ms: float | None = None
    peak_bytes: int | None = None
    reason: str = ""


class CellRecord(msgspec.Struct, frozen=True):
    """One cell. `run` and `report` are relative to this file, '' where there is none."""

    name: str
    model: str
    dtype: str
    rewrites: list[str]
    threads: int
    target: str
    timing: Timing
    state: JobState
    run: str = ""
    report: str = ""
    results: list[CellResult] = []
    # Why there is no result.
    failure: str = ""
    # Other runtimes that were asked for.
    runtimes: list[RuntimeResult] = []
    # What the sweep's metric says of the program, and of eager PyTorch; None: not asked for, or not known.
    metric: MetricChange | None = None


class SweepResult(msgspec.Struct, frozen=True, tag="sweep", tag_field="kind"):
    """`status` is complete when all jobs are finished, failed when one failed and no other is left to do. `round` says
    how often the sweep was begun anew (--fresh), the first time included."""

    name: str
    kit_version: str
    created: str
    updated: str
    status: SweepStatus
    targets: list[str]
    jobs: list[JobRecord]
    cells: list[CellRecord]
    labels: dict[str, str] = {}
    round: int = 1
    schema: int = 1
    # What is to be known of the machines that carried jobs out in the last call, such as a cluster without a token.
    notes: list[str] = []


def cell_record(cell: Cell, home: Path, directory: Path, state: JobState, failure: str) -> CellRecord:
    """Return what is known of a cell: its numbers where its run is finished, else why there are none."""
    results: list[CellResult] = []
    if state == "finished":
        try:
            results = read_results(directory, home)
        except KitError as error:
            state, failure = "failed", error.message
    page = directory / artifacts.REPORT_PAGE
    finished = state == "finished"
    return record_of(
        CellRecord,
        cell.variant,
        cell,
        cell.target,
        name=cell.name,
        rewrites=list(cell.variant.rewrites),
        target=cell.target.label,
        state=state,
        run=relative(directory, home) if finished else "",
        report=relative(page, home) if finished and page.is_file() else "",
        results=results,
        failure=failure,
        runtimes=_runtimes(directory) if finished else [],
    )


def _runtimes(directory: Path) -> list[RuntimeResult]:
    """Return the other runtimes that a run was measured beside; none if it was not, or of another program."""
    path = directory / artifacts.RUNTIMES
    if not files.is_file(path):
        return []
    try:
        found = read_runtimes(path)
        if found.pte_sha256 != RunDirectory(directory).manifest().model.sha256:
            return []
    except KitError:
        return []
    others = (row for row in found.rows if row.name != found.baseline and row.runtime != EXECUTORCH)
    return [
        record_of(
            RuntimeResult,
            row,
            row.comparison,
            row.latency,
            low=_low(row.comparison) if row.comparison is not None else None,
            startup_ms=row.startup.median_ms if row.startup is not None else None,
            reason=row.reason or ("" if row.comparison else "its outputs differ, or could not be compared"),
        )
        for row in others
    ]


def _low(found: Comparison) -> float | None:
    return found.low if found.high is not None else None


def relative(path: Path, home: Path) -> str:
    return Path(os.path.relpath(path, home)).as_posix()


def read_results(directory: Path, home: Path) -> list[CellResult]:
    """Return the numbers of a finished run, from the files that it wrote."""
    summary = _summary(directory)
    if summary.metrics is None:
        raise InputError(f"{directory} has no metrics", "Make them again: sme2-kit analyze")
    metrics, judged = summary.metrics, _Earlier(directory, home)
    if summary.timing == "emulated":
        phases: dict[str, list[str]] = {}
        for name in metrics.experiments:
            phases.setdefault(_phase(metrics, name), []).append(name)
        return [_emulated(summary, metrics, names) for names in phases.values()]
    compared = {comparison.after: comparison for comparison in metrics.comparisons}
    names = list(compared) or list(metrics.experiments)
    return [_measured(name, summary, metrics, compared.get(name), judged) for name in names]


def _summary(directory: Path) -> AnalysisSummary:
    """Return the analysis of a run; made now where there is none of its state, as of a run from elsewhere."""
    path, run = directory / artifacts.ANALYSIS_SUMMARY, RunDirectory(directory)
    try:
        found = files.read_json(path, AnalysisSummary, "analysis summary")
        if found.sources == current_fingerprint(run, read_index(run)):
            return found
    except InputError:
        pass
    from model_profiling.analysis.run.run_view import RunView
    from model_profiling.report.files import artifact_files

    opened = RunView.open(directory)
    artifact_files.save(opened)
    return opened.summary


def _emulated(summary: AnalysisSummary, metrics: Metrics, names: Sequence[str]) -> CellResult:
    """Return, of the emulated levels, the one that uses SME2 most; no time of it means anything."""

    def on_sme2(name: str) -> int:
        analysed = summary.experiments.get(name)
        return (analysed.coverage.on_sme2 or 0) if analysed is not None and analysed.coverage is not None else -1

    name = max(names, key=on_sme2)
    unknown = dict.fromkeys(("median_ms", "speedup", "data_movement_percent", "startup_ms"), _EMULATED)
    unknown["peak_bytes"] = "an emulator's memory is not that of its guest"
    percent, words, why = traced_coverage(summary.experiments.get(name))
    return CellResult(
        name,
        _phase(metrics, name),
        sme2_coverage_percent=percent,
        sme2_coverage=words,
        unknown=unknown | ({"sme2_coverage_percent": why} if why else {}),
    )


def _phase(metrics: Metrics, name: str) -> str:
    phase = metrics.experiments[name].phase
    return phase.label if phase is not None else ""


def _measured(
    name: str, summary: AnalysisSummary, metrics: Metrics, compared: Comparison | None, judged: "_Earlier"
) -> CellResult:
    measured, analysed = metrics.experiments[name], summary.experiments.get(name)
    unknown: dict[str, str] = {}
    if measured.latency is None:
        unknown["median_ms"] = "the experiment has no latency"
    if compared is None:
        unknown["speedup"] = "this CPU has no accelerator for the dtype that can be switched off"
    elif compared.high is None:
        unknown["speedup"] = f"{compared.turns} turns are too few for an interval"
    percent, words, why = known_coverage(name, summary) if summary.sme2 else traced_coverage(analysed)
    if why:
        unknown["sme2_coverage_percent"] = why
    predicted, why = predicted_sme2(name, summary)
    if why:
        unknown["predicted"] = why
    if analysed is None:
        unknown["data_movement_percent"] = "the run has no traced executions"
    if measured.startup is None:
        unknown["startup_ms"] = measured.startup_unknown
    if measured.memory is None:
        unknown["peak_bytes"] = measured.memory_unknown
    start = measured.startup.first_result if measured.startup is not None else None
    off = metrics.experiments[compared.before].latency if compared is not None else None
    return record_of(
        CellResult,
        measured.latency,
        measured.phase,
        measured.memory,
        experiment=name,
        phase=_phase(metrics, name),
        speedup=record_of(Speedup, compared, baseline=compared.before, low=_low(compared)) if compared else None,
        sme2_coverage_percent=percent,
        sme2_coverage=words,
        data_movement_percent=None if analysed is None else analysed.breakdown.category("Data Movement").share * 100,
        startup_ms=start.median_ms if start is not None else None,
        startup_low_ms=start.low_ms if start is not None else None,
        startup_high_ms=start.high_ms if start is not None else None,
        against=judged.against(name),
        unknown=unknown,
        off_ms=off.median_ms if off is not None else None,
        off_mad_percent=off.mad_percent if off is not None else None,
        predicted=predicted,
    )


class _Earlier:
    """The run that a cell had before the one that is there, and how the two compare."""

    def __init__(self, directory: Path, home: Path) -> None:
        self._now = directory
        self._home = home
        labels = earlier_labels(directory)
        self._before = directory / artifacts.EARLIER / labels[-1] if labels else None

    def against(self, name: str) -> PreviousComparison | None:
        """Return None where the cell has only this result."""
        if self._before is None:
            return None
        place = relative(self._before, self._home)
        try:
            # Refuses a run of another program's name, machine or setting, and a damaged one.
            refuse_wrong_baseline(f"{self._before}:{name}", f"{self._now}:{name}", any_baseline=False)
            created, found = self._compared(self._before, name)
        except KitError as error:
            return PreviousComparison("unknown", place, reason=error.message)
        if found.high is None:
            return PreviousComparison(
                "unknown", place, created, found.ratio, reason=f"{found.turns} turns are too few to judge"
            )
        bounds = (found.ratio, found.low, found.high)
        if found.contended:
            return PreviousComparison("unknown", place, created, *bounds, reason="measured on a busy machine")
        verdict = _JUDGED[found.verdict]
        changes = self._changes(name) if verdict in ("better", "worse") else None
        return PreviousComparison(verdict, place, created, *bounds, changes=changes)

    def _changes(self, name: str) -> ProgramChanges | None:
        """Return which lines changed most; None where one of the runs was not traced, or its dump is damaged."""
        try:
            before, now = (choose(f"{run}:{name}")[name] for run in (self._before, self._now))
            return largest(changes_between(replace(before, name="before"), replace(now, name="now")))
        except KitError:
            return None

    def _compared(self, before: Path, name: str) -> tuple[str, Comparison]:
        sides, created = [], ""
        for directory in (RunDirectory(before), RunDirectory(self._now)):
            manifest = directory.manifest()
            created = created or manifest.created
            record = manifest.experiments.get(name)
            if record is None or record.status != "ok":
                raise InputError(f"{directory.path} has no finished experiment {name!r}", "Measure it again.")
            turns = latency_turns(record, directory.samples(manifest, name))
            if not turns:
                raise InputError(f"{directory.path} has no latency of {name!r}", "Measure it again.")
            sides.append((name, turns))
        return created, compare(sides[0], sides[1], paired=False)
