"""The flags that say how much to measure: executions, launches, seconds."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_profiling.pipeline.schedule import Counts


def prepare_parser(parser: argparse.ArgumentParser, of: str) -> None:
    """`of` says what is counted, for example "per experiment"."""
    parser.add_argument("--runs", type=int, metavar="N", help=f"timed runs {of}, over all launches (default: chosen)")
    parser.add_argument("--launches", type=int, metavar="N", help=f"processes started {of} (default: chosen)")
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="time for all runs; counts that are not given are chosen (30)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="default: 1")


def counts(args: argparse.Namespace) -> "Counts":
    """What the user asked for, checked."""
    from model_profiling.errors import InputError
    from model_profiling.pipeline.config import MOST_LAUNCHES
    from model_profiling.pipeline.schedule import Counts

    for flag, value in (("--runs", args.runs), ("--launches", args.launches), ("--threads", args.threads)):
        if value is not None and value < 1:
            raise InputError(f"{flag} must be at least 1, not {value}", "Leave it out for the default.")
    if args.launches is not None and args.launches > MOST_LAUNCHES:
        raise InputError(f"--launches must be at most {MOST_LAUNCHES}", "More launches add little; leave it out.")
    if args.budget is not None and not 0 < args.budget <= 1e6:
        raise InputError(
            f"--budget must be a number of seconds above 0, not {args.budget:g}", "For example --budget 60."
        )
    return Counts(args.runs, args.launches, args.budget)


def given(args: argparse.Namespace) -> bool:
    """Whether any of the flags was used."""
    return any(value is not None for value in (args.runs, args.launches, args.budget, args.threads))
