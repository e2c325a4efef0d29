"""Pictures as Vega-Lite specifications: one specification serves PNG, SVG and the page.

Each function is data in, specification out. `width` is that of the whole picture; a narrow one is laid out anew, not
shrunk, so that a phone shows letters one can read.
"""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.report.charts.frame import NARROW, WIDE, Spec
from model_profiling.report.charts.latency import latency, speedups
from model_profiling.report.charts.modules import modules
from model_profiling.report.charts.numerics import numerics
from model_profiling.report.charts.operators import operators, single_operators
from model_profiling.report.charts.roofline import RooflineSide, roofline
from model_profiling.report.charts.runtimes import runtimes
from model_profiling.report.charts.shift import shift
from model_profiling.report.charts.threads import threads
from model_profiling.report.drawing.theme import Theme
from model_profiling.report.words import operator_name

# A picture takes a third of a second; of more comparisons than this the tables tell.
MOST_DRAWN = 6
# The same of experiments, and of rows in one picture.
MOST_PANELS = 12
MOST_ROWS = 40
__all__ = ["MOST_DRAWN", "MOST_PANELS", "MOST_ROWS", "NARROW", "WIDE", "Spec", "of_run", "shift", "speedups"]


def of_run(run: RunView, width: int, theme: Theme, titled: bool = True) -> dict[str, Spec]:
    """Return all pictures of a run by name: `shift`, `modules`, `latency`, `operators`, `threads`, `runtimes`,
    `roofline`, `sme2`; a second comparison's end in `_2`. In a report they have no titles: headings and captions
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
    if bars := _with_sme2(run):
        modelled = bars[0][0].endswith("modelled")
        found["sme2"] = shift(bars, width, theme, title("without and with SME2"), "%" if modelled else "ms")
    run = run.detailed
    for number, comparison in enumerate(run.summary.comparisons[:MOST_DRAWN], 1):
        end = "" if number == 1 else f"_{number}"
        sides = run.sides(comparison.before, comparison.after)
        times = [run.summary.experiments[n].breakdown.ms_by_category for n in (comparison.before, comparison.after)]
        rows, groups = list(zip(sides, times, strict=True)), run.operator_groups[number - 1]
        found[f"shift{end}"] = shift(rows, width, theme, title("where the time goes"))
        found[f"operators{end}"] = operators(groups, sides, width, theme, title("top operators"))
    if not run.summary.comparisons and run.shown:
        breakdowns = {name: run.summary.experiments[name].breakdown for name in run.shown}
        parts = [(run.label(name), b.ms_by_category) for name, b in breakdowns.items()]
        found["shift"] = shift(parts, width, theme, title("where the time goes"))
        name, breakdown = next(iter(breakdowns.items()))
        entries = [entry for entry in breakdown.operators if entry.where != "runtime"]
        top = [(operator_name(e.operator, e.where, e.instances), e.ms, e.share) for e in entries]
        found["operators"] = single_operators(top, width, theme, title(f"top operators of {run.label(name)}"))
    for name in run.of_interest[:1]:
        root = run.cost_tree(name)
        if any(child.kind != "unknown" for child in root.children):
            found["modules"] = modules(root, width, theme, title("cost by module and line"))
    drawn = roofline(_roofline_sides(run), width, theme, title("how far from the roof"))
    if drawn is not None:
        found["roofline"] = drawn
    return found


def _with_sme2(run: RunView) -> list[tuple[str, dict[str, float]]]:
    """Return the bars without and with SME2: measured where the run switched it, else predicted from what was measured;
    nothing where nobody knows."""
    answer = run.sme2[0] if run.sme2 else None
    if answer is not None and answer.measured is not None:
        pair = ("without SME2, measured", answer.measured.before), ("with SME2, measured", answer.measured.after)
        return [(label, run.summary.experiments[name].breakdown.ms_by_category) for label, name in pair]
    forecast = run.forecasts[0] if run.forecasts else None
    if forecast is None or run.summary.experiments[forecast.experiment].breakdown.unreliable:
        return []
    before, after = forecast.without or forecast.now, forecast.predictions[-1]
    modelled = forecast.basis == "modelled"
    how = "modelled" if modelled else "predicted" if forecast.without else "measured"
    pairs = (f"without SME2, {how}", before), ("with SME2, predicted", after)
    scale = 100 / before.predicted_ms if modelled and before.predicted_ms else 1.0
    return [(label, {str(c): share * p.predicted_ms * scale for c, share in p.shares.items()}) for label, p in pairs]


def _roofline_sides(run: RunView) -> list[RooflineSide]:
    """Return the first comparison's two sides, else the first experiment that is shown, as far as they have roofs."""
    labels: dict[str, str] = {name: run.label(name) for name in run.of_interest[:1]}
    for comparison in run.summary.comparisons[:1]:
        names = (comparison.before, comparison.after)
        labels = dict(zip(names, run.sides(*names), strict=True))
    held = run.rooflines
    return [RooflineSide(labels[n], run.summary.experiments[n].breakdown, held[n]) for n in labels if n in held]
