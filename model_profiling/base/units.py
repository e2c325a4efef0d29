"""How times, amounts of memory and numbers of things are written: analysis and reports show the same digits."""

# Below this, milliseconds with three decimals would leave one digit or none.
_FEW_DIGITS_MS = 0.01
# Below this, microseconds with one decimal would read 0.0.
_NOTHING_MS = 0.00005


def rounded_ms(value: float) -> float | None:
    """Return a time as its digits show it; None where they show that it is next to nothing."""
    if 0 < abs(value) < _FEW_DIGITS_MS:
        return round(value * 1000, 1) / 1000 if abs(value) >= _NOTHING_MS else None
    return round(value, 3)


def shown_ms(value: float) -> str:
    """Return milliseconds, or microseconds where milliseconds would read 0.00."""
    if 0 < abs(value) < _FEW_DIGITS_MS:
        # XNNPACK's clock has whole microseconds; a mean over executions is worth one digit more.
        return f"{value * 1000:.1f} us" if abs(value) >= _NOTHING_MS else "<0.1 us"
    return f"{value:.3f} ms" if value else "0 ms"


# Below this, mebibytes with two decimals would leave one digit or none.
_FEW_DIGITS_BYTES = 10 << 10


def shown_mib(value: float) -> str:
    """Return mebibytes, or kibibytes where mebibytes would read 0.00."""
    if 0 < abs(value) < _FEW_DIGITS_BYTES:
        return f"{value / 2**10:.1f} KiB" if abs(value) >= 52 else "<0.1 KiB"
    return f"{value / 2**20:.2f} MiB" if value else "0 MiB"


def shown_bytes(size: int) -> str:
    """Return megabytes, or kilobytes where megabytes would leave one digit or none: bytes that are moved."""
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"


def counted(number: int, one: str, many: str = "") -> str:
    """Return `number` with the noun that goes with it; `many` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
