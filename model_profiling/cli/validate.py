"""Check that a run directory is complete and consistent, and that nothing in it is stale."""

import argparse

from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.base.printing import tell
from model_profiling.base.units import counted
from model_profiling.cli.answer import answer
from model_profiling.store.run_directory import RunDirectory
from model_profiling.store.runs import resolve
from model_profiling.store.transaction import interrupted

TAKES = takes(more="paths=ValidatedRun? json")
EXAMPLE = "sme2-kit validate out_toy_cnn/runs/linux"


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.run.validation import check_staleness, copy_problem, problems

    if not args.paths:
        raise InputError("no run directory", "For example: sme2-kit validate out_toy_cnn/runs/linux")
    given, *copies = args.paths
    directory = RunDirectory(resolve(given))
    found, notes = problems(directory), list[str]()
    if directory.manifest_path.is_file():
        derived = check_staleness(directory)
        found += [*derived.stale, *filter(None, (copy_problem(directory, path) for path in copies))]
        if derived.awaited:
            notes.append(f"the run was not analysed since it was measured: `sme2-kit analyze {given}`")
    notes += filter(None, [interrupted(directory.path)])
    lines = [*(f"problem: {problem}" for problem in found), *(f"note: {note}" for note in notes)]
    lines.append(f"{given}: {counted(len(found), 'problem') if found else 'valid'}\n")
    answer(args, {"valid": not found, "problems": found, "notes": notes}, lambda: tell("\n".join(lines)))
    return 1 if found else 0
