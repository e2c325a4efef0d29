"""The parser of one command, with which a test reads its words."""

import argparse

from model_profiling.cli.main import make_parser


def parser_of(command: str) -> argparse.ArgumentParser:
    (commands,) = [each for each in make_parser([command])._actions if isinstance(each, argparse._SubParsersAction)]
    found: argparse.ArgumentParser = commands.choices[command]
    return found
