"""`sme2-kit validate`: is a run directory complete, consistent, and are its reports those of the run as it is?"""

import argparse

from model_profiling.base.printing import tell
from model_profiling.base.units import counted
from model_profiling.cli import shared_flags
from model_profiling.cli.answer import answer

HELP = "check that a run directory is complete and consistent, and that nothing in it is stale"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    text = "the run directory, or DIR@LABEL; then reports or pictures elsewhere that should be of this run"
    shared_flags.add_runs(parser, text, "--results", "--run-dir")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.run.staleness import Staleness, check_staleness, copy_problem
    from model_profiling.analysis.run.validation import problems
    from model_profiling.base.errors import InputError
    from model_profiling.store.run_directory import RunDirectory
    from model_profiling.store.runs import resolve
    from model_profiling.store.transaction import interrupted

    if not shared_flags.given_paths(args):
        raise InputError("no run directory", "For example: sme2-kit validate out_toy_cnn/runs/linux")
    given, *copies = shared_flags.given_paths(args)
    directory = RunDirectory(resolve(given))
    found, derived = problems(directory), Staleness()
    if directory.manifest_path.is_file():
        derived = check_staleness(directory)
        found += derived.stale
        found += [problem for problem in (copy_problem(directory, path) for path in copies) if problem]
    awaited = f"the run was not analysed since it was measured: `sme2-kit analyze {given}`"
    notes = [*([awaited] if derived.awaited else []), *filter(None, [interrupted(directory.path)])]
    lines = [*(f"problem: {problem}" for problem in found), *(f"note: {note}" for note in notes)]
    lines.append(f"{given}: {counted(len(found), 'problem') if found else 'valid'}")
    told = {"valid": not found, "problems": found, "notes": notes}
    answer(args, told, lambda: tell("\n".join(lines) + "\n"))
    return 1 if found else 0
