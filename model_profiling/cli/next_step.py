"""How commands end: where the page is, and the command to type next, which can be copied at any width."""

import contextlib
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.installation import relative_to_here
from model_profiling.base.printing import columns

if TYPE_CHECKING:
    from model_profiling.analysis.run.run_view import RunView

_LABEL = "  next:      "
# Commands that are run as stages of another one: only that one says how to go on.
_outer: list[str] = []


def ending(page: Path | None = None, following: Iterable[object] = ()) -> str:
    """Return the last lines of a command: `report:` where there is a page, `next:` where there is a next step."""
    if _outer:
        return ""
    words = [relative_to_here(word) if isinstance(word, Path) else word for word in following]
    report = f"  report:    {relative_to_here(page)}\n" if page is not None else ""
    return report + (next_command(*words) if words else "")


@contextlib.contextmanager
def as_stage(of: str) -> Iterator[None]:
    """Let what is run here end without `report:` and `next:`, because it is a stage `of` another command."""
    _outer.append(of)
    try:
        yield
    finally:
        _outer.pop()


def after_run(run: "RunView") -> list[object]:
    """Return what comes after a run: which kernels SME2 would use, of an emulated one the time that it takes."""
    program = run.manifest.model.file()
    if program is None:
        return ["graph", run.path]
    return ["kernels" if run.manifest.timing == "measured" else "run", program]


def page_of(directory: Path) -> Path | None:
    """Return the report page of a run, if one was written."""
    from model_profiling.store.artifacts import REPORT_PAGE

    page = directory / REPORT_PAGE
    return page if page.is_file() else None


def next_command(*words: object) -> str:
    """Return `next: sme2-kit …`; where that is too wide, the shell's backslash ends each line."""
    width = columns()
    parts = [shlex.quote(str(word)) for word in ("sme2-kit", *words)]
    return "\n".join(_broken(parts, width)) + "\n" if width else f"{_LABEL}{' '.join(parts)}\n"


def _broken(parts: Iterable[str], width: int) -> list[str]:
    lines = [_LABEL.rstrip(" ")]
    for part in parts:
        # Room for " \\" behind it.
        if len(lines[-1]) + 1 + len(part) + 2 > width and lines[-1] != _LABEL.rstrip(" "):
            lines[-1] += " \\"
            lines.append(f"{'':<6}{part}")
        else:
            lines[-1] = f"{lines[-1]:<{len(_LABEL) - 1}} {part}" if len(lines) == 1 else f"{lines[-1]} {part}"
    return lines
