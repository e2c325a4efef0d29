"""How long each file of tests took when `make durations` last recorded it: sessions begin with the longest."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[1] / "durations.json"
# Files below it are left out, so that the record changes only where the order of a session could.
LEAST_S = 2


def recorded() -> dict[str, int]:
    """Return the seconds of files by their path from the root of the repository."""
    seconds: dict[str, int] = json.loads(FILE.read_text())
    return seconds


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by what their file took: no worker is left alone with a long one at the end."""
    seconds = recorded()
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


def record(reports: Iterable[object]) -> None:
    """Write what the files of a session took, setting up included; of files that it did not run nothing changes."""
    took = defaultdict[str, float](float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            took[report.nodeid.partition("::")[0]] += report.duration
    seconds = {**recorded(), **{path: round(duration) for path, duration in took.items()}}
    kept = sorted(((path, s) for path, s in seconds.items() if s >= LEAST_S), key=lambda entry: (-entry[1], entry[0]))
    FILE.write_text(json.dumps(dict(kept), indent=1) + "\n")
