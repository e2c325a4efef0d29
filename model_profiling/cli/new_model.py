"""`sme2-kit new-model NAME`: a model, a card, a test and a config that work as they stand."""

import argparse

from model_profiling.base.printing import say, tell

HELP = "scaffold a model of your own: model, card, test and config, in a folder here"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="lower case, as a Python package: my_model")


def run(args: argparse.Namespace) -> int:
    from model_profiling.models.scaffold import scaffold

    made = scaffold(args.name)
    say("".join(f"{path}\n" for path in made.written))
    tell(
        f"It can be exported as it is; put your model into model.py, then:\n"
        f"  sme2-kit check {made.model}\n  sme2-kit export {made.model}\n  sme2-kit run --config {made.config}\n"
    )
    return 0
