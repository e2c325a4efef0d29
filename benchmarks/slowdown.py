"""Two programs, one of them known to be slower (slower_toy_cnn.py), and what a comparison says of them."""

from pathlib import Path

from model_profiling.analysis.timing.latency import Comparison, compare
from model_profiling.pipeline.group_state import MeasuredProgram
from model_profiling.pipeline.schedule import Counts
from model_profiling.pipeline.side_by_side import measure
from model_profiling.platforms.process_platform import LocalPlatform


def compare_in_turns(before: Path, after: Path, home: Path, runs: int = 60) -> Comparison:
    """Measure two programs in turns and compare them."""
    programs = {name: MeasuredProgram(pte, name, ()) for name, pte in (("before", before), ("after", after))}
    outcomes = measure(LocalPlatform(), programs, home, 1, lambda *_: None, counts=Counts(runs))
    return compare(("before", outcomes["before"].timed), ("after", outcomes["after"].timed), paired=True)
