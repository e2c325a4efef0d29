"""Progress where nobody gave a callback: a bar in a notebook, nothing anywhere else."""

import contextlib
import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from model_profiling.base.on_progress import OnProgress, no_progress

_SECONDS_BETWEEN = 0.2


@contextlib.contextmanager
def notebook_progress(given: OnProgress | None) -> Iterator[OnProgress]:
    """Provide the caller's callback; without one, a bar in a notebook, which is removed when the work is done."""
    if given is not None:
        yield given
    elif not in_notebook():
        yield no_progress
    else:
        bar = _Bar()
        try:
            yield bar.show
        finally:
            bar.remove()


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel; IPython is asked only where it is loaded already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


class _Bar:
    """One line of HTML that is replaced now and then."""

    def __init__(self) -> None:
        display: Any = importlib.import_module("IPython.display")
        self._html = display.HTML
        self._handle = display.display(self._html(_line("preparing", 0, 0)), display_id=True)
        self._last = 0.0

    def show(self, label: str, done: int, total: int) -> None:
        if time.monotonic() - self._last > _SECONDS_BETWEEN:
            self._handle.update(self._html(_line(label, done, total)))
            self._last = time.monotonic()

    def remove(self) -> None:
        self._handle.update(self._html(""))


def _line(label: str, done: int, total: int) -> str:
    from model_profiling.api.records import escaped

    amount = f' value="{done}" max="{total}"' if total > 0 else ""
    count = f" {done}/{total}" if total > 1 else ""
    return f"<progress{amount}></progress> {escaped(label)}{count}"
