"""What commands say beside their answer."""

from collections.abc import Iterable

from model_profiling.derived import Outdated, notes
from model_profiling.saying import warn


def tell_outdated(outdated: Iterable[Outdated]) -> None:
    """Say which earlier files what was just written outdates."""
    warn("".join(f"note: {sentence}\n" for sentence in notes(list(outdated))))
