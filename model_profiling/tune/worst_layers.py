"""Is it worth it to keep the layers that lose most in fp32? A few of them, more, all: time against accuracy."""

from collections.abc import Sequence
from dataclasses import replace

from model_profiling.analysis.accuracy.numerics import Numerics
from model_profiling.base.dtypes import FP32
from model_profiling.base.units import counted
from model_profiling.tune.formats import pareto
from model_profiling.tune.variants import TuneVariant

# Up to this number of layers every one is a step; more are taken twice as many at a time.
_ONE_BY_ONE = 4


def variants_of(base: TuneVariant, numerics: Numerics, most: int) -> list[TuneVariant]:
    """Return the worst layer in fp32, the worst two, and so on; and all of the model, the other end."""
    ranked = numerics.worst
    found: list[TuneVariant] = []
    for count in steps(min(most, len(ranked))):
        kept = tuple(dict.fromkeys(name for layer in ranked[:count] for name in layer.keep))
        if all(set(kept) != set(each.keep_fp32) for each in found):
            names = ", ".join(layer.place for layer in ranked[:count][:3]) + (" and more" if count > 3 else "")
            why = f"{counted(count, 'worst layer')} in fp32: {names}"
            found.append(replace(base, keep_fp32=kept, worst=count, reason=why))
    return [*found, replace(base, dtype=FP32, reason="all of it in fp32")]


def steps(most: int) -> list[int]:
    """Return 1, 2, 3, 4, 8, 16 and so on up to `most`, and `most` itself."""
    found = [*range(1, min(most, _ONE_BY_ONE) + 1)]
    while found and found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return sorted({*found, most}) if most else []


def best_of_both(results: Sequence[tuple[str, float | None, float | None]]) -> set[str]:
    """Return names of those that no other beats in both time and signal to noise; what is not known is as bad as can
    be.

    Each is a name, its median in ms and its SQNR in dB; no noise at all is given as infinity.
    """
    worst = float("-inf")
    qualities = {n: (-ms if ms is not None else worst, db if db is not None else worst) for n, ms, db in results}
    return pareto(qualities)
