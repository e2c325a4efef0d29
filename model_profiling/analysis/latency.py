"""Latency of one experiment, and two experiments held against each other with an honest interval."""

import math
from statistics import NormalDist
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from model_profiling.run_directory import ExperimentRecord, Samples, Turn

Verdict = Literal["faster", "slower", "no difference seen"]
_RESAMPLES = 4000
_LEAST_TURNS = 4


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


class Comparison(msgspec.Struct, frozen=True):
    """`after` against `before`: ratio is how many times faster `after` is; low and high bound it."""

    before: str
    after: str
    ratio: float
    low: float
    high: float
    confidence: float
    verdict: Verdict
    # The smallest change, in percent, that this run could have told from none.
    resolution_percent: float
    paired: bool
    turns: int


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
    )


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
    low, high = 0.0, math.inf
    if turns >= _LEAST_TURNS:
        picks = generator.integers(0, len(first), (_RESAMPLES, len(first)))
        other = picks if paired else generator.integers(0, len(second), (_RESAMPLES, len(second)))
        ratios = _medians(first, picks) / _medians(second, other)
        tail = _widened_tail(confidence, turns)
        low, high = (float(value) for value in np.quantile(ratios, [tail, 1 - tail]))
    verdict: Verdict = "faster" if low > 1 else "slower" if high < 1 else "no difference seen"
    width = (high - low) / 2 / ratio * 100 if math.isfinite(high) else math.inf
    return Comparison(before_name, after_name, ratio, low, high, confidence, verdict, width, paired, turns)


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
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    v = turns - 1
    t = z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)  # Cornish-Fisher expansion of t
    return NormalDist().cdf(-t * math.sqrt(turns / v))
