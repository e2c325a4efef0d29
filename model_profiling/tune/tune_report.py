"""What is shown of a tuning: every variant in a row, what is kept and what it gained, and time against accuracy."""

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import numpy as np

from model_profiling.analysis.compare.comparison import MetricValue
from model_profiling.base import files
from model_profiling.base.installation import relative_to_here
from model_profiling.base.units import counted
from model_profiling.report import numbers
from model_profiling.report.blocks import Cell, Fact, Number, Report, Row, Table
from model_profiling.report.change_words import difference_text, part_place
from model_profiling.report.charts.frame import WIDE, Spec, Values, frame, layer
from model_profiling.report.drawing.theme import BEFORE, LIGHT, Theme
from model_profiling.report.drawing.vega import draw
from model_profiling.report.words import bounded_factor, drop_text
from model_profiling.tune.tune_result import LEAST_SQNR_DB, MetricSummary, Sme2Outlook, TriedVariant, TuneResult

_MOST_STEPS, _MOST_FAILED, _HEIGHT = 3, 2, 300


def document(result: TuneResult, picture: Path | None = None) -> Report:
    """Return every variant in a row, what is kept and what it gained, and which lines changed."""
    winner = next((entry for entry in result.tried if entry.name == result.winner), None)
    kept = _undecided(result) if winner is None else [winner.command]
    facts: list[Fact | Table] = [Fact("Keep", rows=[(line,) for line in kept], lead=winner.name if winner else "")]
    if winner is not None and winner.comparison is not None:
        facts.append(Fact("Gained", *bounded_factor(winner.comparison), rows=_steps(result), card=True))
    if result.changes is not None and result.changes.told:
        lines = [(part_place(part), difference_text(part)) for part in result.changes.told[:_MOST_STEPS]]
        facts.append(Fact("Lines", rows=[*lines]))
    facts += [_costs(result), Fact("Program", note=str(relative_to_here(Path(result.program))))]
    facts += [Fact("Picture", note=str(relative_to_here(picture)))] if picture is not None else []
    failed = [(f"{entry.name}: {entry.failure}",) for entry in result.tried if entry.failure]
    facts += [Fact("Failed", rows=[*failed[:_MOST_FAILED]])] if failed else []
    if result.metric is not None:
        facts[1:1] = _metric(result.metric)
        table = _judged(result)
    else:
        table = _formats(result) if any(entry.format is not None for entry in result.tried) else _variants(result)
    disturbed = any(e.comparison is not None and e.comparison.contended for e in result.tried)
    again = ["The machine was busy: measure again with --force."] if disturbed else []
    order = "within the drop first, then fastest first" if result.metric is not None else "fastest first"
    subtitle = f"against {result.baseline}; {order}"
    return Report(f"{result.model} on {result.platform}", subtitle, alerts=again, opening=[[table], facts])


def _steps(result: TuneResult) -> list[tuple[str, ...]]:
    """Return what each change did, and what is as fast."""
    said: list[tuple[str, ...]] = [(step.change, " ".join(bounded_factor(step.comparison))) for step in result.steps]
    said += [(_may_be(entry),) for entry in result.unsure[:_MOST_FAILED]]
    as_fast = f"as fast: {', '.join(result.as_fast)} (kept is the most accurate, or what changes least)"
    return said[:_MOST_STEPS] + ([(as_fast,)] if result.as_fast else [])


def _undecided(result: TuneResult) -> list[str]:
    """Say why nothing is kept, so that no verdict contradicts the table above it."""
    busy, unsure, floor = result.busy[:_MOST_FAILED], result.unsure[:_MOST_FAILED], result.min_sqnr_db
    said = [f"the machine was busy: {entry.name} looks {numbers.ratio(entry.ratio)} faster" for entry in busy]
    said += map(_may_be, unsure)
    for entry in result.wrong[:_MOST_FAILED] if result.metric is None else ():
        agrees = floor is not None or (entry.agreement is not None and entry.agreement.verdict == "agrees")
        low = f"less accurate than {LEAST_SQNR_DB if floor is None else floor:g} dB (--min-sqnr)"
        said.append(f"{entry.name} is faster, but {low if agrees else 'its outputs do not agree with eager'}")
    if result.metric is not None:
        said += _not_met(result, result.metric)
    if not said:
        return ["no variant is faster (95 % interval) with matching outputs: keep the baseline"]
    return [*said, f"keep the baseline{' until then' if busy or unsure else ''}"]


def _not_met(result: TuneResult, metric: MetricSummary) -> list[str]:
    """Say which programs are faster, and by how much their metric falls too far, the nearest first."""
    faster = [e for e in result.tried if e.faster]
    known = [(e.metric.drop, e.name, e.metric) for e in faster if e.metric and e.metric.drop is not None]
    said = []
    for drop, name, found in sorted(known, key=itemgetter(0))[:_MOST_FAILED]:
        if found.verdict == "not told":
            said.append(f"{metric.samples} samples do not tell whether {name} is within the drop: {drop_text(found)}")
        elif found.verdict == "beyond":
            said.append(f"{name} is faster and drops {drop_text(found)}, {drop - metric.max_drop:.3g} too much")
    return said


