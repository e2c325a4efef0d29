"""Keep what torch and ExecuTorch say to themselves off the user's terminal, but keep it.

Only what the exporting thread says: other threads of the caller's process print, warn and log as before.
"""

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

_lock = threading.Lock()
# The threads that are listened to, each with the buffer for its words.
_listening: dict[int, io.StringIO] = {}


class _Switch(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr: a thread that is listened to writes to its buffer, all others through."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._through: Any = getattr(sys, name)

    def _target(self) -> Any:
        buffer = _listening.get(threading.get_ident())
        if buffer is not None:
            return buffer
        # Whoever kept this object (a log handler made while torch was imported) writes where one writes by then.
        current = getattr(sys, self._name)
        return self._through if current is self else current

    def write(self, text: str) -> int:
        target = self._target()
        return int(target.write(text)) if target is not None else len(text)

    def flush(self) -> None:
        target = self._target()
        if target is not None and not getattr(target, "closed", False):
            target.flush()

    def isatty(self) -> bool:
        return bool(self._target().isatty())

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target(), name)


class _Aside(logging.Filter):
    """Takes one thread's records from a handler and keeps them."""

    def __init__(self, said: io.StringIO) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._said = said

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        self._said.write(f"{record.getMessage()}\n")
        return False


@contextlib.contextmanager
def kept_off_terminal(loud: bool) -> Iterator[io.StringIO]:
    """Collect this thread's prints, warnings and log records in the returned buffer; when `loud`, let them through."""
    said = io.StringIO()
    if loud:
        yield said
        return
    # torch gives its logger a handler of its own, bound to the stderr of the moment torch was imported.
    handlers = [*logging.getLogger().handlers, *logging.getLogger("torch").handlers]
    aside, thread = _Aside(said), threading.get_ident()
    for handler in handlers:
        handler.addFilter(aside)
    with _lock:
        outer = _listening.get(thread)
        _listening[thread] = said
        for name in ("stdout", "stderr"):
            if not isinstance(getattr(sys, name), _Switch):
                setattr(sys, name, _Switch(name))
    try:
        with warnings.catch_warnings():
            yield said
    finally:
        for handler in handlers:
            handler.removeFilter(aside)
        with _lock:
            if outer is not None:
                _listening[thread] = outer
            else:
                del _listening[thread]
            for name in ("stdout", "stderr"):
                switch = getattr(sys, name)
                # Somebody may have put a stream of their own there meanwhile: that one stays.
                if not _listening and isinstance(switch, _Switch):
                    setattr(sys, name, switch._through)
