"""Several programs on one device, taking turns as the experiments of one program do."""

from pathlib import Path

from model_profiling.on_progress import OnProgress
from model_profiling.pipeline.account import Account, Outcome, Program
from model_profiling.pipeline.collecting import clear_directory, collect
from model_profiling.pipeline.config import Experiment
from model_profiling.pipeline.execution import GroupRun
from model_profiling.pipeline.schedule import CHOSEN, Counts, lanes_of
from model_profiling.platforms.base import Platform

_TIMEOUT_S = 600.0


def measure(
    platform: Platform,
    programs: dict[str, Program],
    home: Path,
    threads: int,
    report: OnProgress,
    traced: bool = False,
    counts: Counts = CHOSEN,
) -> dict[str, Outcome]:
    """Time each program, and execute it some more with a tracer if asked; files are left in home/<name>.

    How they start is measured if the counts say how often.
    """
    runner = platform.runner(None)
    outcomes = {}
    for name, program in programs.items():
        experiment = Experiment(
            name,
            num_runs=counts.runs,
            num_threads=threads,
            launches=counts.launches,
            startup_launches=counts.startup_launches,
            page_cache=counts.page_cache,
        )
        clear_directory(home / name)
        (home / name).mkdir(parents=True)
        outcomes[name] = Outcome(program, experiment, runner, home / name)
    experiments, startups = [outcome.experiment for outcome in outcomes.values()], bool(counts.startup_launches)
    lanes = lanes_of(experiments, set(), traced=traced, startups=startups)
    GroupRun(platform, Account(lanes, outcomes), report, _TIMEOUT_S, counts.budget_s).run()
    for outcome in outcomes.values():
        collect(outcome, outcome.scratch)
        if outcome.failure is not None:
            raise outcome.failure
    return outcomes
