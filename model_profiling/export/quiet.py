"""Keep what torch and ExecuTorch say to themselves off the user's terminal, but keep it."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def kept_off_terminal(loud: bool) -> Iterator[io.StringIO]:
    """Collect prints, warnings and log records in the returned buffer; when `loud`, let them through instead."""
    said = io.StringIO()
    if loud:
        yield said
        return
    # torch gives its logger a handler of its own, bound to the stderr of the moment torch was imported.
    loggers = [logging.getLogger(), logging.getLogger("torch")]
    before = [logger.handlers[:] for logger in loggers]
    handler = logging.StreamHandler(said)
    for logger in loggers:
        logger.handlers[:] = [handler]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            yield said
    finally:
        for logger, handlers in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
