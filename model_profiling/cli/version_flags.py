"""The flag that says which ExecuTorch the runner is built against."""

import argparse


def prepare_parser(parser: argparse.ArgumentParser, several: str) -> None:
    """Add the flag; `several` says what becomes of more than one value."""
    parser.add_argument(
        "--executorch",
        action="append",
        default=[],
        metavar="VERSION|PATH[,...]",
        help="a release such as 1.5.0, whose wheel is fetched, or the install prefix of a build of your own (default: "
        f"the installed release); {several}",
    )


def choices(args: argparse.Namespace) -> list[str]:
    """Return what the user chose, each once."""
    from model_profiling.runner.sdk_choice import split_choices

    return split_choices(args.executorch, "--executorch")
