"""How long work tells how far it is, and what is worth knowing about it: it prints nothing itself."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

# Called with what is being done, how much of it is done, and how much there is; 0 where that is not known.
OnProgress = Callable[[str, int, int], None]
# Called with a sentence, without a full stop.
OnNote = Callable[[str], None]


def _log(sentence: str) -> None:
    """Say it where a program that uses the kit wants it, else on standard error."""
    import logging

    logging.getLogger("sme2_kit").warning(sentence)


_listener: list[OnNote] = [_log]
# A wait is worth a sentence after so long, and another one now and then.
_SAY_AFTER_S, _SAY_AGAIN_S = 1.0, 60.0
_steps = threading.local()


def say_note(sentence: str) -> None:
    """Say what comes up far from whoever asked: that a damaged cache was made again, that others measure."""
    _listener[0](sentence)


def listen_to_notes(on_note: OnNote = _log) -> None:
    """Have all such notes of this process told to `on_note`, else logged."""
    _listener[0] = on_note


@contextlib.contextmanager
def long_step(doing: str) -> Iterator[None]:
    """Say what this thread does or waits for, once it takes longer than a second; steps within it are not told."""
    if getattr(_steps, "doing", "") or not doing:
        yield
        return
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        words, pause = doing, _SAY_AFTER_S
        while not ended.wait(pause):
            say_note(words)
            pause = _SAY_AGAIN_S
            words = f"{doing}: {time.monotonic() - began + pause:.0f} s so far"

    thread = threading.Thread(target=tell, daemon=True)
    with contextlib.suppress(RuntimeError):  # where no thread can be started, nothing is said
        thread.start()
    _steps.doing = doing
    try:
        yield
    finally:
        _steps.doing = ""
        ended.set()
        if thread.is_alive():
            thread.join()


def no_progress(label: str, done: int, total: int) -> None:
    """Ignore what is reported."""


def no_notes(sentence: str) -> None:
    """Ignore what is reported."""
