"""The forecasts of a run: which of its experiments ran without SME2, and what tells which operators SME2 takes.

And what was predicted of a run, compared with what it measured: its times, and kernels that were traced."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from model_profiling.analysis.compare.comparison import ProfileComparison
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.sme2.core_prices import core_prices, on_core, unpriced
from model_profiling.analysis.sme2.coverage import Coverage, known_coverage
from model_profiling.analysis.sme2.forecast_record import Evidence, Forecast
from model_profiling.analysis.sme2.forecast_validation import (
    SHORTEST_MS,
    ValidatedGain,
    ValidatedModel,
    ValidatedOperator,
    check_prediction,
    distance,
)
from model_profiling.analysis.sme2.gains import Switch
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE, KernelCalls
from model_profiling.analysis.sme2.kernel_table import Cpu, TableDifference, known_table, why_no_table
from model_profiling.analysis.sme2.sme2_forecast import Sides, as_programmed, assumed_forecast, derived_forecast
from model_profiling.analysis.sme2.target import DEFAULT, AnyTarget, kit_targets, read_target
from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import ExperimentRecord, ModelRecord
from model_profiling.upstream.libraries import MATRIX_KERNEL

# What the CPU without SME of the table of known kernels has: another one runs other kernels.
_NEON = {"dot", "i8mm", "fp16arith"}


class Sme2Use(NamedTuple):
    """Which operators of an experiment SME2 takes, how that is known, and the program of which it is known."""

    experiment: str
    coverage: Coverage
    evidence: Evidence
    program: ModelRecord


class TargetForecast(msgspec.Struct, frozen=True):
    """What is predicted for one target; or why nothing is known."""

    target: str
    cpu: str
    forecasts: list[Forecast]
    why_not: str = ""


def forecasts(
    measured: RunData, emulated: RunData | None = None, speedups: tuple[float, ...] = (), target: str | Path = DEFAULT
) -> list[Forecast]:
    """Return a forecast for runs without SME2 and with all else on, for a target unless speedups are assumed.

    Which operators SME2 takes is in the table of known kernels, unless an emulated run of the model is given.
    """
    speedups = tuple(sorted(speedups))
    for value in speedups:
        if not 1 <= value < float("inf"):
            raise InputError(f"--speedup must be 1 or more, not {value:g}", "For example --speedup 3.")
    names, chosen = without_sme2(measured), None if speedups else read_target(target)
    cpu = chosen.level if chosen is not None else "sme2"
    return [predict(measured, sme2_use(measured, name, emulated, cpu), chosen, speedups) for name in names]


def predict(measured: RunData, use: Sme2Use, target: AnyTarget | None, speedups: tuple[float, ...] = ()) -> Forecast:
    """Return the forecast of one experiment, for a target unless speedups are assumed."""
    record, model = measured.manifest.experiments[use.experiment], measured.manifest.model
    notes = []
    if model.sha256 != use.program.sha256:
        names = f"times are of {model.stem}, kernels of {use.program.stem}"
        notes.append(f"{names}: another .pte with the same operators")
    if use.coverage.unknown:
        raise InputError(
            f"which operators of {measured.summary.model} SME2 would run is unknown: {use.coverage.unknown}",
            "Show it under an emulator (sme2-kit kernels MODEL.pte), and give that run, too.",
        )
    breakdown, arch = measured.summary.experiments[use.experiment].breakdown, measured.manifest.environment.get("arch")
    sides = _sides(breakdown, use.coverage, record, arch == "aarch64", target, notes, use.evidence)
    return assumed_forecast(sides, speedups) if target is None else derived_forecast(sides, target, record)


def _sides(
    breakdown: Breakdown,
    covered: Coverage,
    record: ExperimentRecord,
    is_arm: bool,
    target: AnyTarget | None,
    said: Sequence[str] = (),
    evidence: Evidence = "table",
) -> Sides:
    """Return the times that a forecast begins with: of this CPU if it is an Arm, else as an Arm core has them."""
    # A share of the time on a CPU that is not Arm is not its share on one that is.
    core, notes = None if is_arm else core_prices(), [*said]
    if core is not None or target is not None:
        breakdown = as_programmed(breakdown)
    if core is not None:
        modelled = f"modelled from the program by the prices of an {core.cpu}"
        notes.append(f"{modelled}: no time of this CPU, which is not Arm, is in it")
        notes += [f"what {name} takes is not known: left out" for name in unpriced(breakdown)]
        breakdown = on_core(breakdown, core, record.threads)
    cpu = target.level if target is not None else "sme2"
    return Sides(record.name, breakdown, covered, notes, evidence, core, cpu)


def program_outlook(
    breakdown: Breakdown, record: ExperimentRecord, model: Path, dtype: str, is_arm: bool
) -> tuple[Coverage, Forecast | None]:
    """Return what SME2 would do for a program that was traced alone: its operators with kernels, and what they gain on
    the usual target; None where nothing can be predicted, or where SME2 was on."""
    covered = _by_table(breakdown, record, model, dtype)
    if covered.unknown or {"sme", "sme2"} & (_active(record) or set()):
        return covered, None
    target = read_target(DEFAULT)
    try:
        return covered, derived_forecast(_sides(breakdown, covered, record, is_arm, target), target, record)
    except InputError:
        return covered, None


def forecast_targets(measured: RunData, emulated: RunData | None = None) -> list[TargetForecast]:
    """Return what is predicted for every target that comes with the kit, or why nothing can be."""
    without_sme2(measured)
    found = []
    for target in kit_targets():
        try:
            predicted, why = forecasts(measured, emulated, target=target.name), ""
        except InputError as error:
            predicted, why = [], error.message
        found.append(TargetForecast(target.name, target.cpu, predicted, why))
    return found


def without_sme2(measured: RunData) -> list[str]:
    """Return the timed experiments without SME2 and with all else on: what is switched off on purpose, beside SME2,
    would not be off with SME2."""
    manifest, summary = measured.manifest, measured.summary
    if manifest.timing != "measured":
        raise InputError(
            f"the run ({summary.model} on {summary.platform}) is emulated and has no times",
            "Give a measured run first, then the emulated one.",
        )
    if measured.wrong:
        raise InputError(
            f"the outputs of {summary.model} are not those of the eager model: nothing is predicted of it",
            f"See which operator it is: sme2-kit numerics {manifest.model.path}",
        )
    timed = {name: r for name, r in manifest.experiments.items() if r.status == "ok" and r.mode != "trace"}
    # Without SME2 alone, XNNPACK runs kernels of SME.
    without = {
        name: record
        for name, record in timed.items()
        if (active := _active(record)) is not None and not {"sme", "sme2"} & active
    }
    least = min((len(record.disable_features) for record in without.values()), default=0)
    names = [name for name, record in without.items() if len(record.disable_features) == least]
    if not names:
        raise InputError(
            "no experiment of the run is known to have run without SME2",
            "Where SME2 was on and off, compare those; a runner of your own does not say what was on.",
        )
    return names


def sme2_use(measured: RunData, name: str, emulated: RunData | None = None, cpu: Cpu = "sme2") -> Sme2Use:
    """Return which operators of an experiment SME2 runs, or would run, and how that is known."""
    if emulated is not None:
        # Of a language model each phase has kernels of its own, whatever the number of tokens.
        covered = _traced_coverage(emulated, measured.manifest.experiments[name].phase_kind)
        evidence: Evidence = "emulated" if emulated.manifest.timing == "emulated" else "traced"
        return Sme2Use(name, covered, evidence, emulated.manifest.model)
    return Sme2Use(name, table_coverage(measured, name, cpu), "table", measured.manifest.model)


def table_coverage(run: RunData, name: str, cpu: Cpu = "sme2") -> Coverage:
    """Return what the table of known kernels says of an experiment's operators; unknown if its .pte has changed."""
    record, model = run.manifest.experiments[name], run.manifest.model
    return _by_table(run.summary.experiments[name].breakdown, record, model.file(), model.dtype, cpu)


