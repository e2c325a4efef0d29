"""What a command answers: data for a program, text for a person."""

import argparse
from collections.abc import Callable

from model_profiling.base.printing import say_json


def answer(args: argparse.Namespace, data: object, show: Callable[[], object]) -> int:
    """Print the data if --json asks for it, else `show` it; the exit code of a command that has answered."""
    if args.json:
        say_json(data)
    else:
        show()
    return 0
