"""Numbers of things, in words: `1 delegate call`, `2 delegate calls`."""


def counted(number: int, one: str, many: str = "") -> str:
    """`number` with the noun that goes with it; `many` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
