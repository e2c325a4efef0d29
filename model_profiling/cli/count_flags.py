"""The flags that say how much to measure: executions, launches, seconds."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_profiling.pipeline.schedule import Counts


def prepare_parser(parser: argparse.ArgumentParser, of: str, several: bool = False, threads: bool = True) -> None:
    """Add the flags; `of` says what is counted, for example "per experiment"; with `several`, a run may have more
    thread counts, and without `threads` they are not the user's to choose."""
    parser.add_argument("--runs", type=int, metavar="N", help=f"timed runs {of}, over all launches (default: chosen)")
    parser.add_argument("--launches", type=int, metavar="N", help=f"processes started {of} (default: chosen)")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="time for all runs; counts that are not given are chosen (default: 30)",
    )
    if not threads:
        parser.set_defaults(threads=None)
    elif several:
        text = "threads of the model (default: 1); several, as in 1,2,4, are run side by side and compared"
        parser.add_argument("--threads", type=thread_counts, metavar="N[,N...]", help=text)
    else:
        parser.add_argument("--threads", type=int, metavar="N", help="threads of the model (default: 1)")


def thread_counts(text: str) -> list[int]:
    """Return `1,2,4` as numbers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are no numbers of threads, such as 1,2,4") from None


def prepare_startup(parser: argparse.ArgumentParser, default: str = "10, or as the budget allows") -> None:
    """Add the flags of start-up measurements."""
    parser.add_argument(
        "--startup-launches",
        type=int,
        metavar="N",
        help=f"extra launches that measure start-up; 0: none (default: {default})",
    )
    parser.add_argument(
        "--page-cache",
        choices=("warm", "cold"),
        help="for these: the .pte in the system's page cache, as after an earlier start, or dropped from it "
        "(default: warm)",
    )


def counts(args: argparse.Namespace) -> "Counts":
    """Return what the user asked for, checked."""
    from model_profiling.pipeline.counts import checked_counts

    return checked_counts(
        args.runs,
        args.launches,
        args.budget,
        args.threads,
        lambda name: f"--{name.replace('_', '-')}",
        getattr(args, "startup_launches", None),
        getattr(args, "page_cache", None) or "warm",
    )


def given(args: argparse.Namespace) -> bool:
    """Return whether any of the flags was used."""
    flags = (args.runs, args.launches, args.budget, args.threads, args.startup_launches, args.page_cache)
    return any(value is not None for value in flags)
