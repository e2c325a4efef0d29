"""What stands beside a program may fail: it is left out, one line says so, and the program is made all the same."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from model_profiling.base.errors import KitError

_left_out: ContextVar[dict[str, str] | None] = ContextVar("left_out", default=None)


def what_is_left_out() -> dict[str, str]:
    """Collect from here on what is left out, and why."""
    found: dict[str, str] = {}
    _left_out.set(found)
    return found


@contextlib.contextmanager
def beside(what: str) -> Iterator[None]:
    """Do something that the program does not need; `what` says what is missing without it."""
    try:
        yield
    except (KitError, OSError, MemoryError):  # what the kit itself refuses, or the system
        raise
    except Exception as error:  # noqa: BLE001 - torch and ExecuTorch raise whatever they like
        leave_out(what, error)


def leave_out(what: str, error: Exception) -> None:
    if (found := _left_out.get()) is not None:
        found[what] = shortly(error)


def is_left_out(what: str) -> bool:
    return what in (_left_out.get() or {})


def shortly(error: Exception) -> str:
    """Return what an error is, in one line."""
    said = next(iter(str(error).strip().splitlines()), "")[:200]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
