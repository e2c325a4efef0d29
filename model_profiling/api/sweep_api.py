"""Open a sweep from its file, and choose what carries its jobs out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from model_profiling.base.on_progress import OnNote
from model_profiling.fleet.sweep.executor import Executor, LocalExecutor
from model_profiling.fleet.sweep.jobs import Job, Jobs
from model_profiling.fleet.sweep.sweep import MakeExecutor, Sweep
from model_profiling.fleet.sweep.sweep_file import load, parse


def open_sweep(
    asked: str | Path | Mapping[str, Any], out: str | Path | None = None, only: Sequence[str] = (), pages: bool = True
) -> Sweep:
    """Return a sweep by its file or its keys; results go to `out`, else where it says, else out_<name>. Without
    `pages`, neither its own is written nor those of its runs."""
    if isinstance(asked, Mapping):
        found, where, name = parse(dict(asked), "(given as a dictionary)"), "(given as a dictionary)", "sweep"
    else:
        path = Path(asked)
        found, where, name = load(path), str(path), path.stem
    home = Path(out or found.output or f"out_{name}")
    found = found if pages else msgspec.structs.replace(found, reports=False)
    return Sweep(found, where, home, home.name.removeprefix("out_"), only, pages)


def executor(ray: str | None = None) -> MakeExecutor:
    """Return child processes of this machine, or the jobs of a Ray cluster at an address."""

    def make(jobs: Jobs, todo: list[Job], on_note: OnNote) -> Executor:
        if ray is None:
            return LocalExecutor(jobs.folder, todo)
        from model_profiling.fleet.sweep.ray_executor import RayExecutor

        return RayExecutor(ray, jobs, todo, on_note)

    return make
