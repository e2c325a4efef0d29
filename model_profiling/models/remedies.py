"""What usually helps when an export fails, by what torch and ExecuTorch say when it does: the table remedies.txt."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

_TABLE = Path(__file__).with_name("remedies.txt")


@dataclass(frozen=True)
class Remedy:
    """A kind of failure: its name in plain words, how its messages read, what to do, and if an input is at fault."""

    kind: str
    pattern: str
    advice: str
    of_input: bool


@functools.cache
def remedies() -> list[Remedy]:
    _, *entries = _TABLE.read_text(encoding="utf-8").split("\n\n")
    rows = [entry.strip().split("\n") for entry in entries]
    return [
        Remedy(kind.removeprefix("input: "), pattern, " ".join(advice), kind.startswith("input: "))
        for kind, pattern, *advice in rows
    ]


def find_remedy(kind: str, text: str) -> Remedy | None:
    """Return what is known of an error of this type with this text."""
    said = f"{kind}: {text}"
    return next((remedy for remedy in remedies() if re.search(remedy.pattern, said)), None)