def _metric(metric: MetricSummary) -> list[Fact | Table]:
    """Return how variants were judged, and what layers in fp32 cost and save."""
    worse = "higher" if metric.lower_is_better else "lower"
    others = "" if metric.apart else ", which calibrate int8, too"
    on = f"{metric.name} on {counted(metric.samples, 'sample')}{others}: up to {metric.max_drop:g} {worse} than in fp32"
    rows: list[tuple[str, ...]] = []
    for kept in metric.kept:
        more = f"without it the metric drops {kept.saved:.3g} more" if kept.saved is not None else ""
        rows.append((f"{', '.join(kept.keep)}: {' '.join(bounded_factor(kept.comparison))}", more))
    return [Fact("Metric", note=on), *([Fact("In fp32", rows=rows)] if rows else [])]


def _judged(result: TuneResult) -> Table:
    """Return the variants with what the user's metric says of them: what is kept, what may be, and what may not."""
    order = ["within", "not told", "beyond"]
    judged = [(entry, entry.metric, entry.sme2) for entry in result.tried if entry.metric is not None]
    judged.sort(key=lambda row: (row[0].name != result.winner, order.index(row[1].verdict), -row[0].ratio))
    columns: dict[str, Callable[[tuple[TriedVariant, MetricValue, Sme2Outlook | None]], Cell]] = {
        "variant": lambda row: f"{row[0].name} (kept)" if row[0].name == result.winner else row[0].name,
        "median": lambda row: numbers.ms_cell(row[0].median_ms),
        "speedup": lambda row: _speedup(row[0]),
        "metric": lambda row: numbers.cell(row[1].value, "{:.4g}".format),
        "drop": lambda row: "-" if row[0].comparison is None else drop_text(row[1]),
        "verdict": lambda row: row[1].failure or ("" if row[0].comparison is None else row[1].verdict),
        "size": lambda row: numbers.bytes_cell(row[0].file_bytes),
        "SME2 kernels": lambda row: (
            f"{row[2].on_sme2} of {row[2].eligible}" if row[2] and row[2].on_sme2 is not None else "-"
        ),
        "with SME2 (predicted)": lambda row: numbers.cell(row[2].ratio if row[2] else None, numbers.ratio),
    }
    return Table.of("variants", columns, judged)


def _speedup(entry: TriedVariant) -> str:
    return "baseline" if entry.comparison is None else " ".join(bounded_factor(entry.comparison))


def _may_be(entry: TriedVariant) -> str:
    """Say that the runs do not tell whether a variant is faster."""
    assert entry.comparison is not None
    looks, high = numbers.ratio(entry.comparison.ratio), entry.comparison.high
    up_to = f" (up to {numbers.ratio(high)})" if high is not None else ""
    return f"too few runs to tell: {entry.name} looks {looks} faster{up_to}, measure again with a larger --budget"


def _costs(result: TuneResult) -> Fact:
    """Return what each step took, and why it ended."""
    took: dict[str, tuple[int, float]] = {}
    for cost in result.costs:
        count, seconds = took.get(cost.step, (0, 0.0))
        took[cost.step] = count + cost.programs, seconds + cost.seconds
    steps = [f"{step} {counted(count, 'program')}: {seconds:.0f} s" for step, (count, seconds) in took.items()]
    ended = "nothing else can be 5 % faster, by its interval"
    if result.unsure or (result.busy and not result.winner):
        ended = "the budget is used up" if result.unsure else "the machine is busy"
    return Fact("Took", note=f"{'; '.join(steps) or 'nothing new was measured'}; ended: {ended}")


def _formats(result: TuneResult) -> Table:
    """Return a language model's weight formats: speed by phase, accuracy, memory, and SME2 kernels."""
    made = [(entry, entry.format) for entry in result.tried if entry.format is not None]
    text = ["perplexity"] if any(found.perplexity is not None for _, found in made) else []
    rows: list[Row] = []
    for entry, found in made:
        agreements = [p.agreement for p in found.phases if p.agreement is not None]
        noise = [each.sqnr_db for each in agreements if each.sqnr_db is not None]
        divergences = [p.kl_divergence for p in found.phases if p.kl_divergence is not None]
        cells = [
            *(numbers.cell(p.metrics.token_per_sec, numbers.rate) for p in found.phases),
            numbers.cell(min(noise, default=None), "{:.1f} dB".format),
            numbers.cell(max(divergences, default=None), "{:.2g}".format),
            *([numbers.cell(found.perplexity, "{:.4g}".format)] if text else []),
            *(numbers.bytes_cell(found.peak_bytes), numbers.cell(found.sme2_share, "{:.0%}".format)),
        ]
        why = "baseline" if entry.name == result.baseline else "" if found.pareto else "another is better in all"
        rows.append((entry.name, *cells, why))
    phases = [f"{phase.metrics.label} tokens/s" for phase in made[0][1].phases]
    return Table("formats", ("format", *phases, "SQNR", "KL", *text, "peak memory", "SME2 weights", ""), rows)


