"""Pictures as Vega-Lite specifications: one specification serves PNG, SVG and the page.

Each function is data in, specification out. `width` is that of the whole picture; a narrow one is laid out anew, not
shrunk, so that a phone shows letters one can read.
"""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report.charts.frame import NARROW, WIDE, Spec
from model_profiling.report.charts.latency import latency
from model_profiling.report.charts.modules import modules
from model_profiling.report.charts.numerics import numerics
from model_profiling.report.charts.operators import operators, single_operators
from model_profiling.report.charts.roofline import RooflineSide, roofline
from model_profiling.report.charts.runtimes import runtimes
from model_profiling.report.charts.shift import shift
from model_profiling.report.charts.speedups import speedups
from model_profiling.report.charts.threads import threads
from model_profiling.report.drawing.theme import Theme
from model_profiling.report.words import counted_name, located_name

# A picture takes a third of a second; of more comparisons than this the tables tell.
MOST_DRAWN = 6
# The same of experiments, and of rows in one picture.
MOST_PANELS = 12
MOST_ROWS = 40
__all__ = ["MOST_DRAWN", "MOST_PANELS", "MOST_ROWS", "NARROW", "WIDE", "Spec", "of_run", "shift", "speedups"]


def of_run(run: RunView, width: int, theme: Theme, titled: bool = True) -> dict[str, Spec]:
    """Return all pictures of a run by name: `shift`, `modules`, `latency`, `operators`, `threads`, `runtimes`,
    `roofline`, `forecast`; a second comparison's end in `_2`. In a report they have no titles: headings and captions
    say what they show."""

    def title(what: str) -> str:
        return f"{run.summary.model}: {what}" if titled else ""

    found: dict[str, Spec] = {}
    if run.numerics is not None:
        found["numerics"] = numerics(run.numerics, width, theme, title("accuracy by layer"))
    if not run.measured:
        return found
    turns = [(run.label(name), turns) for name, turns in run.turns.items() if turns]
    if turns:
        found["latency"] = latency(turns[:MOST_PANELS], width, theme, title("latency by turn"))
    if (compared := run.threads_compared) is not None:
        what = title("latency by number of threads")
        found["threads"] = threads(run.thread_curves[:MOST_PANELS], compared.cpus, width, theme, what)
    if run.runtimes is not None and any(row.latency is not None for row in run.runtimes.rows):
        found["runtimes"] = runtimes(run.runtimes, width, theme, title("in several runtimes"))
    for forecast in run.forecasts[:1]:
        names = [forecast.columns[0], *(f"{name}, predicted" for name in forecast.columns[1:])]
        predictions = zip(names, forecast.stages, strict=True)
        bars = [(name, {c: share * p.predicted_ms for c, share in p.shares.items()}) for name, p in predictions]
        found["forecast"] = shift(bars, width, theme, title("predicted with SME2"))
    run = run.detailed
    for number, comparison in enumerate(run.summary.comparisons[:MOST_DRAWN], 1):
        end = "" if number == 1 else f"_{number}"
        sides = run.sides(comparison.before, comparison.after)
        experiments = [run.summary.experiments[name] for name in (comparison.before, comparison.after)]
        rows = [
            (side, experiment.breakdown.ms_by_category) for side, experiment in zip(sides, experiments, strict=True)
        ]
        found[f"shift{end}"] = shift(rows, width, theme, title("where the time goes"))
        found[f"operators{end}"] = operators(
            run.operator_groups[number - 1], sides, width, theme, title("top operators")
        )
    if not run.summary.comparisons and run.shown:
        breakdowns = {name: run.summary.experiments[name].breakdown for name in run.shown}
        parts = [(run.label(name), b.ms_by_category) for name, b in breakdowns.items()]
        found["shift"] = shift(parts, width, theme, title("where the time goes"))
        name, breakdown = next(iter(breakdowns.items()))
        entries = [entry for entry in breakdown.operators if entry.where != "runtime"]
        top = [(located_name(counted_name(e.instances, e.operator), e.where), e.ms, e.share) for e in entries]
        found["operators"] = single_operators(top, width, theme, title(f"top operators of {run.label(name)}"))
    for name in run.of_interest[:1]:
        root = run.cost_tree(name)
        if any(child.kind != "unknown" for child in root.children):
            found["modules"] = modules(root, width, theme, title("cost by module and line"))
    drawn = roofline(_roofline_sides(run), width, theme, title("how far from the roof"))
    if drawn is not None:
        found["roofline"] = drawn
    return found


def _roofline_sides(run: RunView) -> list[RooflineSide]:
    """Return the first comparison's two sides, else the first experiment that is shown, as far as they have roofs."""
    labels: dict[str, str] = {name: run.label(name) for name in run.of_interest[:1]}
    for comparison in run.summary.comparisons[:1]:
        names = (comparison.before, comparison.after)
        labels = dict(zip(names, run.sides(*names), strict=True))
    held = run.rooflines
    return [
        RooflineSide(label, run.summary.experiments[n].breakdown, held[n]) for n, label in labels.items() if n in held
    ]
