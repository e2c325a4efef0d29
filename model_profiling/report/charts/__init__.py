"""Pictures as Vega-Lite specifications: one specification serves PNG, SVG and the page.

Each function is data in, specification out. `width` is that of the whole picture; a narrow one is laid out anew, not
shrunk, so that a phone shows letters one can read.
"""

from model_profiling.analysis.run_view import RunView
from model_profiling.report.charts.latency import latency
from model_profiling.report.charts.operators import operators, single_operators
from model_profiling.report.charts.shift import shift
from model_profiling.report.charts.speedups import speedups
from model_profiling.report.charts.whole import NARROW, WIDE, Spec
from model_profiling.report.theme import Theme
from model_profiling.report.words import unique_labels

# A picture takes a third of a second; of more comparisons than this the tables tell.
MOST_DRAWN = 6
__all__ = [
    "MOST_DRAWN",
    "NARROW",
    "WIDE",
    "Spec",
    "latency",
    "of_run",
    "operators",
    "shift",
    "single_operators",
    "speedups",
]


def of_run(run: RunView, width: int, theme: Theme) -> dict[str, Spec]:
    """All pictures of a run by name: `shift`, `latency`, `operators`, `forecast`; a second comparison's end in `_2`."""

    def title(what: str) -> str:
        return f"{run.summary.model}: {what}"

    found: dict[str, Spec] = {}
    if not run.measured:
        return found
    turns = [(name, turns) for name, turns in run.turns.items() if turns]
    if turns:
        found["latency"] = latency(turns, width, theme, title("latency by turn"))
    for number, comparison in enumerate(run.summary.comparisons[:MOST_DRAWN], 1):
        end = "" if number == 1 else f"_{number}"
        sides = run.sides(comparison.before, comparison.after)
        experiments = [run.summary.experiments[name] for name in (comparison.before, comparison.after)]
        rows = [
            (side, experiment.breakdown.ms_by_category) for side, experiment in zip(sides, experiments, strict=True)
        ]
        found[f"shift{end}"] = shift(rows, width, theme, title("where the time goes"))
        found[f"operators{end}"] = operators(comparison.operators, sides, width, theme, title("top operators"))
    if not run.summary.comparisons and run.shown:
        breakdowns = {name: run.summary.experiments[name].breakdown for name in run.shown}
        parts = [(name, b.ms_by_category) for name, b in breakdowns.items()]
        found["shift"] = shift(parts, width, theme, title("where the time goes"))
        name, breakdown = next(iter(breakdowns.items()))
        entries = sorted((e for e in breakdown.instances if e.where != "runtime"), key=lambda e: -e.ms)
        names = unique_labels((e.name, e.instruction) for e in entries)
        top = [(label, e.ms, e.share) for label, e in zip(names, entries, strict=True)]
        found["operators"] = single_operators(top, width, theme, title(f"top operators of {name}"))
    for forecast in run.forecasts[:1]:
        names = [forecast.columns[0], *(f"{name}, predicted" for name in forecast.columns[1:])]
        predictions = zip(names, [forecast.now, *forecast.predictions], strict=True)
        bars = [(name, {c: share * p.predicted_ms for c, share in p.shares.items()}) for name, p in predictions]
        found["forecast"] = shift(bars, width, theme, title("predicted with SME2"))
    return found
