"""Print a completion script for your shell.

It is made from the parser itself, so that a new command or flag needs nothing here.
"""

import argparse
from pathlib import Path
from typing import Any

from model_profiling.api.definition import takes
from model_profiling.base.printing import say

TAKES = takes(more="shell!")
EPILOG = (
    'bash and zsh: put `eval "$(sme2-kit completions bash)"` (or zsh, after compinit) into ~/.bashrc '
    "(or ~/.zshrc). fish: `sme2-kit completions fish > ~/.config/fish/completions/sme2-kit.fish`."
)
EXAMPLE = "sme2-kit completions bash"
SHELLS = ("bash", "zsh", "fish")


def run(args: argparse.Namespace) -> None:
    import shtab

    from model_profiling.cli.main import make_parser

    parser = make_parser()
    # Some paths are strings to the parser, because a part of them is no path: RUN:EXPERIMENT, FILE.py:CLASS.
    of_files = dict.fromkeys(("FILE", "RUN", "SHAPE|FILE", "A", "B"), shtab.FILE)
    _mark(parser, {**of_files, "DIR": shtab.DIRECTORY, "MODEL": _models()}, shtab.FILE)
    say(shtab.complete(parser, shell=args.shell) + "\n")


def _mark(parser: argparse.ArgumentParser, kinds: dict[str, Any], of_paths: Any) -> None:
    """Say of each argument what completes it, in shtab's way: an attribute of the action."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _mark(below, kinds, of_paths)
            continue
        kind = kinds.get(str(action.metavar), of_paths if action.type is Path else None)
        if kind is not None:
            action.complete = kind  # type: ignore[attr-defined]


def _models() -> dict[str, Any]:
    """Return a model's name, or a file of the user's, in each shell's words."""
    from model_profiling.models import registered_models

    names = " ".join(registered_models())
    return {
        "bash": "_sme2_kit_model_or_file",
        "zsh": "_sme2_kit_model_or_file",
        "fish": f"(string split ' ' '{names}'; __fish_complete_path (commandline -ct))",
        "preamble": {
            "bash": f'_sme2_kit_model_or_file() {{ compgen -W "{names}" -- "$1"; compgen -f -- "$1"; }}',
            "zsh": f"_sme2_kit_model_or_file() {{ _alternative 'models:model:({names})' 'files:file:_files' }}",
        },
    }
