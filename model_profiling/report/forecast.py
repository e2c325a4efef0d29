"""A forecast as text: the predicted shift under each assumption, and what SME2 leaves as it is."""

import sys

from model_profiling.analysis.forecast import Forecast
from model_profiling.report.terminal import clean, table

_MOST_LEFT = 5


def show_forecasts(model: str, forecasts: list[Forecast]) -> None:
    lines = ["", f"{model} with SME2: a prediction, not a measurement"]
    for forecast in forecasts:
        lines += ["", *_experiment(forecast), ""]
    lines += [f"  note   {note}" for note in forecasts[0].notes]
    sys.stdout.write(clean("\n".join(lines) + "\n\n"))


def _experiment(forecast: Forecast) -> list[str]:
    now = forecast.now
    columns = [now, *forecast.predictions]
    rows = [
        ("predicted", *forecast.columns),
        ("Method::execute", *(f"{p.predicted_ms:.3f} ms" for p in columns)),
        ("times faster", "", *(f"{p.ratio:.2f}x" for p in forecast.predictions)),
        *((name, *(f"{p.shares[name]:.0%}" for p in columns)) for name, share in now.shares.items() if share),
        ("the bottleneck", *(p.next_bottleneck for p in columns)),
    ]
    share = forecast.on_sme2_ms / now.execute_ms if now.execute_ms else 0.0
    operators = f"{forecast.on_sme2} of {forecast.eligible} CONV and GEMM operators"
    return [
        f"  {forecast.experiment}: SME2 would run {operators}, {share:.0%} of the time measured without it",
        "",
        *table(rows, words=1),
        "",
        "  SME2 leaves as it is",
        *table([(f"  {x.name}", f"{x.ms:.3f} ms", x.category) for x in forecast.left[:_MOST_LEFT]], 1, {2}),
    ]
