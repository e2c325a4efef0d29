"""The flags that say what a run is called and what else is to be remembered of it."""

import argparse
from typing import Any


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME|KEY=VALUE",
        help="NAME: what this run is called, DIR@NAME for other commands (default: date and time); KEY=VALUE: what to "
        "find it by with `sme2-kit history`; may be repeated",
    )
    text = "do not keep the .pte with the run for later comparisons"
    parser.add_argument("--no-history", action="store_true", help=text)


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags say of a run, as a `RunRequest` takes it."""
    from model_profiling.store.labels import split_labels

    label, labels = split_labels(args.label)
    return {"label": label, "labels": labels, "keep_program": not args.no_history}
