"""Latency of one experiment, and two experiments held against each other with an honest interval."""

import itertools
import math
from typing import Literal

import msgspec
import numpy as np

from model_profiling.analysis.timing import intervals
from model_profiling.base.units import counted
from model_profiling.store.run_directory import BUSY_SHARE, ExperimentRecord, Samples, Turn, preempted_share

Verdict = Literal["faster", "slower", "no difference seen"]
_LEAST_TURNS = 4
_MOST_POINTS = 500


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
    # From how many processes the executions are, and how much their medians differ (standard deviation, in percent);
    # None: one launch does not tell.
    launches: int = 1
    launch_spread_percent: float | None = None
    # What a reader must know before believing the rest, in words.
    warnings: list[str] = []
    # The share of executions in which other work took the processor away.
    preempted: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether other work took the processor away so often that medians cannot be relied on."""
        return self.preempted > BUSY_SHARE

    @property
    def mad_percent(self) -> float | None:
        """The MAD in percent of the median, so that the spreads of slow and fast models compare."""
        return self.mad_ms / self.median_ms * 100 if self.median_ms > 0 else None


class Comparison(msgspec.Struct, frozen=True):
    """`after` against `before`: `ratio` is how many times faster `after` is, `before_ms` over `after_ms`, both medians.

    `low` and `high` bound the ratio; `high` and `resolution_percent` are None where too few turns bound nothing.
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
    before_ms: float = 0.0
    after_ms: float = 0.0
    # Launches of the side that had fewer, and how much the medians of launches differ (the larger of the two sides'
    # standard deviations); None: too few launches to tell, and the interval rests on an assumed spread.
    launches: int = 1
    launch_spread_percent: float | None = None
    # Where too few turns bound nothing: between which ratios executions place it, if launches differ as is assumed.
    estimate: tuple[float, float] | None = None

    @property
    def reliable(self) -> bool:
        """Whether the verdict may be acted on."""
        return self.high is not None and not self.contended


def latency_turns(record: ExperimentRecord, samples: Samples) -> list[Turn]:
    """Return the turns that may be called latency: without a tracer, save where a foreign runner has no others."""
    return samples.traced if record.latency_source == "traced executions" else samples.timed


def summarise(turns: list[Turn]) -> Latency:
    """Describe all executions of all turns together."""
    ms = np.sort(_executions(turns) / 1e6)
    q1, q3, p90, p95, p99 = np.percentile(ms, [25, 75, 90, 95, 99]).tolist()
    median = float(np.median(ms))
    mad = float(np.median(np.abs(ms - median)))
    cut, fence, mean = int(len(ms) * 0.1), 3.0 * (q3 - q1), float(ms.mean())
    of_turns, medians = _turn_medians(turns), launch_medians_of(turns)
    drift = _drift_percent(of_turns)
    return Latency(
        runs=len(ms),
        median_ms=median,
        mad_ms=mad,
        trimmed_mean_ms=float(ms[cut : len(ms) - cut].mean()),
        mean_ms=mean,
        min_ms=float(ms[0]),
        max_ms=float(ms[-1]),
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        cv_percent=float(ms.std(ddof=1) / mean * 100) if mean and len(ms) > 1 else 0.0,
        outliers=int(np.sum((ms < q1 - fence) | (ms > q3 + fence))),
        drift_percent=drift,
        launches=len(medians),
        launch_spread_percent=_spread_percent(medians),
        warnings=_warnings(turns, of_turns, len(ms), mad / median * 100 if median else 0.0, drift),
        preempted=preempted_share(turns),
    )


def _drift_percent(medians: intervals.Numbers) -> float:
    """Return the median slope over the whole run, through the medians of all pairs of turns (Theil and Sen)."""
    if len(medians) < _LEAST_TURNS:
        return 0.0
    if len(medians) > _MOST_POINTS:
        # A line through so many points needs no more; all pairs of more would be quadratic.
        medians = np.array([np.median(part) for part in np.array_split(medians, _MOST_POINTS)])
    i, j = np.triu_indices(len(medians), 1)
    slope = float(np.median((medians[j] - medians[i]) / (j - i)))
    return slope * (len(medians) - 1) / float(np.median(medians)) * 100


def _warnings(turns: list[Turn], medians: intervals.Numbers, executions: int, noise: float, drift: float) -> list[str]:
    """Say what makes these executions hard to believe: drift, a warm-up that was too short, noise (both in percent)."""
    found = []
    spread = float(np.median(np.abs(medians - np.median(medians))) / np.median(medians) * 100)
    # Drift counts only where it stands out from how much turns differ anyway.
    if abs(drift) > max(2.0, 4 * spread):
        found.append(
            f"latency drifted by {drift:+.1f} % over the run: throttling, a changing clock frequency or other load"
        )
    launch = np.array([turn.launch for turn in turns])
    first = np.concatenate(([True], launch[1:] != launch[:-1]))
    if (
        len(medians) >= _LEAST_TURNS
        and not first.all()
        and np.median(medians[first]) > 1.1 * np.median(medians[~first])
    ):
        found.append("the first turn of a launch is over 10 % slower than the rest: warm-up was too short")
    if noise > 5:
        found.append(f"executions vary by {noise:.0f} % (MAD): the machine is busy or its clock frequency changes")
    if preempted_share(turns) > BUSY_SHARE:
        found.append(
            f"other processes preempted {preempted_share(turns):.0%} of the executions: stop them and measure again"
        )
    if executions < 10:
        found.append(f"only {counted(executions, 'execution')}: take at least 10")
    return found


