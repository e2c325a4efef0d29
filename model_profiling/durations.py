"""How a time is written, in one place: analysis and reports show the same digits."""

# Below this, milliseconds with three decimals would leave one digit or none.
_FEW_DIGITS_MS = 0.01
# Below this, microseconds with one decimal would read 0.0.
_NOTHING_MS = 0.00005


def rounded_ms(value: float) -> float | None:
    """A time as its digits show it; None where they show that it is next to nothing."""
    if 0 < abs(value) < _FEW_DIGITS_MS:
        return round(value * 1000, 1) / 1000 if abs(value) >= _NOTHING_MS else None
    return round(value, 3)


def shown_ms(value: float) -> str:
    """Milliseconds, or microseconds where milliseconds would read 0.00."""
    if 0 < abs(value) < _FEW_DIGITS_MS:
        # XNNPACK's clock has whole microseconds; a mean over executions is worth one digit more.
        return f"{value * 1000:.1f} us" if abs(value) >= _NOTHING_MS else "<0.1 us"
    return f"{value:.3f} ms" if value else "0 ms"
