"""How much to measure, as asked for: executions, launches, seconds, threads."""

from collections.abc import Callable, Sequence
from typing import get_args

from model_profiling.base.errors import InputError
from model_profiling.pipeline.config_types import MOST_LAUNCHES, PageCache
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.thread_counts import checked_threads


def checked_counts(
    runs: int | None,
    launches: int | None,
    budget_s: float | None,
    threads: int | Sequence[int] | None,
    spelled: Callable[[str], str] = lambda name: name,
    startup_launches: int | None = None,
    page_cache: PageCache = "warm",
) -> Counts:
    """Return what was asked for, if it can be had; `spelled` is how the user wrote each name."""
    for name, value in (("runs", runs), ("launches", launches)):
        if value is not None and value < 1:
            raise InputError(f"{spelled(name)} must be at least 1, not {value}", "Leave it out for the default.")
    if threads is not None:
        checked_threads([threads] if isinstance(threads, int) else list(threads), spelled("threads"))
    if launches is not None and launches > MOST_LAUNCHES:
        raise InputError(f"{spelled('launches')} must be at most {MOST_LAUNCHES}", "Leave it out for the default.")
    if budget_s is not None and not 0 < budget_s <= 1e6:
        raise InputError(
            f"{spelled('budget')} must be a number of seconds above 0, not {budget_s:g}", "For example 60."
        )
    if startup_launches is not None and not 0 <= startup_launches <= MOST_LAUNCHES:
        raise InputError(
            f"{spelled('startup_launches')} must be from 0 to {MOST_LAUNCHES}, not {startup_launches}",
            "Leave it out for the default; 0 measures no start-up.",
        )
    if page_cache not in get_args(PageCache):
        raise InputError(f"{spelled('page_cache')} is {page_cache!r}", f"Use {' or '.join(get_args(PageCache))}.")
    return Counts(runs, launches, budget_s, startup_launches, page_cache)
