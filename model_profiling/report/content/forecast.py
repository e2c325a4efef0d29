"""What SME2 would change here: predictions, from times measured without it and an emulated run's kernels."""

from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.forecast_record import Forecast, RemainingOperator
from model_profiling.report import numbers
from model_profiling.report.blocks import Block, Bullets, Cell, Number, Paragraph, Picture, Section, Table
from model_profiling.report.terminal.forecast_text import gaining_operators, left_operators, notes_of
from model_profiling.report.words import EVIDENCE

_CAPTION = "Above in milliseconds, below in percent of each bar."


def section(run: RunView) -> Section | None:
    if not run.forecasts:
        return None
    blocks: list[Block] = [
        Paragraph(
            f"A prediction, not a measurement. Which operators SME2 runs is {EVIDENCE[run.forecasts[0].evidence]}. "
            "How much faster each becomes follows from its dtype and shape on a machine with SME2; nothing else is "
            "assumed to change, and times are in this machine's milliseconds."
        )
    ]
    for forecast in run.forecasts:
        blocks += [
            Paragraph(
                f"{run.label(forecast.experiment)}: SME2 would run {forecast.on_sme2} of {forecast.eligible} CONV and "
                f"GEMM operators, which take {numbers.share(forecast.share)} of the time now."
            ),
            *([Picture("forecast", _CAPTION)] if forecast is run.forecasts[0] else []),
            *_whole(forecast),
            _table(forecast),
            *_gaining(forecast),
            Paragraph("The costliest operators that SME2 does not run:"),
            Bullets([_left(name, entry) for name, entry in left_operators(forecast)]),
        ]
    blocks += [Paragraph(f"Note: {note}.") for note in notes_of(run.forecasts)]
    return Section("forecast", "With SME2 (predicted)", blocks)


def _left(name: str, entry: RemainingOperator) -> str:
    why = f"; {entry.why_not}" if entry.why_not else ""
    return f"{name} ({entry.category}): {numbers.ms(entry.ms)}{why}"


def _table(forecast: Forecast) -> Table:
    predictions = forecast.stages
    rows: list[tuple[Cell, ...]] = [
        (name, *(Number(numbers.share(p.shares[name]), p.shares[name]) for p in predictions))
        for name in forecast.now.shares
    ]
    rows.append(("Method::execute", *(Number(numbers.ms(p.predicted_ms), p.predicted_ms) for p in predictions)))
    before = forecast.now.predicted_ms
    faster = (Number(numbers.times_faster(before, p.predicted_ms), p.ratio) for p in predictions)
    rows.append(("times faster than now", *faster))
    return Table("forecast", ("category", *forecast.columns), rows)


def _whole(forecast: Forecast) -> list[Block]:
    """Return what SME2 alone gains on a target, with the range that the target's numbers give."""
    bounds = forecast.speedup_range
    if bounds is None or not forecast.on_sme2:
        return []
    gain = f"{numbers.ratio(forecast.speedups[-1])} ({numbers.ratio(bounds[0])} to {numbers.ratio(bounds[1])})"
    return [Paragraph(f"SME2 as on {forecast.target} would make the whole {gain} faster.")]


def _gaining(forecast: Forecast) -> list[Block]:
    """Return what each operator gains on the target, and why."""
    if not forecast.operators:
        return []
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            Number(numbers.ms(x.ms), x.ms),
            Number(numbers.ms(x.predicted_ms), x.predicted_ms),
            Number(numbers.times_faster(x.ms, x.predicted_ms), x.times),
            x.why,
        )
        for name, x in gaining_operators(forecast)
    ]
    columns = ("operator", "now", "with SME2", "times faster", "why")
    return [Paragraph("The costliest operators that SME2 runs:"), Table("gains", columns, rows)]
