"""How long work tells how far it is, and what is worth knowing about it: it prints nothing itself."""

from collections.abc import Callable

# Called with what is being done, how much of it is done, and how much there is; 0 where that is not known.
OnProgress = Callable[[str, int, int], None]
# Called with a sentence, without a full stop.
OnNote = Callable[[str], None]


def _log(sentence: str) -> None:
    """Say it where a program that uses the kit wants it, else on standard error."""
    import logging

    logging.getLogger("sme2_kit").warning(sentence)


_listener: list[OnNote] = [_log]


def say_note(sentence: str) -> None:
    """Say what comes up far from whoever asked: that a damaged cache was made again, that others measure."""
    _listener[0](sentence)


def listen_to_notes(on_note: OnNote = _log) -> None:
    """Have all such notes of this process told to `on_note`, else logged."""
    _listener[0] = on_note


def no_progress(label: str, done: int, total: int) -> None:
    """Ignore what is reported."""


def no_notes(sentence: str) -> None:
    """Ignore what is reported."""
