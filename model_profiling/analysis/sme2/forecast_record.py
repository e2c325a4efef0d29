"""The record of a forecast: what SME2 would change in one experiment. All of it is predicted."""

from typing import Literal

import msgspec

from model_profiling.analysis.sme2.coverage import Level
from model_profiling.analysis.sme2.whatif import Prediction
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.analysis.timing.profile import Part


class RemainingOperator(msgspec.Struct, frozen=True):
    """An operator that SME2 leaves as it is; `why_not` is said of those that it might have taken."""

    name: str
    category: Part
    kind: str
    instruction: int
    ms: float
    why_not: str
    # Where it is from, as far as the ETRecord tells.
    module: str = ""
    source_line: str = ""


class PredictedOperator(msgspec.Struct, frozen=True):
    """An operator that SME2 runs: its time now, predicted with its range, the quotient of the two, and why so many."""

    name: str
    category: Part
    kind: str
    instruction: int
    ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    times: float
    why: str
    label: Literal["prediction"] = "prediction"
    # Where it is from, as far as the ETRecord tells.
    module: str = ""
    source_line: str = ""


# What a forecast stands on: times that this Arm CPU took, or a program alone, with the prices of an Arm core.
Basis = Literal["measured", "modelled"]
# Where it is from which operators SME2 takes: the table of known kernels, an emulated CPU, or one that has SME2.
Evidence = Literal["table", "emulated", "traced"]


class Forecast(msgspec.Struct, frozen=True):
    """One experiment's time if SME2 took the operators that `evidence` says, which need `on_sme2_ms` now.

    `target` is the machine whose gains are taken, '' where they are assumed. `without` is the time on a CPU that has
    all that the target has but SME2, None where that is what `now` is: SME2 gains on top of that.

    `ratio` is what SME2 alone gains on the whole, with its range on a target. Where the `basis` is "measured", times
    are this machine's. Where it is "modelled" they are those predicted of `core`, which say how parts compare: nothing
    that this machine took is in them.
    """

    experiment: str
    eligible: int
    on_sme2: int
    on_sme2_ms: float
    now: Prediction
    predictions: list[Prediction]
    left: list[RemainingOperator]
    notes: list[str]
    label: Literal["prediction"] = "prediction"
    target: str = ""
    without: Prediction | None = None
    operators: list[PredictedOperator] = []
    evidence: Evidence = "emulated"
    basis: Basis = "measured"
    core: str = ""
    ratio: float = 1.0
    ratio_low: float | None = None
    ratio_high: float | None = None

    @property
    def stages(self) -> list[Prediction]:
        """What to show beside each other: now, without SME2 if that differs, and each prediction."""
        return [self.now, *([self.without] if self.without else []), *self.predictions]

    @property
    def speedups(self) -> list[float]:
        """What SME2 alone gains on the whole, for each prediction."""
        before = (self.without or self.now).predicted_ms
        return [before / prediction.predicted_ms if prediction.predicted_ms else 1.0 for prediction in self.predictions]

    @property
    def speedup_range(self) -> tuple[float, float] | None:
        """The range of what SME2 alone gains on a target; None where it is assumed."""
        return None if self.ratio_low is None or self.ratio_high is None else (self.ratio_low, self.ratio_high)

    @property
    def share(self) -> float:
        """Which part of the time is in the operators that SME2 takes."""
        return self.on_sme2_ms / self.now.execute_ms if self.now.execute_ms else 0.0

    @property
    def columns(self) -> list[str]:
        """What to call `now` and each prediction."""
        return ["now" if self.basis == "measured" else "without SME2", *(stage.name for stage in self.stages[1:])]


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
