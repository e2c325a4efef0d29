"""A runner that is not the kit's: launched anew for every turn, its times read from the ETDump of each launch."""

import dataclasses
from pathlib import Path

from model_profiling import etdump, files
from model_profiling.errors import RunError
from model_profiling.platforms.base import Platform, Request
from model_profiling.runner.protocol import Done, Features, Ready

NOTE = "foreign runner: launches alternate, and latency is Method::execute with the tracer attached"


class LaunchedSession:
    """Keeps the Session protocol as far as a runner can that only takes a model and a number of executions."""

    features = Features("", "", [], [], [], [])
    ready = Ready("", 0, 0, [], [], [], [])
    preempted = 0

    def __init__(self, platform: Platform, request: Request) -> None:
        assert request.etdump is not None
        self._platform = platform
        self._request = request
        self._home = request.etdump
        self._launches: list[Path] = []
        self._runs = 0

    def run(self, count: int) -> list[int]:
        """Launch once; the warm-up executions of every launch are left out of what is returned."""
        dump = self._home.with_name(f"{self._home.name}.launch{len(self._launches)}")
        request = dataclasses.replace(self._request, etdump=dump)
        self._platform.launch(request, request.warmup + count)
        if not dump.is_file():
            raise RunError(
                f"the runner {request.runner.path} wrote no ETDump",
                "Build it with the event tracer on (EXECUTORCH_ENABLE_EVENT_TRACER).",
            )
        times = execution_times(dump)
        if len(times) != request.warmup + count:
            raise RunError(
                f"the runner executed {len(times)} times, not {request.warmup + count}", f"Its log is {request.log}."
            )
        self._launches.append(dump)
        self._runs += count
        return times[request.warmup :]

    def finish(self) -> Done:
        """Keep the first launch's ETDump as the experiment's; the others were needed for their times only."""
        files.write_bytes(self._home, self._launches[0].read_bytes())
        for dump in self._launches:
            dump.unlink()
        return Done(self._runs, self._home.stat().st_size, [])

    def close(self) -> None:
        """Nothing stays open between launches."""


def execution_times(path: Path) -> list[int]:
    """The duration of each `Method::execute` of a dump, in nanoseconds."""
    dump = etdump.read(path)
    nesting = etdump.nest(dump)
    return [int(value) for value in dump.events.duration[nesting.executions]]
