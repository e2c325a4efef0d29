"""What was predicted of a run, compared with what it measured: the time with a feature on from the time with it off;
and what the table of known kernels says, operator by operator, compared with kernels that were traced."""

from collections.abc import Iterator

from model_profiling.analysis.compare.comparison import ProfileComparison
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.run_forecasts import forecasts, table_coverage
from model_profiling.analysis.sme2.coverage import Coverage
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
from model_profiling.analysis.sme2.kernel_table import Cpu, TableDifference
from model_profiling.analysis.sme2.target import DEFAULT
from model_profiling.base.errors import InputError
from model_profiling.store.run_directory import ExperimentRecord
from model_profiling.upstream.libraries import MATRIX_KERNEL

# What the CPU without SME of the table of known kernels has: another one runs other kernels.
_NEON = {"dot", "i8mm", "fp16arith"}


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
    active = set(record.features.active) if record.features is not None else set()
    if "sme2" in active:
        return "sme2"
    return "sme1" if "sme" in active else "neon" if active >= _NEON else None


def _kernels(calls: list[KernelCalls]) -> str:
    return " ".join(sorted(call.kernel for call in calls if call.kernel.startswith(MATRIX_KERNEL)))
