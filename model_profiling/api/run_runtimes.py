"""The model of a run in other runtimes: measured once, kept in its directory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.api.loaded_run import Run
from model_profiling.api.runtime_comparing import (
    RuntimesRequest,
    measure_runtimes,
    program_source,
    refuse_platform,
    runtime_choices,
)
from model_profiling.base import files
from model_profiling.base.errors import InputError, KitError
from model_profiling.base.on_progress import OnProgress
from model_profiling.pipeline.schedule import Counts
from model_profiling.platforms.base import Platform
from model_profiling.runtimes.runtime_table import EXECUTORCH
from model_profiling.store.artifacts import RUNTIMES


@dataclass(frozen=True)
class OtherRuntimes:
    """Which runtimes to measure besides a run; `load` gives a module that is only in memory."""

    names: Sequence[str | Path]
    counts: Counts
    threads: int = 1
    inputs: Sequence[Path] = ()
    load: Callable[[], Any] | None = None
    force: bool = False

    @property
    def request(self) -> RuntimesRequest:
        """ExecuTorch is always one of them: a run is of it."""
        names = self.names if EXECUTORCH in map(str, self.names) else [EXECUTORCH, *self.names]
        return RuntimesRequest(runtime_choices(names), self.counts, self.threads, tuple(map(Path, self.inputs)))


def refuse_runtimes(names: Sequence[str | Path], platform: Platform, executorch: Sequence[str]) -> None:
    """Refuse what cannot work, before anything is exported or measured."""
    runtime_choices(names)
    refuse_platform(platform)
    if executorch:
        raise InputError("other runtimes are measured beside the installed ExecuTorch", "Leave --executorch out.")


def measure_beside(run: Run, others: OtherRuntimes, platform: Platform, report: OnProgress) -> str:
    """Measure a run's program beside other runtimes and keep the result; returns a remark if it was there already.

    What the run has is saved whatever happens to the runtimes.
    """
    asked, program = others.request, run.program
    try:
        if program is None:
            raise InputError(f"{run.manifest.model.path} has changed since it was measured", "Measure it again.")
        if not others.force and run.runtimes is not None and run.runtimes.asked == asked.identity:
            return "reused existing results of other runtimes (use --force to measure again)"
        found = measure_runtimes(asked, program_source(program, others.load), platform, report)
    except (KitError, KeyboardInterrupt):
        run.save()
        raise
    files.write_json(run.path / RUNTIMES, found)
    run.take_inputs()
    return ""
