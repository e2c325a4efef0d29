"""How an amount of memory is written, in one place: analysis and reports show the same digits."""

# Below this, mebibytes with two decimals would leave one digit or none.
_FEW_DIGITS = 10 << 10


def shown_mib(value: float) -> str:
    """Mebibytes, or kibibytes where mebibytes would read 0.00."""
    if 0 < abs(value) < _FEW_DIGITS:
        return f"{value / 2**10:.1f} KiB" if abs(value) >= 52 else "<0.1 KiB"
    return f"{value / 2**20:.2f} MiB" if value else "0 MiB"
