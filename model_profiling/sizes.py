"""How an amount of memory is written, in one place: analysis and reports show the same digits."""


def shown_mib(value: float) -> str:
    # Adding zero makes a plain 0.00 of what would be -0.00.
    return f"{round(value / 2**20, 2) + 0.0:.2f} MiB"
