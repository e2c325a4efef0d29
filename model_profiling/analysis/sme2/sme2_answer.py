"""The record of what SME2 does for one experiment, or would do."""

import msgspec

from model_profiling.analysis.sme2.coverage import Level
from model_profiling.analysis.sme2.forecast_record import Evidence, Forecast
from model_profiling.analysis.timing.latency import Comparison


class NoKernel(msgspec.Struct, frozen=True):
    """Operators that get no SME2 kernel for one reason, and what would change that; '' if nothing is known to.

    `level` is what they run on instead, "unknown" where the table of known kernels has nothing of them. `source` is the
    line of the costliest of them.
    """

    why: str
    change: str
    level: Level
    operators: int
    ms: float
    share: float
    names: list[str]
    source: str = ""


class Sme2Answer(msgspec.Struct, frozen=True):
    """What SME2 does for one experiment. `evidence` is how it is known which operators it runs.

    `unknown` says why nothing is known of kernels; `forecast` is a prediction, and `no_forecast` says why there is
    none; `measured` is SME2 on against off, on a CPU that has it. `without_sme2_ms` and `with_sme2_ms` are the median
    latency as the forecast changes it; None where there is no latency or no forecast.
    """

    experiment: str
    evidence: Evidence
    executorch: str
    eligible: int
    on_sme2: int | None
    not_known: int
    work: int | None
    work_on_sme2: int | None
    headline: str
    unknown: str
    without: list[NoKernel]
    forecast: Forecast | None
    no_forecast: str
    measured: Comparison | None
    without_sme2_ms: float | None = None
    with_sme2_ms: float | None = None
