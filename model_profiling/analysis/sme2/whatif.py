"""What if (Amdahl): the latency and the next bottleneck when some parts become faster. A prediction, never a result."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from model_profiling.analysis.timing.breakdown import Breakdown
from model_profiling.base.errors import InputError
from model_profiling.base.records import by_key

# How many times faster or slower a part may be said to become, unless it is gone.
LEAST_SPEEDUP, MOST_SPEEDUP = 1e-6, 1e6


class Prediction(msgspec.Struct, frozen=True):
    """The time if each named category or operator ran so many times faster (inf: gone) and nothing else changed.

    `name` is what to call it beside others. `low_ms` and `high_ms` are the range of the predicted time, None where it
    stands on an assumption that has none.
    """

    speedups: dict[str, float]
    execute_ms: float
    predicted_ms: float
    ratio: float
    shares: dict[str, float]
    next_bottleneck: str
    label: Literal["prediction"] = "prediction"
    name: str = ""
    low_ms: float | None = None
    high_ms: float | None = None


def predict(breakdown: Breakdown, speedups: dict[str, float]) -> Prediction:
    """Divide each operator's time by its speedup: its own if named, else its category's, else 1."""
    names = {entry.operator for entry in breakdown.operators} | {entry.category for entry in breakdown.categories}
    alike = by_key((name.casefold(), name) for name in sorted(names))
    speedups = {_known(name, names, alike): value for name, value in speedups.items()}
    for name, value in speedups.items():
        if not (LEAST_SPEEDUP <= value <= MOST_SPEEDUP or value == math.inf):
            hint = f"Give a number from {LEAST_SPEEDUP:g} to {MOST_SPEEDUP:g}, for example 3 for three times faster."
            raise InputError(f"what-if speeds '{name}' up by {value}", hint)
    faster = [speedups.get(x.operator, speedups.get(x.category, 1.0)) for x in breakdown.instances]
    return apply_speedups(breakdown, speedups, faster)


def _known(name: str, names: set[str], by_folded: dict[str, list[str]]) -> str:
    """Return the name as the run has it, whatever its case."""
    alike = by_folded.get(name.strip().casefold(), [])
    if name in names or len(alike) == 1:
        return name if name in names else alike[0]
    if alike:
        raise InputError(
            f"what-if names '{name}', which several differ from only in case", f"Use {' or '.join(alike)}."
        )
    raise InputError(
        f"what-if names '{name}', which is neither a category nor an operator of this run",
        f"Known: {', '.join(sorted(names))}.",
    )


def apply_speedups(breakdown: Breakdown, speedups: dict[str, float], faster: Sequence[float]) -> Prediction:
    """Divide each operator's time by what `faster` says of its row; `speedups` says the same in words."""
    by_category = {entry.category: 0.0 for entry in breakdown.categories}
    for entry, times in zip(breakdown.instances, faster, strict=True):
        by_category[entry.category] += entry.ms / times
    total = sum(by_category.values())
    return Prediction(
        speedups=speedups,
        execute_ms=breakdown.execute_ms,
        predicted_ms=total,
        ratio=breakdown.execute_ms / total if total else 1.0,
        shares={name: ms / total if total else 0.0 for name, ms in by_category.items()},
        next_bottleneck=max(by_category, key=lambda name: by_category[name]),
    )


def parse_speedups(texts: list[str]) -> dict[str, float]:
    """Return `CONV=3` as a person types it, into names and numbers."""
    speedups = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            speedups[name] = float(value)
        except ValueError:
            raise InputError(f"what-if '{text}' is not NAME=SPEEDUP", "For example: CONV=3.") from None
    return speedups
