"""Retention: which earlier runs and kept programs may go, and removing them. The latest run of a directory stays."""

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from model_profiling.base import files
from model_profiling.base.errors import KitError
from model_profiling.fleet.history.run_history import RunHistory
from model_profiling.store import runs
from model_profiling.store.artifacts import PROGRAMS

_DIGITS = 16
# What is called otherwise, somebody else has put there.
_PROGRAM = re.compile(f"[0-9a-f]{{{_DIGITS}}}")


class Removable(msgspec.Struct, frozen=True):
    """An earlier run, or a kept program that no run would name any more. `bytes` counts what lies only there."""

    path: str
    what: str
    why: str
    bytes: int


def removable(history: RunHistory, before: float | None, keep_last: int | None) -> list[Removable]:
    """Return what may go: of the chosen runs the earlier ones that are older than `before` and not among the last of
    their kind (model, dtype, variant, platform, device); then programs that none of the rest of every run names."""
    every, search = history.every, history.search
    readable = {run.path for run in every}
    earlier = {found.path for found in search.runs if found.earlier}
    place: dict[tuple[str, ...], int] = {}
    going: dict[str, str] = {}
    for run in sorted(history.chosen, key=lambda run: (-run.at, run.path)):
        kind = (run.model, run.dtype, run.variant, run.platform, run.device)
        place[kind] = place.get(kind, 0) + 1
        old = before is None or run.at < before
        surplus = keep_last is None or place[kind] > keep_last
        if run.path in earlier and old and surplus:
            going[run.path] = f"{run.model} {run.dtype}, {run.created}"
    found = [Removable(path, "run", why, _bytes(Path(path))) for path, why in going.items()]
    named = {run.sha256[:_DIGITS] for run in every if run.path not in going}
    unsure = {found.root for found in search.runs if found.path not in readable}
    for home in search.keeping:
        # What an unreadable or interrupted run needs, nobody can say.
        if home not in unsure and not any(runs.interrupted_runs(Path(home))):
            found += [
                Removable(str(path), "program", "no run names it", _bytes(path))
                for path in sorted((Path(home) / PROGRAMS).iterdir())
                if _PROGRAM.fullmatch(path.name) and path.is_dir() and not path.is_symlink() and path.name not in named
            ]
    return found


def _bytes(directory: Path) -> int:
    """Return bytes of files with no second name elsewhere."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            state = path.lstat()
            total += state.st_size if state.st_nlink == 1 else 0
    return total


def remove(entries: Sequence[Removable]) -> list[str]:
    """Remove these; what could not be removed is said in words."""
    problems = []
    for entry in entries:
        path = Path(entry.path)
        try:
            if entry.what == "run":
                # <run directory>/earlier/<label>
                runs.remove(path.parents[1], path.name)
            else:
                home = path.parents[1]
                with files.locked(home, "pipeline"):
                    shutil.rmtree(files.inside(home, path))
        except (KitError, OSError) as error:
            problems.append(f"{entry.path}: {error}")
    return problems
