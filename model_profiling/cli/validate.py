"""`sme2-kit validate`: is a run directory complete and unharmed?"""

import argparse
import sys
from pathlib import Path

HELP = "check that a run directory is complete and unharmed"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="the run directory")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    import msgspec

    from model_profiling.analysis.validation import problems
    from model_profiling.run_directory import RunDirectory

    found = problems(RunDirectory(args.results))
    if args.json:
        sys.stdout.write(msgspec.json.encode({"valid": not found, "problems": found}).decode() + "\n")
    else:
        for problem in found:
            sys.stdout.write(f"problem: {problem}\n")
        sys.stdout.write(f"{args.results}: {f'{len(found)} problems' if found else 'valid'}\n")
    return 1 if found else 0
