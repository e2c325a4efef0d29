"""A run with a feature on and off: what was predicted of "on" from "off", held against what was measured."""

from model_profiling.analysis.compare.comparison import ProfileComparison
from model_profiling.analysis.roofs.roof_rates import Roofs
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.run_forecasts import forecasts
from model_profiling.analysis.sme2.forecast_validation import (
    SHORTEST_MS,
    HeldGain,
    HeldModel,
    HeldOperator,
    distance,
    hold,
)
from model_profiling.analysis.sme2.gains import Switch, predicted_ms
from model_profiling.analysis.sme2.target import DEFAULT
from model_profiling.base.errors import InputError


def held_model(run: RunData, roofs: Roofs, model: str) -> HeldModel:
    """Hold what roofs predict of a run, as a whole and of each CONV and GEMM operator, against what it measured."""
    pair, switch = _switched(run, roofs)
    off, on = (run.summary.experiments[name].breakdown for name in (pair.before, pair.after))
    records = [run.manifest.experiments[name] for name in (pair.before, pair.after)]
    gains = switch.gains(off)
    whole = hold(off.execute_ms, predicted_ms(off, gains), on.execute_ms, pair.execute.low, pair.execute.high)
    operators, short = [], 0
    for entry in pair.operators:
        if entry.category not in ("CONV", "GEMM") or entry.before_row is None or entry.after_row is None:
            continue
        before, after, gain = off.instances[entry.before_row], on.instances[entry.after_row], gains[entry.before_row]
        if after.ms < SHORTEST_MS:
            short += 1
            continue
        time = hold(before.ms, before.ms / gain.times, after.ms, entry.change.low, entry.change.high)
        size = before.work.size if before.work is not None else ""
        operators.append(HeldOperator(before.name, before.category, before.kind, size, gain.why, time))
    latencies = run.metrics.experiments[pair.after].latency, run.metrics.experiments[pair.before].latency
    return HeldModel(
        model=model,
        dtype=run.summary.dtype,
        # What was asked for: other features build on it and go with it.
        switched=sorted({*records[0].disable_features} - {*records[1].disable_features}) or switch.switched,
        threads=records[1].threads,
        time=whole,
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


def held_gain(run: RunData, target: str = DEFAULT) -> HeldGain:
    """Hold what a target says that SME2 gains, as every run is told it, against a run with SME2 off and on."""
    pair = run.summary.comparisons[0]
    forecast = next(found for found in forecasts(run, target=target) if found.experiment == pair.before)
    gain, change = forecast.speedups[-1], pair.execute
    low, high = forecast.speedup_range or (gain, gain)
    bounded = change.low is not None and change.high is not None
    return HeldGain(
        target=target,
        predicted=gain,
        predicted_low=low,
        predicted_high=high,
        measured=change.before_ms / change.after_ms,
        measured_low=change.low,
        measured_high=change.high,
        outside=distance(gain, change.low, change.high) if bounded and change.low and change.high else None,
    )