def _by_table(
    breakdown: Breakdown, record: ExperimentRecord, model: Path | None, dtype: str, cpu: Cpu = "sme2"
) -> Coverage:
    executorch = record.runner.executorch_name
    try:
        table = known_table(executorch)
        why = "" if table is not None else why_no_table(executorch)
    except InputError as error:
        table, why = None, error.message
    method = record.method or "forward"
    return known_coverage(breakdown.instances, table or why, model, dtype, method, record.tokens_read, cpu)


def _active(record: ExperimentRecord) -> set[str] | None:
    """Return the features that were on; None if a runner does not say."""
    return {*record.features.active} if record.features is not None else None


def _traced_coverage(emulated: RunData, phase: str) -> Coverage:
    """Return the coverage of the emulated experiment that uses SME2 most, of those in a phase; '' is of no phase."""
    summary, records = emulated.summary, emulated.manifest.experiments
    found = {n: x.coverage for n, x in summary.experiments.items() if x.coverage and records[n].phase_kind == phase}
    if phase and not found:
        raise InputError(
            f"no experiment of the second run ({summary.model} on {summary.platform}) is of the phase {phase}",
            "Make it with: sme2-kit kernels MODEL.pte",
        )
    traced = list(found.values())
    covered = [coverage for coverage in traced if coverage.on_sme2]
    if not covered:
        # A model none of whose operators has an SME2 kernel gains nothing, which is the answer.
        covered = [c for name, c in found.items() if "sme2" in (_active(records[name]) or ()) and c.on_sme2 is not None]
    unknown = next((coverage.unknown for coverage in traced if coverage.unknown), "")
    if unknown and not covered:
        raise InputError(
            f"which operators of {summary.model} run on SME2 is unknown: {unknown}",
            "Trace them again, into another directory: sme2-kit kernels MODEL.pte --out DIR",
        )
    if not covered:
        raise InputError(
            f"no experiment of the second run ({summary.model} on {summary.platform}) had SME2 and traced its kernels",
            "Make it with: sme2-kit kernels MODEL.pte",
        )
    return max(covered, key=lambda coverage: coverage.on_sme2 or 0)


