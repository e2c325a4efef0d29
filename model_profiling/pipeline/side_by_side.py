"""Several programs on one device, taking turns as the experiments of one program do."""

from pathlib import Path

from model_profiling.pipeline.config import Experiment
from model_profiling.pipeline.execution import GroupRun, Outcome, Program, Report, clear_scratch
from model_profiling.pipeline.schedule import interleave
from model_profiling.platforms.base import Platform

_TIMEOUT_S = 600.0


def measure(
    platform: Platform,
    programs: dict[str, Program],
    home: Path,
    threads: int,
    runs: int,
    report: Report,
    traced: bool = False,
) -> dict[str, Outcome]:
    """Execute each program `runs` times, and some more with a tracer if asked; files are left in home/<name>."""
    runner = platform.runner(None)
    outcomes = {}
    for name, program in programs.items():
        experiment = Experiment(name, num_runs=runs, num_threads=threads)
        clear_scratch(home / name)
        (home / name).mkdir(parents=True)
        outcomes[name] = Outcome(program, experiment, runner, home / name)
    schedule = interleave([outcome.experiment for outcome in outcomes.values()], set(), seed=0, traced=traced)
    GroupRun(platform, schedule, outcomes, report, _TIMEOUT_S).run()
    for outcome in outcomes.values():
        if outcome.failure is not None:
            raise outcome.failure
    return outcomes
