"""Finds run directories: a folder with a manifest.json is one, and its earlier runs lie below it."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.base.errors import InputError
from model_profiling.base.on_progress import OnProgress, no_progress
from model_profiling.store.artifacts import ANALYSIS_SUMMARY, EARLIER, MANIFEST, METRICS, PROGRAMS, REPORT_PAGE

# What a run's row is made from; each changes by being replaced.
_FILES = (MANIFEST, METRICS, ANALYSIS_SUMMARY)
# After so many folders it is said how many there were.
_BETWEEN_WORDS = 20_000
# Folders that hold thousands of files of others.
_NOT_OURS = ("node_modules", "site-packages", "__pycache__", PROGRAMS)


@dataclass(frozen=True)
class FoundRun:
    """A run directory. `state` differs whenever a file that its row is made from does; `root` is the run directory
    whose latest or earlier run it is."""

    path: str
    root: str
    state: str
    has_metrics: bool
    has_summary: bool
    has_page: bool

    @property
    def earlier(self) -> bool:
        return self.path != self.root


@dataclass(frozen=True)
class Search:
    """All runs below some folders, and the run directories in which programs are kept."""

    runs: list[FoundRun]
    keeping: list[str]


def real_roots(folders: Sequence[str | Path]) -> list[str]:
    """Return where the folders are, each once, without those that lie in another of them."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(f"there is no folder {folder}", "Give one with runs in it, or nothing for this one.")
    places = sorted({os.path.realpath(folder) for folder in folders})
    return [place for place in places if not {*map(str, Path(place).parents)} & {*places}]


def search(roots: Sequence[str], on_progress: OnProgress = no_progress) -> Search:
    """Look at every folder once. Links are not followed, so that nothing outside is found and nothing twice."""
    found, looked = Search([], []), 0
    for root in roots:
        # The folder, and the run directory that it is an earlier run of, if it is.
        waiting: list[tuple[str, str]] = [(root, "")]
        while waiting:
            folder, owner = waiting.pop()
            looked += 1
            if looked % _BETWEEN_WORDS == 0:
                on_progress(f"looking for runs: {looked} folders", 0, 0)
            with contextlib.suppress(OSError):  # gone, or not ours to read
                waiting += _look(folder, owner, found)
    return found


def _look(folder: str, owner: str, found: Search) -> list[tuple[str, str]]:
    """Note what a folder is; returns the folders in it that are to be looked at."""
    inside, states, names = [], dict.fromkeys(_FILES, ""), set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in states and entry.is_file(follow_symlinks=False):
                seen = entry.stat(follow_symlinks=False)
                states[entry.name] = f"{seen.st_mtime_ns}.{seen.st_size}.{seen.st_ino}"
            elif entry.is_dir(follow_symlinks=False):
                inside.append(entry.name)
            elif entry.name == REPORT_PAGE:
                names.add(entry.name)
    if states[MANIFEST]:
        root = owner or folder
        state = " ".join(states.values())
        files = (bool(states[METRICS]), bool(states[ANALYSIS_SUMMARY]), REPORT_PAGE in names)
        found.runs.append(FoundRun(folder, root, state, *files))
        if not owner and PROGRAMS in inside:
            found.keeping.append(folder)
        # What else lies in a run directory are its experiments.
        inside = [EARLIER] if EARLIER in inside and not owner else []
        return [(f"{folder}/{name}", root) for name in inside]
    return [(f"{folder}/{name}", owner) for name in inside if name[0] != "." and name not in _NOT_OURS]
