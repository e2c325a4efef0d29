"""What a run says of SME2 for the page of a sweep: which operators have a kernel, and what is predicted."""

import msgspec

from model_profiling.analysis.run.dumps import AnalysisSummary, ExperimentAnalysis
from model_profiling.analysis.sme2.sme2_answer import Sme2Answer

_NOT_TRACED = "kernels were not traced; a cell on the emulator shows them"
_NO_OPERATORS = "the program has no CONV or GEMM operators"


class PredictedSme2(msgspec.Struct, frozen=True):
    """A prediction: the latency with SME2 as on `target`, and how many times faster SME2 makes the whole, with its
    range; None where the target's numbers give none."""

    median_ms: float | None
    speedup: float
    low: float | None
    high: float | None
    target: str


def traced_coverage(analysed: ExperimentAnalysis | None) -> tuple[float | None, str, str]:
    """Return percent, in words, and why it is not known."""
    found = analysed.coverage if analysed is not None else None
    if found is None:
        return None, "", _NOT_TRACED
    if found.on_sme2 is None:
        return None, "", found.unknown or _NOT_TRACED
    if not found.eligible:
        return None, "", _NO_OPERATORS
    return found.on_sme2 / found.eligible * 100, found.headline, ""


def known_coverage(name: str, summary: AnalysisSummary) -> tuple[float | None, str, str]:
    """Return the same of the table of known kernels; switching features does not change what a program has."""
    found = _answer(name, summary)
    if found is None or found.on_sme2 is None:
        return None, "", found.unknown if found is not None else _NOT_TRACED
    if not found.eligible:
        return None, "", _NO_OPERATORS
    return found.on_sme2 / found.eligible * 100, f"{found.headline} (known of ExecuTorch {found.executorch})", ""


def predicted_sme2(name: str, summary: AnalysisSummary) -> tuple[PredictedSme2 | None, str]:
    """Return what SME2 is predicted to gain, or why that is not known."""
    found = _answer(name, summary)
    if found is None:
        return None, "the run says nothing of SME2"
    forecast = found.forecast
    if forecast is None:
        return None, found.no_forecast or found.unknown or _NO_OPERATORS
    low, high = forecast.speedup_range or (None, None)
    return PredictedSme2(found.with_sme2_ms, forecast.speedups[-1], low, high, forecast.target), ""


def _answer(name: str, summary: AnalysisSummary) -> Sme2Answer | None:
    metrics = summary.metrics.experiments if summary.metrics is not None else {}
    kinds = {key: entry.phase.kind if entry.phase is not None else "" for key, entry in metrics.items()}
    alike = [found for found in summary.sme2 if kinds.get(found.experiment) == kinds.get(name)]
    return alike[0] if alike else None
