"""Series over time, the steps in them, and what comparing programs said of those."""

from typing import Literal

import msgspec

from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.fleet.history.history_records import Point
from model_profiling.store.made_by import Maker
from model_profiling.store.run_directory import LatencySource

StepState = Literal["candidate", "confirmed", "refuted", "same program", "program not kept"]


class ProgramComparison(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="compared_programs", tag_field="kind"
):
    """compared_….json beside kept programs: two of them, by their hashes, measured side by side when somebody asked
    whether the later one is slower. `latency` is that of the later against the earlier one."""

    before: str
    after: str
    platform: str
    device: str
    threads: int
    disable_features: list[str]
    phase: str
    created: str
    kit_version: str
    latency: Comparison
    schema: int = 1
    # None if the kit that wrote it did not say.
    maker: Maker | None = None
    # What the difference consists of, by line: the largest changes, traced. None: not traced.
    changes: ProgramChanges | None = None

    @property
    def slower(self) -> bool:
        return self.latency.reliable and self.latency.verdict == "slower"

    @property
    def faster(self) -> bool:
        return self.latency.reliable and self.latency.verdict == "faster"

    @property
    def percent(self) -> float:
        """By how much the later program takes longer."""
        return (1 / self.latency.ratio - 1) * 100


class Step(msgspec.Struct, frozen=True):
    """A step in a series: `percent` more from the point at `index` on. Until `state` says that it is confirmed it is no
    regression, and where both sides are one program it never is: `differences` then says what else changed.

    `p_value` is how likely a series without a step looks like this.
    """

    index: int
    created: str
    percent: float
    before_ms: float
    after_ms: float
    p_value: float
    state: StepState
    before_sha256: str
    after_sha256: str
    before_path: str
    after_path: str
    commits: tuple[str, str]
    sentence: str
    differences: list[str] = []
    comparison: ProgramComparison | None = None
    # The versions of ExecuTorch on both sides, if both are known.
    executorch: tuple[str, str] | None = None


class Series(msgspec.Struct, frozen=True):
    """What may be compared over time: one model and dtype, exported with the same options, run in the same way on one
    device. `off` are the features that were switched off."""

    model: str
    dtype: str
    variant: str
    platform: str
    device: str
    experiment: str
    threads: int
    off: list[str]
    phase: str
    latency_source: LatencySource
    points: list[Point]
    steps: list[Step] = []

    @property
    def title(self) -> str:
        """`toy_cnn fp16, linux_fp16arith_on` and what else is not usual."""
        dtype = "" if self.dtype == "unknown" else f" {self.dtype}"
        parts = [f"{self.model}{dtype}", self.variant, self.experiment, self.phase]
        return ", ".join(part for part in (*parts, "" if self.threads == 1 else f"{self.threads} threads") if part)


class Trend(msgspec.Struct, frozen=True, tag="trend", tag_field="kind"):
    """Series over time, and the steps in them."""

    series: list[Series]
    schema: int = 1


class Regression(msgspec.Struct, frozen=True):
    """A step and the series that it is in."""

    series: str
    model: str
    platform: str
    device: str
    step: Step
