"""What SME2 would change here: predictions, from times measured without it and an emulated run's kernels."""

from collections.abc import Sequence

from model_profiling.analysis.run.run_forecasts import TargetForecast
from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.formats.graph_terms import unique
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Fact, Number, Paragraph, Report, Row, Section, Table
from model_profiling.report.words import BASIS, EVIDENCE, forecast_time, labelled, predicted_factor

_MOST_OPERATORS = 8
_MOST_LEFT = 5
_METHOD = (
    "A prediction, not a measurement. How much faster each operator becomes follows from its dtype and shape on a "
    "machine with SME2; nothing else is assumed to change."
)


def section(run: RunView) -> Section | None:
    results = []
    for forecast in run.forecasts:
        gain, then = f"{forecast.on_sme2} of {forecast.eligible}", forecast.predictions[-1].next_bottleneck
        phase = run.phase(forecast.experiment)
        results.append(f"{phase} {gain} operators gain; largest part then: {then}".strip())
    title = "With SME2 (predicted)"
    return Section("forecast", title, _blocks(run.forecasts, run), True, "; ".join(results)) if results else None


def _blocks(forecasts: Sequence[Forecast], run: RunView | None = None) -> list[Block]:
    basis = unique(BASIS[forecast.basis] for forecast in forecasts)
    blocks: list[Block] = [Paragraph(f"{_METHOD} The times without SME2 are {' and '.join(basis)}.")]
    for forecast in forecasts:
        called = run.label(forecast.experiment) if run is not None else forecast.experiment
        said = (
            f"{called}: SME2 would run {forecast.on_sme2} of {forecast.eligible} CONV and GEMM operators, which "
            f"take {numbers.share(forecast.share)} of the time without it."
        )
        left = [
            f"{name} ({x.category}): {forecast_time(forecast, x.ms)}{f'; {x.why_not}' if x.why_not else ''}"
            for name, x in labelled(forecast.left)[:_MOST_LEFT]
        ]
        blocks += [Paragraph(said), _table(forecast), *_gaining(forecast)]
        blocks += [Paragraph("The costliest operators that SME2 does not run:"), Bullets(left)]
    return [*blocks, *_notes(forecasts)]


def _notes(forecasts: Sequence[Forecast]) -> list[Block]:
    """Say what the choice of operators stands on, and what has to be known of the forecasts, each note once."""
    proof = {"table": "; sme2-kit kernels MODEL.pte proves it"}
    kinds = unique(forecast.evidence for forecast in forecasts)
    said = [f"which operators SME2 runs is {EVIDENCE[kind]}{proof.get(kind, '')}" for kind in kinds]
    return [Bullets([f"Note: {note}." for note in [*said, *unique(n for f in forecasts for n in f.notes)]])]


def report(model: str, forecasts: Sequence[Forecast]) -> Report:
    """Return what `forecast` says of a run."""
    said = [Fact("SME2", *predicted_factor(each), each.experiment) for each in forecasts]
    opening: list[list[Fact | Table]] = [[*said], [_table(each) for each in forecasts[:2]], _evidence(forecasts)]
    title = f"{model} with SME2: a prediction, not a measurement"
    return Report(title, opening=opening, sections=[Section("forecast", "Details", _blocks(forecasts))])


def _evidence(forecasts: Sequence[Forecast]) -> list[Fact | Table]:
    kinds = " and ".join(unique(EVIDENCE[forecast.evidence] for forecast in forecasts))
    return [Fact("Evidence", note=f"which operators SME2 runs is {kinds}")] if kinds else []


def of_targets(model: str, found: Sequence[TargetForecast]) -> Report:
    """Return one row for each target, and why there is none."""
    rows: list[Row] = []
    for entry in found:
        for forecast in entry.forecasts:
            after, bounds = forecast.predictions[-1], forecast.speedup_range
            largest = f"{after.next_bottleneck} {after.shares[after.next_bottleneck]:.0%}"
            told = f"{bounds[0]:.1f} to {bounds[1]:.1f}" if bounds else "-"
            # What the target does not know of a dtype is taken as unchanged.
            least = "at least " if any("not known" in note for note in forecast.notes) else ""
            times = Number(f"{least}{forecast.ratio:.1f}x", forecast.ratio)
            rows.append((entry.target, times, told, largest, entry.cpu))
        if not entry.forecasts:
            rows.append((entry.target, Number("not known", None), "-", "-", entry.why_not))
    columns = ("target", "times faster", "range", "largest part then", "CPU")
    known = [forecast for entry in found for forecast in entry.forecasts]
    opening: list[list[Fact | Table]] = [[Table("targets", columns, rows)], _evidence(known)]
    title = f"{model} with SME2: predictions, not measurements"
    return Report(title, opening=opening, sections=[Section("notes", "Notes", _notes(known))])


def _table(forecast: Forecast) -> Table:
    predictions, parts = forecast.stages, [name for name, share in forecast.now.shares.items() if share]
    rows: list[Row] = [(name, *(numbers.share_cell(p.shares[name]) for p in predictions)) for name in parts]
    whole = (Number(forecast_time(forecast, p.predicted_ms), p.predicted_ms) for p in predictions)
    rows.append(("Method::execute", *whole))
    empty = len(predictions) - len(forecast.predictions)
    faster = [Number(f"{times:.1f}x", times) for times in forecast.speedups]
    rows.append(("times faster by SME2", *[numbers.NOTHING] * empty, *faster))
    if forecast.speedup_range is not None:
        bounds = f"{forecast.speedup_range[0]:.1f} to {forecast.speedup_range[1]:.1f}"
        rows.append(("range", *[numbers.NOTHING] * (len(predictions) - 1), Number(bounds, None)))
    return Table("forecast", ("category", *forecast.columns), rows)


def _gaining(forecast: Forecast) -> list[Block]:
    """Return what each operator gains on the target, and why."""
    if not forecast.operators:
        return []
    rows: list[Row] = []
    for name, x in labelled(forecast.operators)[:_MOST_OPERATORS]:
        now, then = (Number(forecast_time(forecast, ms), ms) for ms in (x.ms, x.predicted_ms))
        rows.append((name, now, then, Number(numbers.times_faster(x.ms, x.predicted_ms), x.times), x.why))
    columns = ("operator", forecast.columns[0], "with SME2", "times faster", "why")
    return [Paragraph("The costliest operators that SME2 runs:"), Table("gains", columns, rows)]
