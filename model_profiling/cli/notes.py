"""What commands say beside their answer."""

from collections.abc import Iterable

from model_profiling.base.printing import warn
from model_profiling.store.derived import OutdatedFile, notes


def note(sentence: str) -> None:
    """Say something worth knowing that is no part of the answer."""
    warn(f"note: {sentence}\n")


def tell_outdated(outdated: Iterable[OutdatedFile]) -> None:
    """Say which earlier files what was just written outdates."""
    for sentence in notes(list(outdated)):
        note(sentence)
