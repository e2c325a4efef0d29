"""How numbers are written, in one place: Markdown, the page, pictures and the terminal show the same digits."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from model_profiling.base.units import rounded_ms, shown_mib, shown_ms
from model_profiling.report.blocks import Number

if TYPE_CHECKING:
    from model_profiling.analysis.compare.comparison import Change
    from model_profiling.analysis.process.scaling import ThreadSwitch
    from model_profiling.analysis.process.startup import Ratio

# An interval from half to twice, or wider, says nothing of a ratio.
_BOUNDS_NOTHING = 2
# An operator this far above its roof is above it for a reason, not by chance.
ABOVE_ROOF = 1.05

ms = shown_ms
mebibytes = shown_mib


def count(value: float) -> str:
    return f"{value:.0f}"


def share(value: float) -> str:
    """Return a part of the whole, as percent with one digit."""
    return f"{value * 100:.1f} %"


def of_roof(value: float | None) -> str:
    """Return which part of the best rate of a CPU an operator reaches; a dash where that is not known."""
    if value is None:
        return "-"
    return "above" if value > ABOVE_ROOF else f"{value * 100:.0f} %"


def rate(value: float) -> str:
    """Return G(FL)OP/s or GB/s, with as many digits as mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def percent(value: float) -> str:
    """Return a change that may go either way."""
    return f"{value:+.1f} %"


def difference(ms: float) -> str:
    """Return how much longer something takes, in milliseconds; what rounds to nothing has no minus."""
    return f"{round(ms, 3) + 0.0:+.3f}"


def ratio(value: float | None) -> str:
    """Return how many times faster; a dash where it cannot be said."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.2f}x"


def times_faster(before_ms: float, after_ms: float) -> str:
    """Return the quotient of two times that stand beside it, from the digits that are shown."""
    before, after = rounded_ms(before_ms), rounded_ms(after_ms)
    return ratio(before / after if before and after else None)


def bounded_ms(median: float, low: float | None, high: float | None) -> str:
    """Return `1.420 ms (1.400 to 1.440)`; the median alone where nothing bounds it."""
    return ms(median) if low is None or high is None else f"{ms(median)} ({low:.3f} to {high:.3f})"


def interval(low: float | None, high: float | None) -> str:
    """Return the bounds of a ratio; a dash where they are so far apart that they bound nothing."""
    if low is None or high is None or not math.isfinite(high) or (low * _BOUNDS_NOTHING < 1 < high / _BOUNDS_NOTHING):
        return "-"
    return f"{low:.2f} to {high:.2f}"


def speedup(value: float | None, low: float | None, high: float | None) -> str:
    """Return how many times faster; `~` where the interval includes 1, a dash where nothing is known."""
    if value is None:
        return "-"
    return ratio(value) if _tells(low, high) else "~"


def bounded_speedup(value: float | None, low: float | None, high: float | None) -> str:
    """Return `1.42x (1.40 to 1.44)`, `~` or a dash."""
    bounds = f" ({interval(low, high)})" if value is not None and _tells(low, high) else ""
    return speedup(value, low, high) + bounds


def _tells(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and (low > 1 or high < 1)


def spread(percent: float | None) -> str:
    """Return how much executions (MAD) or launches (standard deviation) differ; a dash for too few of them."""
    return "-" if percent is None else f"{percent:.1f} %"


# Cells of numbers that are not known, and of those that there are none of.
UNKNOWN, NOTHING = Number("-", None), Number("", None)


def cell(value: float | None, shown: Callable[[float], str]) -> Number:
    """Return a cell with a number as it is shown; a dash for one that is not known."""
    return UNKNOWN if value is None else Number(shown(value), value)


ms_cell = partial(cell, shown=ms)
share_cell = partial(cell, shown=share)
bytes_cell = partial(cell, shown=mebibytes)
count_cell = partial(cell, shown=str)


def speedup_cell(change: "Change | Ratio | ThreadSwitch") -> Number:
    return Number(bounded_speedup(change.ratio, change.low, change.high), change.ratio)
