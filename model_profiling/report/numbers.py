"""How numbers are written, in one place: Markdown, the page, pictures and the terminal show the same digits."""

import math


def ms(value: float) -> str:
    return f"{value:.3f} ms"


def share(value: float) -> str:
    """A part of the whole, as percent with one digit."""
    return f"{value * 100:.1f} %"


def percent(value: float) -> str:
    """A change that may go either way."""
    return f"{value:+.1f} %"


def ratio(value: float | None) -> str:
    """How many times faster; a dash where it cannot be said."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.2f}x"


def interval(low: float | None, high: float | None) -> str:
    if low is None or high is None or not math.isfinite(high):
        return "-"
    return f"{low:.2f} to {high:.2f}"


def mebibytes(value: float) -> str:
    return f"{value / 2**20:.2f} MiB"


def seconds(value: float) -> str:
    return f"{value:.1f} s"
