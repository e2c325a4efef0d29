"""How an amount of memory is written, in one place: analysis and reports show the same digits."""


def shown_mib(value: float) -> str:
    return f"{value / 2**20:.2f} MiB"
