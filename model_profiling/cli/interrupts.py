"""What Ctrl-C and SIGTERM do to a command, and the exit code that says so."""

from os import _exit, write  # before a model's file is loaded, and puts another in its place

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType

# A shell's name for a process that a signal ended is this and the signal's number.
_SIGNALS = 128
# What comes sooner is the same wish: a wrapper passes on what the terminal sent to all, or somebody pressed twice.
_AGAIN_S = 1.0
_received: list[tuple[int, float]] = []


def interruption_code() -> int:
    """Return what a process ends with that was interrupted: 130 after Ctrl-C, 143 after SIGTERM."""
    return _SIGNALS + (_received[-1][0] if _received else 2)


def was_interrupted() -> bool:
    """Return whether a signal has asked this process to end; what fails from then on fails because of that."""
    return bool(_received)


def listen(handler: "Callable[[int, FrameType | None], object] | signal.Handlers") -> None:
    """Let both signals that end a command do this; a job in the background goes on ignoring Ctrl-C."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def interrupt(number: int, frame: "FrameType | None") -> None:
    """End as Ctrl-C does: processes are ended, settings put back, and what is finished is kept.

    Whoever asks again does not wait for that, nor for a model that goes on: the watcher ends what was started, and the
    next command puts back the rest.
    """
    import time

    if not _received:
        _received.append((number, time.monotonic()))
        raise KeyboardInterrupt
    if time.monotonic() - _received[0][1] > _AGAIN_S:
        try:
            write(2, b"error: interrupted\n")
        finally:
            _exit(interruption_code())
