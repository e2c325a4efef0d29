"""Scaffold a model of your own: model, card, test and config, in a folder here."""

import argparse

from model_profiling.api.definition import takes
from model_profiling.base.printing import say, tell

TAKES = takes(more="name=NewModel!")
EXAMPLE = "sme2-kit new-model my_model"


def run(args: argparse.Namespace) -> None:
    from model_profiling.models.scaffold import scaffold

    made = scaffold(args.name)
    say("".join(f"{path}\n" for path in made.written))
    tell(
        f"It can be exported as it is; put your model into model.py, then:\n"
        f"  sme2-kit check {made.model}\n  sme2-kit export {made.model}\n  sme2-kit run --config {made.config}\n"
    )