def _variants(result: TuneResult) -> Table:
    """Return the variants, and what keeping layers in fp32 costs and gives where that was tried."""
    rows: list[Row] = []
    for entry in result.tried:
        if entry.failure or entry.median_ms is None:
            continue
        compared, agreement = entry.comparison, entry.agreement
        sqnr = agreement.sqnr_db if agreement is not None else None
        busy = compared is not None and compared.contended
        verdict = "-" if agreement is None else "; ".join([agreement.verdict, *agreement.remarks])
        verdict = "another is faster and better" if entry.pareto is False else verdict
        median = Number("-" if busy else numbers.ms(entry.median_ms), entry.median_ms)
        told = (_speedup(entry), numbers.cell(sqnr, "{:.1f} dB".format), verdict)
        why = f"the same program as {entry.same_as}" if entry.same_as else entry.reason
        rows.append((entry.name, median, *told, why))
    return Table("variants", ("variant", "median", "speedup", "SQNR", "outputs", "why it was tried"), rows)


def write_picture(result: TuneResult, home: Path) -> Path:
    """Draw the variants as SVG and PNG into `home`; returns the PNG."""
    drawing = draw(picture(result, WIDE, LIGHT))
    files.write_bytes(home / "tune_pareto.svg", drawing.svg.encode())
    files.write_bytes(home / "tune_pareto.png", drawing.png)
    return home / "tune_pareto.png"


def picture(result: TuneResult, width: int, theme: Theme) -> Spec:
    """Return a point for each variant; a line joins those that no other beats."""
    points = _staggered([point for entry in result.tried if (point := _point(result, entry)) is not None])
    scale = {"zero": False, "nice": True, "padding": 24}
    judged = result.metric is not None
    title = result.metric.name if result.metric is not None else "SQNR of the outputs (dB)"
    x = {"field": "ms", "type": "quantitative", "scale": scale, "axis": {"title": "median latency (ms)"}}
    y = {"field": "good", "type": "quantitative", "scale": scale, "axis": {"title": title}}
    colour = {"condition": {"test": "datum.best", "value": theme.after}, "value": BEFORE}
    shape = {"condition": {"test": "datum.kept", "value": "diamond"}, "value": "circle"}
    best, places = [point for point in points if point["best"]], {"x": x, "y": y}
    above = {"expr": "-8 - 14 * datum.line"}
    layers = [
        layer("line", best, {**places, "order": "ms"}, color=theme.after, strokeWidth=1.5),
        layer("rule", points, {"x": x, "y": {**y, "field": "low"}, "y2": "high", "color": colour}),
        layer("point", points, {**places, "color": colour, "shape": shape}, filled=True, size=80, opacity=1),
        layer("text", points, {**places, "text": "name"}, align="left", dx=8, dy=above, color=theme.text),
    ]
    spec: Spec = {"width": width - 90, "height": _HEIGHT, "layer": layers}
    about = "time against the metric, with its interval" if judged else "layers kept in fp32, time against accuracy"
    return frame(spec, theme, width, f"{result.model}: {about}", "Joined: no other is both faster and more accurate")


def _staggered(points: list[Values]) -> list[Values]:
    """Return points from left to right, each with the line that its label stands in: above those of its neighbours."""
    found: list[Values] = []
    shares = {"ms": 0.2, "good": 0.1}
    close = {axis: share * float(np.ptp([point[axis] for point in points] or [0.0])) for axis, share in shares.items()}
    for point in sorted(points, key=lambda each: float(each["ms"])):
        taken = {each["line"] for each in found if all(abs(point[axis] - each[axis]) <= close[axis] for axis in close)}
        found.append({**point, "line": next(line for line in range(len(found) + 1) if line not in taken)})
    return found


def _point(result: TuneResult, entry: TriedVariant) -> Values | None:
    """Return where a variant is in the picture; None where its accuracy is not known."""
    metric, ms, kept = entry.metric, entry.median_ms, False
    good = low = high = entry.agreement.sqnr_db if entry.agreement is not None else None
    if metric is not None and ms is not None:
        # Rounds differ in speed: what a variant takes is as often as fast as the baseline, beside which it ran.
        base = next((each.median_ms for each in result.tried if each.name == result.baseline), None)
        ms, kept = (base or ms) / entry.ratio, entry.name == (result.winner or result.baseline)
        good = low = high = metric.value
        if good is not None and metric.low is not None and metric.high is not None:
            sign = -1 if result.metric is not None and result.metric.lower_is_better else 1
            low, high = (good + sign * ((metric.drop or 0.0) - end) for end in (metric.high, metric.low))
    name = f"{entry.name} (kept)" if kept else entry.name
    point = {"name": name, "ms": ms, "good": good, "low": low, "high": high, "kept": kept, "best": bool(entry.pareto)}
    return None if ms is None or good is None else point
