"""The record of a forecast: what SME2 would change in one experiment. All of it is predicted."""

from typing import Literal

import msgspec

from model_profiling.analysis.sme2.whatif import Prediction
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


# Where it is from which operators SME2 takes: the table of known kernels, an emulated CPU, or one that has SME2.
Evidence = Literal["table", "emulated", "traced"]


class Forecast(msgspec.Struct, frozen=True):
    """One experiment's time if SME2 took the operators that `evidence` says, which need `on_sme2_ms` now.

    `target` is the machine whose gains are taken, '' where they are assumed. `without` is the time on a CPU that has
    all that the target has but SME2, None where that is what was measured: SME2 gains on top of that. Times are in this
    machine's milliseconds: the target's speed in all else is not predicted.
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
        before, after = (self.without or self.now).predicted_ms, self.predictions[-1]
        return (before / after.high_ms, before / after.low_ms) if after.low_ms and after.high_ms else None

    @property
    def share(self) -> float:
        """Which part of the time is in the operators that SME2 takes."""
        return self.on_sme2_ms / self.now.execute_ms if self.now.execute_ms else 0.0

    @property
    def columns(self) -> list[str]:
        """What to call `now` and each prediction."""
        return ["now", *(stage.name for stage in self.stages[1:])]