def compare(before: tuple[str, list[Turn]], after: tuple[str, list[Turn]], paired: bool) -> Comparison:
    """Return the ratio of medians with an interval over launches, which alone are independent of each other.

    Paired means that launch n of both ran side by side, turn by turn, so that common drift cancels.
    """
    sides = [before[1], after[1]]
    if paired and (common := {t.turn for t in before[1]} & {t.turn for t in after[1]}):
        sides = [[turn for turn in side if turn.turn in common] for side in sides]
    executions = [_executions(side) for side in sides]
    medians = [np.median(each) for each in executions]
    ratio = float(medians[0] / medians[1])
    turns = min(map(len, sides))
    launches = [launch_medians_of(side) for side in sides]
    counts = len(launches[0]), len(launches[1])
    low, high, width, estimate, spread = 0.0, None, None, None, None
    verdict: Verdict = "no difference seen"
    if turns >= _LEAST_TURNS:
        beside = paired and {turn.launch for turn in sides[0]} == {turn.launch for turn in sides[1]}
        bounds = intervals.log_ratio_bounds(np.log(launches[0]), np.log(launches[1]), beside)
        if bounds is None:
            logs = [np.log(_turn_medians(side)) for side in sides]
            reach = intervals.assumed_reach(logs[0], logs[1], counts, paired and len(logs[0]) == len(logs[1]))
            bounds = math.log(ratio) - reach, math.log(ratio) + reach
        margin = 1 + intervals.IN_COMMON
        # The ratio shown and the middle of the launches estimate one thing: where they disagree, neither is certain.
        low, high = min(math.exp(bounds[0]), ratio) / margin, max(math.exp(bounds[1]), ratio) * margin
        verdict, width = judge(ratio, low, high)
        if intervals.enough_launches(*counts, beside):
            spread = max(_spread_percent(side) or 0.0 for side in launches)
    elif min(each.size for each in executions) > 1:
        reach = intervals.assumed_reach(np.log(executions[0]), np.log(executions[1]), counts, False)
        estimate = ratio * math.exp(-reach), ratio * math.exp(reach)
    return Comparison(
        *(before[0], after[0], ratio, low, high, intervals.CONFIDENCE, verdict, width, paired, turns),
        contended=any(preempted_share(side) > BUSY_SHARE for side in sides),
        before_ms=float(medians[0]) / 1e6,
        after_ms=float(medians[1]) / 1e6,
        launches=min(counts),
        launch_spread_percent=spread,
        estimate=estimate,
    )


def judge(ratio: float, low: float, high: float) -> tuple[Verdict, float]:
    """Return the verdict on an interval, and the smallest change, in percent, that could have been told from none."""
    margin = 1 + intervals.IN_COMMON
    verdict: Verdict = "faster" if low > margin else "slower" if high < 1 / margin else "no difference seen"
    return verdict, ((high - low) / 2 / ratio + intervals.IN_COMMON) * 100


def _executions(turns: list[Turn]) -> intervals.Numbers:
    return np.fromiter(itertools.chain.from_iterable(turn.ns for turn in turns), np.float64)


def _turn_medians(turns: list[Turn]) -> intervals.Numbers:
    """Return one median per turn, in order; without numpy, which takes its time for each of a hundred thousand."""
    ordered = (sorted(turn.ns) for turn in turns)
    return np.array([(ns[(len(ns) - 1) // 2] + ns[len(ns) // 2]) / 2 for ns in ordered])


def launch_medians_of(turns: list[Turn]) -> intervals.Numbers:
    """Return the median of each launch, in nanoseconds."""
    launches: dict[int, list[int]] = {}
    for turn in turns:
        launches.setdefault(turn.launch, []).extend(turn.ns)
    return np.array([np.median(launches[number]) for number in sorted(launches)])


def _spread_percent(medians: intervals.Numbers) -> float | None:
    """Return how much launches differ, in percent: a standard deviation, from the median deviation so that one
    disturbed launch does not make it; None for fewer than three."""
    if len(medians) < 3:
        return None
    logs = np.log(medians)
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))) * 100)


def preempted_traces(samples: Samples, stops_clock: bool) -> float:
    """Return the share of traced executions in which other work took time that operators' times do not leave out."""
    return 0.0 if stops_clock else preempted_share(samples.traced)
