"""`sme2-kit new-model NAME`: a folder, a registration, a test and a config that work as they stand."""

import argparse

from model_profiling.saying import say

HELP = "scaffold a model of your own: folder, registration, card, test and config"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="lower case, as a Python package: my_model")


def run(args: argparse.Namespace) -> int:
    from model_profiling.models.scaffold import scaffold

    written = scaffold(args.name)
    say("".join(f"{path}\n" for path in written))
    config = next(path for path in written if path.suffix == ".json")
    say(
        f"It works as it stands; put your model into model.py, then:\n"
        f"  sme2-kit check {args.name}\n  sme2-kit export {args.name}\n  sme2-kit run --config {config}\n"
    )
    return 0
