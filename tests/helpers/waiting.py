"""Waiting for what another process does: long enough for any load, so that only what never comes fails."""

import time
from collections.abc import Callable
from typing import TypeVar

# A hang is longer than whatever a machine with other work takes; nothing is tested by it.
LONGEST_S = 900
_Found = TypeVar("_Found")


def until(true: Callable[..., _Found], *arguments: object) -> _Found:
    """Ask again and again until the answer is true, and return it; fails if it is not after minutes."""
    end = time.monotonic() + LONGEST_S
    while not (found := true(*arguments)):
        if time.monotonic() > end:
            raise AssertionError(f"did not come true within {LONGEST_S} s")
        time.sleep(0.02)
    return found
