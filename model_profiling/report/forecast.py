"""A forecast as text: the predicted shift under each assumption, and what SME2 leaves as it is."""

from model_profiling.analysis.forecast import Forecast, RemainingOperator
from model_profiling.report import numbers
from model_profiling.report.terminal_table import table
from model_profiling.report.words import unique_labels
from model_profiling.saying import tell

_MOST_LEFT = 5


def left_operators(forecast: Forecast) -> list[tuple[str, RemainingOperator]]:
    """The costliest operators that SME2 leaves as they are, by names that are told apart."""
    names = unique_labels((entry.name, entry.instruction) for entry in forecast.left)
    return list(zip(names, forecast.left, strict=True))[:_MOST_LEFT]


def show_forecasts(model: str, forecasts: list[Forecast]) -> None:
    lines = ["", f"{model} with SME2: a prediction, not a measurement"]
    for forecast in forecasts:
        lines += ["", *_experiment(forecast), ""]
    lines += [f"  note   {note}" for note in forecasts[0].notes]
    tell("\n".join(lines) + "\n\n")


def _experiment(forecast: Forecast) -> list[str]:
    now = forecast.now
    columns = [now, *forecast.predictions]
    rows = [
        ("predicted", *forecast.columns),
        ("Method::execute", *(numbers.ms(p.predicted_ms) for p in columns)),
        ("times faster", "", *(f"{p.ratio:.2f}x" for p in forecast.predictions)),
        *((name, *(f"{p.shares[name]:.0%}" for p in columns)) for name, share in now.shares.items() if share),
        ("the bottleneck", *(p.next_bottleneck for p in columns)),
    ]
    operators = f"{forecast.on_sme2} of {forecast.eligible} CONV and GEMM operators"
    return [
        f"  {forecast.experiment}: SME2 would run {operators}, {forecast.share:.0%} of the time measured without it",
        "",
        *table(rows, words=1),
        "",
        "  not on SME2",
        *table(
            [(f"  {name}", numbers.ms(x.ms), x.category, x.why_not) for name, x in left_operators(forecast)],
            1,
            {2, 3},
            header=False,
        ),
    ]
