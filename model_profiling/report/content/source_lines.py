"""Where in PyTorch an operator comes from, as reports write it."""

from collections.abc import Iterable

from model_profiling.analysis.timing.breakdown import InstanceTime

_MOST_PLACES = 2


def source(entry: InstanceTime | None) -> str:
    """Return module and line, as far as they are known."""
    return " ".join(part for part in (entry.module, entry.source_line) if part) if entry is not None else ""


def sources(entries: Iterable[InstanceTime | None]) -> str:
    """Return the first places of several operators, and how many more there are."""
    return some(source(entry) for entry in entries)


def some(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(text for text in texts if text))
    more = f" and {len(found) - _MOST_PLACES} more" if len(found) > _MOST_PLACES else ""
    return ", ".join(found[:_MOST_PLACES]) + more
