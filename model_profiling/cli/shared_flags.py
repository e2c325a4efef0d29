"""Arguments that many commands have, each under one name. Earlier spellings and the learning path's work unlisted."""

import argparse
from collections.abc import Iterable
from pathlib import Path

# `-o` is that of files. A file is FILE in the help, all else a folder.
_OUT = ("--outdir", "--output-root", "--output", "--output-dir")


def also_as(parser: argparse._ActionsContainer, action: argparse.Action, spellings: Iterable[str]) -> None:
    """Let other spellings mean this flag; neither the help nor completions show them."""
    for spelling in spellings:
        parser._option_string_actions.setdefault(spelling, action)


def add_out(
    parser: argparse._ActionsContainer, text: str, metavar: str = "DIR", earlier: tuple[str, ...] = _OUT
) -> None:
    """Add `--out`: the folder or file that a command writes."""
    names = ("--out", "-o") if metavar == "FILE" else ("--out",)
    also_as(parser, parser.add_argument(*names, type=Path, metavar=metavar, help=text), earlier)


def add_html(parser: argparse.ArgumentParser, what: str = "the report with its page (report.html)") -> None:
    """Add `--no-html`; `args.html` is None unless somebody said which. What was asked for must not fail silently."""
    parser.add_argument("--no-html", dest="html", action="store_false", default=None, help=f"do not write {what}")
    parser.add_argument("--html", dest="html", action="store_true", default=None, help=argparse.SUPPRESS)


def add_runs(parser: argparse.ArgumentParser, text: str, *flags: str, metavar: str = "RUN") -> None:
    """Add run directories (or what else `text` says) as plain arguments; `flags` are what named one before."""
    parser.add_argument("paths", nargs="*", type=Path, metavar=metavar, help=text)
    parser.add_argument(*flags, dest="flagged_paths", action="append", type=Path, default=[], help=argparse.SUPPRESS)


def given_paths(args: argparse.Namespace) -> list[Path]:
    """Return the arguments of `add_runs`, however they were given."""
    return [*args.flagged_paths, *args.paths]
