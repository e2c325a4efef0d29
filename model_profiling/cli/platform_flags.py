"""Which platform a command means: this machine, the emulator, or another machine and how to treat it."""

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import warn
from model_profiling.cli.command_line import command_line
from model_profiling.platforms.choosing import checked
from model_profiling.platforms.platform_table import FLAGS, NAMES, Choice

if TYPE_CHECKING:
    from model_profiling.platforms.base import Platform


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platform", choices=NAMES, help="default: that of this machine")
    parser.add_argument(
        "--no-lock",
        action="store_true",
        help="measure even while others measure on this machine (default: wait for them)",
    )
    remote = parser.add_argument_group("another machine")
    for name, flag in FLAGS.items():
        remote.add_argument(f"--{name.replace('_', '-')}", **flag)


def choice_of(args: argparse.Namespace) -> Choice:
    """Return what the flags say, checked."""
    choice = Choice(**{part.name: getattr(args, part.name) for part in fields(Choice)})
    return checked(choice, lambda part: f"--{part.replace('_', '-')}")


def refuse(args: argparse.Namespace, whose: str) -> None:
    """Say that there is nothing to choose a platform for."""
    from model_profiling.base.errors import InputError

    if choice_of(args) != Choice():
        raise InputError(
            f"--platform and --no-lock are for {whose}", "What is measured already stays where it was: leave it out."
        )


@contextlib.contextmanager
def chosen_platform(args: argparse.Namespace, *programs: Path) -> Iterator["Platform"]:
    """Open the platform the flags name; when the command ends, however it ends, the machine is as it was.

    What is wrong with the programs to measure is said before what this machine lacks.
    """
    from model_profiling.pipeline.defaults import checked_program
    from model_profiling.platforms.choosing import chosen
    from model_profiling.platforms.locks import announce

    choice = choice_of(args)
    announce(command_line(args))
    for program in programs:
        checked_program(program)
    platform = chosen(choice, _prefixes(args), lambda trouble: warn(f"warning: {trouble}\n"))
    with contextlib.closing(platform):
        yield platform


def _prefixes(args: argparse.Namespace) -> list[tuple[str, ...]]:
    from model_profiling.pipeline.config import load_config

    config = getattr(args, "config", None)
    return [tuple(each.launch_prefix) for each in load_config(config).experiments] if config else []
