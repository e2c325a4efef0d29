"""Series over time, the steps in them, and the programs that runs keep, with what comparing them side by side said."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from model_profiling.analysis.compare.program_changes import ProgramChanges
from model_profiling.analysis.timing.latency import Comparison
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.fleet.history.history_records import Point
from model_profiling.store import kept_programs
from model_profiling.store.artifacts import COMPARED, PROGRAMS
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


_HOW = ("platform", "device", "threads", "phase")
# No program is so many times slower than another.
_SLOWEST = 1e-9


class KeptPrograms:
    """What the run directories of a history keep."""

    def __init__(self, homes: Sequence[str]) -> None:
        self._homes = [Path(home) for home in homes]
        self._records: list[ProgramComparison] | None = None

    def program(self, sha256: str) -> Path | None:
        """Return the .pte of this hash; None if nobody kept it."""
        return next(
            (path for home in self._homes if (path := kept_programs.find_program(home, sha256)) is not None), None
        )

    def is_kept(self, sha256: str) -> bool:
        """Return whether there is a folder for it; whether it is unchanged, `program` finds out."""
        return any(kept_programs.home_of(home, sha256).is_dir() for home in self._homes)

    def comparison(self, series: Series, before: str, after: str) -> ProgramComparison | None:
        """Return the newest comparison of two programs, run as those of the series were and on the same device."""
        if self._records is None:
            self._records = []
            for path in (path for home in self._homes for path in sorted((home / PROGRAMS).glob(f"{COMPARED}*.json"))):
                with contextlib.suppress(KitError):
                    self._records += [read_comparison(path)] if not path.is_symlink() else []
        wanted = before, after, sorted(series.off), *(getattr(series, name) for name in _HOW)
        fitting = [
            each
            for each in self._records
            if (each.before, each.after, sorted(each.disable_features), *(getattr(each, name) for name in _HOW))
            == wanted
        ]
        return max(fitting, key=lambda each: each.created, default=None)

    def add(self, home: Path, record: ProgramComparison) -> Path:
        """Write a comparison down, where the later program is kept."""
        stamp = "".join(c for c in record.created if c.isdigit())[:14]
        name = f"{COMPARED}{record.before[:16]}_{record.after[:16]}_{stamp}.json"
        path = files.inside(home, home / PROGRAMS / name)
        files.write_json(path, record)
        self._records = None
        return path


def read_comparison(path: Path) -> ProgramComparison:
    record = files.read_json(path, ProgramComparison, "comparison of two programs")
    latency = record.latency
    bounds = () if latency.high is None else (latency.low, latency.high)
    if not all(_SLOWEST < value < 1 / _SLOWEST for value in (latency.ratio, *bounds)):
        raise InputError(f"{path} has a ratio that no comparison can have", "Remove it, and compare again.")
    return record
