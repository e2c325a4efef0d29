"""How long work tells how far it is, and what is worth knowing about it: it prints nothing itself."""

from collections.abc import Callable

# Called with what is being done, how much of it is done, and how much there is; 0 where that is not known.
OnProgress = Callable[[str, int, int], None]
# Called with a sentence, without a full stop.
OnNote = Callable[[str], None]


def no_progress(label: str, done: int, total: int) -> None:
    """For whoever does not want to know."""


def no_notes(sentence: str) -> None:
    """For whoever does not want to know."""
