"""The command as one types it, for whoever wants the same again: whatever program or script started this process."""

import argparse
import os
import shlex


def command_line(args: argparse.Namespace) -> str:
    """Return `sme2-kit …` with the words that were given, and the variable that shapes a run if it is set."""
    from model_profiling.pipeline.schedule import BUDGET_VARIABLE

    budget = os.environ.get(BUDGET_VARIABLE)
    variable = f"{BUDGET_VARIABLE}={shlex.quote(budget)} " if budget else ""
    # Without words nobody typed anything: a program called the command.
    words: list[str] = getattr(args, "words", [])
    return variable + shlex.join(["sme2-kit", *words]) if words else ""
