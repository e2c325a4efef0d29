"""A forecast as text: the predicted shift, what each operator gains and why, and what SME2 leaves as it is."""

from collections.abc import Sequence

from model_profiling.analysis.run.run_forecasts import TargetForecast
from model_profiling.analysis.sme2.forecast_record import Forecast, PredictedOperator, RemainingOperator
from model_profiling.base.printing import tell
from model_profiling.formats.graph_terms import unique
from model_profiling.report import numbers
from model_profiling.report.terminal.text_table import table
from model_profiling.report.words import EVIDENCE, unique_labels

_MOST_LEFT = 5
_MOST_OPERATORS = 8


def left_operators(forecast: Forecast) -> list[tuple[str, RemainingOperator]]:
    """Return the costliest operators that SME2 leaves as they are, by names that are told apart."""
    names = unique_labels(forecast.left)
    return list(zip(names, forecast.left, strict=True))[:_MOST_LEFT]


def gaining_operators(forecast: Forecast) -> list[tuple[str, PredictedOperator]]:
    """Return the costliest operators that SME2 runs, by names that are told apart."""
    names = unique_labels(forecast.operators)
    return list(zip(names, forecast.operators, strict=True))[:_MOST_OPERATORS]


def notes_of(forecasts: Sequence[Forecast]) -> list[str]:
    """Return what has to be known of some forecasts, each note once."""
    return unique(note for forecast in forecasts for note in forecast.notes)


def show_forecasts(model: str, forecasts: list[Forecast]) -> None:
    lines = ["", f"{model} with SME2: a prediction, not a measurement"]
    for forecast in forecasts:
        lines += ["", *_experiment(forecast), ""]
    lines += [f"  note   {note}" for note in [*evidence_notes(forecasts), *notes_of(forecasts)]]
    tell("\n".join(lines) + "\n\n")


def show_targets(model: str, found: Sequence[TargetForecast]) -> None:
    """Print one row for each target, and why there is none."""
    rows = [("target", "times faster", "range", "largest part then", "CPU")]
    for entry in found:
        for forecast in entry.forecasts:
            after, bounds = forecast.predictions[-1], forecast.speedup_range
            largest = f"{after.next_bottleneck} {after.shares[after.next_bottleneck]:.0%}"
            told = f"{bounds[0]:.2f}x to {bounds[1]:.2f}x" if bounds else "-"
            # What the target does not know of a dtype is taken as unchanged.
            least = "at least " if any("not known" in note for note in forecast.notes) else ""
            rows.append((entry.target, f"{least}{numbers.ratio(forecast.speedups[-1])}", told, largest, entry.cpu))
        if not entry.forecasts:
            rows.append((entry.target, "not known", "-", "-", entry.why_not))
    known = [forecast for entry in found for forecast in entry.forecasts]
    lines = ["", f"{model} with SME2: predictions, not measurements", "", *table(rows, 1, {3, 4}), ""]
    lines += [f"  note   {note}" for note in [*evidence_notes(known), *notes_of(known)]]
    tell("\n".join(lines) + "\n\n")


def evidence_notes(forecasts: Sequence[Forecast]) -> list[str]:
    """Say what the choice of operators stands on, and what proves it."""
    proof = {"table": "; sme2-kit kernels MODEL.pte proves it"}
    kinds = unique(forecast.evidence for forecast in forecasts)
    return [f"which operators SME2 runs is {EVIDENCE[kind]}{proof.get(kind, '')}" for kind in kinds]


def _experiment(forecast: Forecast) -> list[str]:
    now, columns = forecast.now, forecast.stages
    empty = [""] * (len(columns) - len(forecast.predictions))
    bounds, before = forecast.speedup_range, (forecast.without or forecast.now).predicted_ms
    rows = [
        ("predicted", *forecast.columns),
        ("Method::execute", *(numbers.ms(p.predicted_ms) for p in columns)),
        ("times faster by SME2", *empty, *(numbers.times_faster(before, p.predicted_ms) for p in forecast.predictions)),
        *([("range", *empty, f"{bounds[0]:.2f}x to {bounds[1]:.2f}x")] if bounds else []),
        *((name, *(f"{p.shares[name]:.0%}" for p in columns)) for name, share in now.shares.items() if share),
        ("the bottleneck", *(p.next_bottleneck for p in columns)),
    ]
    operators = f"{forecast.on_sme2} of {forecast.eligible} CONV and GEMM operators"
    return [
        f"  {forecast.experiment}: SME2 would run {operators}, {forecast.share:.0%} of the time measured without it",
        "",
        *table(rows, words=1),
        *_gaining(forecast),
        "",
        "  not on SME2",
        *table(
            [(f"  {name}", numbers.ms(x.ms), x.category, x.why_not) for name, x in left_operators(forecast)],
            1,
            {2, 3},
            header=False,
        ),
    ]


def _gaining(forecast: Forecast) -> list[str]:
    """Return what each operator gains on the target, and why; nothing where gains are assumed."""
    if not forecast.operators:
        return []
    shown = gaining_operators(forecast)
    head = ("on SME2 (predicted)", "now", "with SME2", "faster", "why")
    rows = [
        (name, numbers.ms(x.ms), numbers.ms(x.predicted_ms), numbers.times_faster(x.ms, x.predicted_ms), x.why)
        for name, x in shown
    ]
    more = len(forecast.operators) - len(shown)
    return ["", *table([head, *rows], 1, {4}), *([f"  and {more} more"] if more > 0 else [])]
