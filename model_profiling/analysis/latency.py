"""Latency of one experiment, and two experiments held against each other with an honest interval."""

import math
from statistics import NormalDist
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.analysis.intervals import student_t
from model_profiling.run_directory import ExperimentRecord, Samples, Turn

Verdict = Literal["faster", "slower", "no difference seen"]
_RESAMPLES = 4000
_LEAST_TURNS = 4
# Two processes of the same program differ by as much, for as long as they live, because their memory lies elsewhere.
# No number of turns shows that, so a smaller difference is never claimed.
_BETWEEN_PROCESSES = 0.005
# A busy machine does not slow all things alike: a long execution is interrupted where a short one slips through.
# Medians are of undisturbed executions while fewer than half are interrupted (22 % and 40 % have been seen beside a
# right ratio, 82 % beside a wrong one); past this share it comes too close, however narrow the interval.
# Counted are those that lost over a fiftieth of their time.
_MOST_PREEMPTED = 0.3


class Latency(msgspec.Struct, frozen=True):
    """The spread of an experiment's executions, in milliseconds. Outliers are counted and kept."""

    runs: int
    median_ms: float
    mad_ms: float
    trimmed_mean_ms: float
    mean_ms: float
    min_ms: float
    max_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    cv_percent: float
    outliers: int
    # How much slower the last turns were than the first, in percent, as a line through the turns' medians sees it.
    drift_percent: float = 0.0
    # What a reader must know before believing the rest, in words.
    warnings: list[str] = []


class Comparison(msgspec.Struct, frozen=True):
    """`after` against `before`: ratio is how many times faster `after` is; low and high bound it.

    `high` and `resolution_percent` are None where too few turns bound nothing.
    """

    before: str
    after: str
    ratio: float
    low: float
    high: float | None
    confidence: float
    verdict: Verdict
    # The smallest change, in percent, that this run could have told from none.
    resolution_percent: float | None
    paired: bool
    turns: int
    # Whether other work kept taking the processor away: then neither ratio nor interval can be relied on.
    contended: bool = False
    # What the device went through that the verdict has to be read with, in words.
    caveats: list[str] = []


def latency_turns(record: ExperimentRecord, samples: Samples) -> list[Turn]:
    """The turns that may be called latency: without a tracer, save where a foreign runner has no others."""
    if record.latency_source == "traced executions":
        return samples.traced
    return samples.timed


def summarise(turns: list[Turn]) -> Latency:
    """Describe all executions of all turns together."""
    ms = np.sort(np.array([ns for turn in turns for ns in turn.ns], dtype=np.float64) / 1e6)
    median = float(np.median(ms))
    mad = float(np.median(np.abs(ms - median)))
    cut = int(len(ms) * 0.1)
    q1, q3 = np.percentile(ms, [25, 75])
    fence = 3.0 * (q3 - q1)
    mean = float(ms.mean())
    drift = _drift_percent(turns)
    return Latency(
        runs=len(ms),
        median_ms=median,
        mad_ms=mad,
        trimmed_mean_ms=float(ms[cut : len(ms) - cut].mean()),
        mean_ms=mean,
        min_ms=float(ms[0]),
        max_ms=float(ms[-1]),
        p90_ms=float(np.percentile(ms, 90)),
        p95_ms=float(np.percentile(ms, 95)),
        p99_ms=float(np.percentile(ms, 99)),
        cv_percent=float(ms.std() / mean * 100) if mean else 0.0,
        outliers=int(np.sum((ms < q1 - fence) | (ms > q3 + fence))),
        drift_percent=drift,
        warnings=_warnings(turns, ms, drift),
    )


def _drift_percent(turns: list[Turn]) -> float:
    """The median slope through all pairs of turns (Theil and Sen), over the whole run: outliers do not sway it."""
    medians = np.array([np.median(turn.ns) for turn in turns])
    if len(medians) < _LEAST_TURNS:
        return 0.0
    i, j = np.triu_indices(len(medians), 1)
    slope = float(np.median((medians[j] - medians[i]) / (j - i)))
    return slope * (len(medians) - 1) / float(np.median(medians)) * 100


