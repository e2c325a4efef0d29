"""What SME2 does for the model, or would do, for the first screen: kernels, prediction, what gets none and why."""

import msgspec

from model_profiling.analysis.run.run_view import RunView
from model_profiling.analysis.sme2.forecast_record import Forecast
from model_profiling.analysis.sme2.sme2_answer import NoKernel, Sme2Answer
from model_profiling.analysis.timing.breakdown import file_line
from model_profiling.report import numbers
from model_profiling.report.blocks import KeyFigure
from model_profiling.report.words import EVIDENCE, factor

_MOST_GROUPS = 3
_NOT_KNOWN = "not known"


def figures(run: RunView) -> list[KeyFigure]:
    """Return what there is to know, one fact a line; of a language model, of each of its phases."""
    return [figure for answer in run.sme2 for figure in _facts(run, answer)]


def _evidence(answer: Sme2Answer) -> str:
    return f"known of ExecuTorch {answer.executorch}" if answer.evidence == "table" else EVIDENCE[answer.evidence]


def _facts(run: RunView, answer: Sme2Answer) -> list[KeyFigure]:
    phase = run.phase(answer.experiment)
    found = [_kernels(answer)]
    if answer.eligible:
        if answer.measured is not None:
            found.append(KeyFigure("measured, on against off", *factor(answer.measured)))
        found += _predicted(answer)
        found += [_without(group, answer.eligible) for group in answer.without[:_MOST_GROUPS]]
    return [msgspec.structs.replace(f, label=f"{f.label} ({phase})") if phase else f for f in found]


def _kernels(answer: Sme2Answer) -> KeyFigure:
    label = "SME2 kernels"
    if not answer.eligible:
        return KeyFigure(label, "none", "the model has no CONV or GEMM operators: SME2 changes nothing")
    if answer.on_sme2 is None:
        return KeyFigure(label, _NOT_KNOWN, answer.unknown)
    least, parts = "at least " if answer.not_known else "", ["CONV and GEMM operators"]
    if answer.work and answer.work_on_sme2 is not None:
        parts.append(f"{least}{answer.work_on_sme2 / answer.work:.0%} of the multiply-accumulates")
    if answer.not_known:
        parts.append(f"{answer.not_known} not known")
    return KeyFigure(label, f"{answer.on_sme2} of {answer.eligible}", f"{', '.join(parts)} ({_evidence(answer)})")


def _predicted(answer: Sme2Answer) -> list[KeyFigure]:
    forecast = answer.forecast
    if forecast is None:
        # Where kernels are not known, that is said already.
        return [KeyFigure("predicted", _NOT_KNOWN, answer.no_forecast)] if not answer.unknown else []
    before, after = forecast.without or forecast.now, forecast.predictions[-1]
    return [
        KeyFigure("predicted", numbers.ratio(forecast.speedups[-1]), _whole(answer, forecast)),
        KeyFigure(
            "largest part then",
            after.next_bottleneck,
            f"{after.shares[after.next_bottleneck]:.0%} of the time; without SME2 {before.next_bottleneck} with "
            f"{before.shares[before.next_bottleneck]:.0%}",
        ),
    ]


def _whole(answer: Sme2Answer, forecast: Forecast) -> str:
    if not forecast.on_sme2:
        return "no operator would run on SME2, so nothing becomes faster by it"
    bounds = forecast.speedup_range
    told = f"{numbers.ratio(bounds[0])} to {numbers.ratio(bounds[1])}; " if bounds else ""
    step = " (on this machine, with fp16 arithmetic and i8mm)" if forecast.without else ""
    before, after = answer.without_sme2_ms, answer.with_sme2_ms
    times = "" if before is None or after is None else f"{numbers.ms(before)} to {numbers.ms(after)} "
    return f"{told}{times}as on {forecast.target}{step}"


def _without(group: NoKernel, eligible: int) -> KeyFigure:
    unknown = group.level == "unknown"
    change = f"; {group.change} has one" if group.change else ""
    file, _, line = group.source.rpartition(":")
    where = f" ({file_line(file, int(line))})" if file and group.level == "portable" else ""
    return KeyFigure(
        "SME2 kernel not known" if unknown else "no SME2 kernel",
        f"{group.operators} of {eligible}",
        f"{numbers.share(group.share)} of the time: {group.why}{where}{change}",
        detail=True,
    )
