"""A runner that is not the kit's: it is launched for so many executions, and its times are read from its ETDump."""

from pathlib import Path

from model_profiling.base.errors import RunError
from model_profiling.formats import etdump
from model_profiling.platforms.base import LaunchRequest, Platform
from model_profiling.runner.protocol import Done, Features, Ready

NOTE = "foreign runner: launches alternate, and latency is Method::execute with the tracer attached"


class LaunchedSession:
    """Keeps the Session protocol as far as a runner can that only takes a model and a number of executions."""

    features = Features("", "", [], [], [], [])
    ready = Ready("", 0, 0, [], [], [], [])
    preempted = 0
    resident = 0
    life_ns = 0

    def __init__(self, platform: Platform, request: LaunchRequest) -> None:
        assert request.etdump is not None
        self._platform = platform
        self._request = request
        self._etdump = request.etdump
        self._runs = 0
        self._peak = 0

    def run(self, count: int, settle: int = 0) -> list[int]:
        """Launch it; its warm-up executions are left out of what is returned, and are all that settle it."""
        request = self._request
        self._peak = self._platform.launch(request, request.warmup + count)
        if not self._etdump.is_file():
            hint = "Build it with the event tracer on (EXECUTORCH_ENABLE_EVENT_TRACER)."
            raise RunError(f"the runner {request.runner.path} wrote no ETDump", hint)
        times = execution_times(self._etdump)
        if len(times) != request.warmup + count:
            raise RunError(
                f"the runner executed {len(times)} times, not {request.warmup + count}", f"Its log is {request.log}."
            )
        self._runs += count
        return times[request.warmup :]

    def finish(self) -> Done:
        return Done(self._runs, [], peak=self._peak)

    def close(self) -> None:
        """Do nothing: nothing stays open between launches."""


def execution_times(path: Path) -> list[int]:
    """Return the duration of each `Method::execute` of a dump, in nanoseconds."""
    dump = etdump.read(path)
    nesting = etdump.nest(dump)
    return [int(value) for value in dump.events.duration[nesting.executions]]
