"""What SME2 does for a model, or would do: which operators have a kernel, what is predicted, which get none and why."""

from model_profiling.analysis.run.experiment_labels import switched_features
from model_profiling.analysis.run.run_data import RunData
from model_profiling.analysis.run.run_forecasts import Sme2Use, predict, sme2_use, without_sme2
from model_profiling.analysis.sme2.coverage import Coverage, CoveredOperator, Level
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.kernel_assignment import ELIGIBLE
from model_profiling.analysis.sme2.sme2_answer import NoKernel, Sme2Answer
from model_profiling.analysis.sme2.target import DEFAULT, read_target
from model_profiling.analysis.timing.breakdown import Breakdown, InstanceTime
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.base.errors import InputError


def sme2_answers(run: RunData) -> list[Sme2Answer]:
    """Return the answer for the experiment that a reader wants to know of; of a language model, for each phase."""
    if not run.measured or run.path.is_file() or not run.summary.experiments:
        return []
    try:
        names, why = without_sme2(run), ""
    except InputError as error:
        names, why = run.of_interest, error.message
    return [_answer(run, name, why) for name in _first(run, names)]


def _predicted(run: RunData, use: Sme2Use, why: str) -> tuple[Forecast | None, str]:
    """Return the prediction, or why there is none."""
    try:
        return (None, why) if why else (predict(run, use, read_target(run.target or DEFAULT)), "")
    except InputError as error:
        return None, error.message


def _first(run: RunData, names: list[str]) -> list[str]:
    """Return the first experiment of each kind of phase."""
    kinds: dict[str, str] = {}
    for name in names:
        kinds.setdefault(run.manifest.experiments[name].phase_kind, name)
    return list(kinds.values())


def _answer(run: RunData, name: str, why: str) -> Sme2Answer:
    use = sme2_use(run, name, run.emulated)
    covered, (forecast, no_forecast) = use.coverage, _predicted(run, use, why)
    breakdown = run.summary.experiments[name].breakdown
    before, after = _latencies(run, name, forecast)
    return Sme2Answer(
        experiment=name,
        evidence=use.evidence,
        executorch=run.manifest.experiments[name].runner.executorch_name,
        eligible=covered.eligible,
        on_sme2=covered.on_sme2,
        not_known=covered.not_known,
        work=covered.work,
        work_on_sme2=covered.work_on_sme2,
        headline=covered.headline,
        unknown=covered.unknown,
        without=_without(covered, breakdown),
        forecast=forecast,
        no_forecast=no_forecast,
        measured=_measured(run, name),
        without_sme2_ms=before,
        with_sme2_ms=after,
    )


def _latencies(run: RunData, name: str, forecast: Forecast | None) -> tuple[float | None, float | None]:
    """Return the median latency without and with SME2, as the forecast changes the traced time."""
    latency = run.metrics.experiments[name].latency
    if latency is None or forecast is None or not forecast.now.predicted_ms:
        return None, None
    stages = forecast.without or forecast.now, forecast.predictions[-1]
    before, after = (latency.median_ms * stage.predicted_ms / forecast.now.predicted_ms for stage in stages)
    return before, after


def _measured(run: RunData, name: str) -> Comparison | None:
    """Return SME2 on against off in the phase of an experiment; None if the run did not switch it."""
    phase = run.manifest.experiments[name].phase_kind
    for comparison in run.metrics.comparisons:
        same = run.manifest.experiments[comparison.after].phase_kind == phase
        if same and "sme2" in switched_features(run.manifest, comparison.before, comparison.after):
            return comparison
    return None


def _without(covered: Coverage, breakdown: Breakdown) -> list[NoKernel]:
    """Return the operators without a kernel by their reason, the costliest first."""
    eligible = [entry for entry in breakdown.instances if entry.category in ELIGIBLE]
    groups: dict[tuple[str, str, Level], list[tuple[CoveredOperator, InstanceTime]]] = {}
    # An emulated run of another model has other operators: what they take is not known then.
    pairs = zip(covered.operators, eligible, strict=False) if len(covered.operators) == len(eligible) else ()
    for operator, entry in pairs:
        if operator.level != "SME2":
            groups.setdefault((operator.why_not, operator.change, operator.level), []).append((operator, entry))
    found = []
    for (why, change, level), members in groups.items():
        times = sorted((entry for _, entry in members), key=lambda entry: -entry.ms)
        source = next((entry.source for entry in times if entry.source is not None and entry.source.file), None)
        found.append(
            NoKernel(
                why,
                change,
                level,
                len(members),
                sum(entry.ms for entry in times),
                sum(entry.share for entry in times),
                [entry.name for entry in times[:3]],
                f"{source.file}:{source.line}" if source is not None else "",
            )
        )
    return sorted(found, key=lambda group: -group.ms)
