"""The few sentences that everyone reads: what was measured, where, how fast, what shifted, what next."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report import numbers
from model_profiling.report.content import first_screen
from model_profiling.report.words import comparison_sentence, forecast_sentence, with_cost


def title(run: RunView) -> str:
    partial = ", partial run" if any(record.partial for record in run.manifest.experiments.values()) else ""
    return f"{run.summary.model} on {run.summary.platform}{partial}"


def cpu(run: RunView) -> str:
    environment = run.manifest.environment
    return str(environment.get("cpu") or environment.get("device") or environment.get("arch") or "unknown CPU")


def subtitle(run: RunView) -> str:
    emulated = "" if run.measured else ", emulated"
    dtype, day = run.manifest.model.dtype_words, run.manifest.updated[:10]
    parts = [f"{cpu(run)}{emulated}", dtype, day, f"kit {run.manifest.kit_version}"]
    return " · ".join(part for part in parts if part)


def sentences(run: RunView) -> list[str]:
    """Return at most five sentences; what failed or is missing comes before what was found."""
    found = first_screen.alerts(run)
    if not run.measured or not run.shown:
        return [*found, *first_screen.shifts(run)]
    found += _latency(run)
    found += [comparison.shift.sentence for comparison in run.summary.comparisons]
    found += [run.labelled(forecast_sentence(forecast)) for forecast in run.forecasts]
    for name in run.of_interest[:1]:
        for finding in run.summary.experiments[name].advice[:1]:
            found.append(f"Next: {with_cost(finding.title, finding.measured)}.")
    return found


def _latency(run: RunView) -> list[str]:
    metrics = run.summary.metrics
    if metrics is None:
        return []
    found = []
    for comparison in metrics.comparisons:
        sides = run.sides(comparison.before, comparison.after)
        medians = []
        for side, name in zip(sides, (comparison.before, comparison.after), strict=True):
            latency = metrics.experiments[name].latency
            medians.append(f"{numbers.ms(latency.median_ms)} with {side}" if latency else f"not known with {side}")
        found.append(f"Median latency is {' and '.join(medians)}: {run.labelled(comparison_sentence(comparison))}.")
    compared = {name for c in metrics.comparisons for name in (c.before, c.after)}
    for name, experiment in metrics.experiments.items():
        if name not in compared and experiment.latency:
            latency = experiment.latency
            spread = f"MAD {numbers.spread(latency.mad_percent)}, {latency.runs} executions"
            found.append(f"Median latency of {run.label(name)} is {numbers.ms(latency.median_ms)} ({spread}).")
    return found