def validated_model(run: RunData, roofs: Roofs, model: str) -> ValidatedModel:
    """Compare what roofs predict of a run, as a whole and of each CONV and GEMM operator, with what it measured."""
    pair, switch = _switched(run, roofs)
    off, on = (run.summary.experiments[name].breakdown for name in (pair.before, pair.after))
    records = [run.manifest.experiments[name] for name in (pair.before, pair.after)]
    gains = switch.gains(off)
    predicted, whole = sum(x.ms / gain.times for x, gain in zip(off.instances, gains, strict=True)), pair.execute
    operators, short = [], 0
    for entry in pair.operators:
        if entry.category not in ELIGIBLE or entry.before_row is None or entry.after_row is None:
            continue
        before, after, gain = off.instances[entry.before_row], on.instances[entry.after_row], gains[entry.before_row]
        if after.ms < SHORTEST_MS:
            short += 1
            continue
        time = check_prediction(before.ms, before.ms / gain.times, after.ms, entry.change.low, entry.change.high)
        size = before.work.size if before.work is not None else ""
        operators.append(ValidatedOperator(before.name, before.category, before.kind, size, gain.why, time))
    latencies = run.metrics.experiments[pair.after].latency, run.metrics.experiments[pair.before].latency
    return ValidatedModel(
        model=model,
        dtype=run.summary.dtype,
        # What was asked for: other features build on it and go with it.
        switched=sorted({*records[0].disable_features} - {*records[1].disable_features}) or switch.switched,
        threads=records[1].threads,
        time=check_prediction(off.execute_ms, predicted, on.execute_ms, whole.low, whole.high),
        operators=operators,
        not_timed=short,
        warnings=list(dict.fromkeys(words for latency in latencies if latency for words in latency.warnings)),
    )


def _switched(run: RunData, roofs: Roofs) -> tuple[ProfileComparison, Switch]:
    """Return the first pair of experiments that was compared, and the roofs with the features of both."""
    if not run.summary.comparisons:
        raise InputError("nothing was switched: there is one experiment", "Use another dtype (sme2-kit doctor).")
    pair = run.summary.comparisons[0]
    measured = []
    for record in (run.manifest.experiments[name] for name in (pair.before, pair.after)):
        active = record.features.active if record.features else []
        found = roofs.measurement(run.summary.dtype, active, record.threads)
        if found is None:
            raise InputError(
                f"the roofs were not measured in {run.summary.dtype} with the features of this run",
                "Measure them again: sme2-kit validate-forecast --force.",
            )
        measured.append(found)
    return pair, Switch(*measured)


def validated_gain(run: RunData, target: str = DEFAULT) -> ValidatedGain:
    """Compare what a target says that SME2 gains, as every run is told it, with a run with SME2 off and on."""
    pair = run.summary.comparisons[0]
    forecast = next(found for found in forecasts(run, target=target) if found.experiment == pair.before)
    gain, change = forecast.speedups[-1], pair.execute
    low, high = forecast.speedup_range or (gain, gain)
    return ValidatedGain(
        target=target,
        predicted=gain,
        predicted_low=low,
        predicted_high=high,
        measured=change.before_ms / change.after_ms,
        measured_low=change.low,
        measured_high=change.high,
        outside=distance(gain, change.low, change.high) if change.low and change.high else None,
    )


def traced_operators(run: RunData) -> int:
    """Return how many CONV and GEMM operators of a run have kernels that the table can be held against."""
    return sum(len(coverage.operators) for _, _, coverage in _traced(run))


def table_differences(run: RunData) -> list[TableDifference]:
    """Return the CONV and GEMM operators of a traced run of which the table says something else, or nothing.

    None: the table names the traced kernel of every operator.
    """
    found = []
    for name, cpu, traced in _traced(run):
        known = table_coverage(run, name, cpu)
        executorch = run.manifest.experiments[name].runner.executorch_name
        for ours, theirs in zip(known.operators, traced.operators, strict=True):
            says, ran = _kernels(ours.kernels), _kernels(theirs.kernels)
            if ours.level == "unknown":
                why = (ours.name, ours.instruction, ran or theirs.level, "unknown")
                found.append(TableDifference(*why, "unknown", ours.why_not))
            elif (ours.level, says) != (theirs.level, ran):
                sides = (ours.name, ours.instruction, ran or theirs.level, says or ours.level)
                found.append(TableDifference(*sides, "differs", f"{cpu} of ExecuTorch {executorch}"))
    return found


def _traced(run: RunData) -> Iterator[tuple[str, Cpu, Coverage]]:
    for name, experiment in run.summary.experiments.items():
        cpu, coverage = _cpu(run.manifest.experiments[name]), experiment.coverage
        if cpu is not None and coverage is not None and not coverage.unknown:
            yield name, cpu, coverage


def _cpu(record: ExperimentRecord) -> Cpu | None:
    active = _active(record) or set()
    if "sme2" in active:
        return "sme2"
    return "sme1" if "sme" in active else "neon" if active >= _NEON else None


def _kernels(calls: list[KernelCalls]) -> str:
    return " ".join(sorted(call.kernel for call in calls if call.kernel.startswith(MATRIX_KERNEL)))