def _warnings(turns: list[Turn], ms: npt.NDArray[np.float64], drift: float) -> list[str]:
    """Say what makes these executions hard to believe: drift, a warm-up that was too short, noise."""
    found = []
    medians = np.array([np.median(turn.ns) for turn in turns])
    spread = float(np.median(np.abs(medians - np.median(medians))) / np.median(medians) * 100)
    # Drift counts only where it stands out from how much turns differ anyway.
    if abs(drift) > max(2.0, 4 * spread):
        found.append(f"latency drifted by {drift:+.1f} % over the run: heat, a changing clock or a neighbour")
    if len(medians) >= _LEAST_TURNS and medians[0] > 1.1 * np.median(medians[1:]):
        found.append("the first turn was over 10 % slower than the rest: warm-up was too short")
    middle = float(np.median(ms))
    noise = float(np.median(np.abs(ms - middle))) / middle * 100 if middle else 0.0
    if noise > 5:
        found.append(f"executions vary by {noise:.0f} % (MAD): the machine is busy or its clock unsteady")
    if _preempted(turns) > _MOST_PREEMPTED:
        found.append(f"other work took the processor away in {_preempted(turns):.0%} of the executions: run it alone")
    if len(ms) < 10:
        found.append(f"only {len(ms)} executions: take at least 10")
    return found


def compare(
    before: tuple[str, list[Turn]], after: tuple[str, list[Turn]], paired: bool, confidence: float = 0.95, seed: int = 0
) -> Comparison:
    """Ratio of medians with a bootstrap interval that resamples turns, not runs: runs of one turn are not independent.

    Paired means that turn n of both was measured side by side, so both are resampled together and common drift
    cancels. With few turns a percentile bootstrap is too sure of itself; the interval is widened as Student's t is.
    """
    (before_name, before_turns), (after_name, after_turns) = before, after
    generator = np.random.default_rng(seed)
    if paired:
        common = sorted({t.turn for t in before_turns} & {t.turn for t in after_turns})
        before_turns = [t for t in before_turns if t.turn in set(common)]
        after_turns = [t for t in after_turns if t.turn in set(common)]
    first, second = _matrix(before_turns), _matrix(after_turns)
    ratio = float(np.nanmedian(first) / np.nanmedian(second))
    turns = min(len(first), len(second))
    low, high, width = 0.0, None, None
    verdict: Verdict = "no difference seen"
    if turns >= _LEAST_TURNS:
        picks = generator.integers(0, len(first), (_RESAMPLES, len(first)))
        other = picks if paired else generator.integers(0, len(second), (_RESAMPLES, len(second)))
        ratios = _medians(first, picks) / _medians(second, other)
        tail = _widened_tail(confidence, turns)
        low, high = (float(value) for value in np.quantile(ratios, [tail, 1 - tail]))
        sure = 1 + _BETWEEN_PROCESSES
        verdict = "faster" if low > sure else "slower" if high < 1 / sure else "no difference seen"
        width = max((high - low) / 2 / ratio, _BETWEEN_PROCESSES) * 100
    contended = any(_preempted(side) > _MOST_PREEMPTED for side in (before_turns, after_turns))
    return Comparison(
        before_name, after_name, ratio, low, high, confidence, verdict, width, paired, turns, contended=contended
    )


def _preempted(turns: list[Turn]) -> float:
    """The share of executions in which other work took the processor away."""
    return sum(turn.preempted for turn in turns) / max(1, sum(len(turn.ns) for turn in turns))


def _matrix(turns: list[Turn]) -> npt.NDArray[np.float64]:
    """One row per turn; turns with fewer runs are filled up with NaN, which medians ignore."""
    width = max(len(turn.ns) for turn in turns)
    rows = np.full((len(turns), width), np.nan)
    for row, turn in zip(rows, turns, strict=True):
        row[: len(turn.ns)] = turn.ns
    return rows


def _medians(rows: npt.NDArray[np.float64], picks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    drawn = rows[picks].reshape(len(picks), -1)
    result: npt.NDArray[np.float64] = np.nanmedian(drawn, axis=1) if np.isnan(rows).any() else np.median(drawn, axis=1)
    return result


def _widened_tail(confidence: float, turns: int) -> float:
    """The tail to cut on each side: that of a normal quantile stretched to Student's t with `turns - 1` degrees."""
    return NormalDist().cdf(-student_t(confidence, turns - 1) * math.sqrt(turns / (turns - 1)))
