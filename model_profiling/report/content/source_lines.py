"""Where in PyTorch an operator comes from, as reports write it."""

from collections.abc import Iterable
from pathlib import Path

from model_profiling.analysis.timing.breakdown import InstanceTime

_MOST_PLACES = 2


def file_line(file: str, line: int) -> str:
    """Return `file:line` with the last two parts of the path, which tell the file; the rest is somebody's disk."""
    return f"{'/'.join(Path(file).parts[-2:])}:{line}" if file else ""


def source(entry: InstanceTime | None) -> str:
    """Return module and line, as far as they are known."""
    # ExecuTorch's own time belongs to no line, though a delegate call has the first one that it took over.
    if entry is None or entry.source is None or entry.where == "runtime":
        return ""
    parts = (entry.source.module, file_line(entry.source.file, entry.source.line))
    return " ".join(part for part in parts if part)


def sources(entries: Iterable[InstanceTime | None]) -> str:
    """Return the first places of several operators, and how many more there are."""
    return some(source(entry) for entry in entries)


def some(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(text for text in texts if text))
    more = f" and {len(found) - _MOST_PLACES} more" if len(found) > _MOST_PLACES else ""
    return ", ".join(found[:_MOST_PLACES]) + more
