"""`sme2-kit forecast RUN EMULATED`: what would SME2 change, on a machine that has none?"""

import argparse
from pathlib import Path

from model_profiling.cli.answer import answer

HELP = "predict what SME2 would change: times of a measured run, kernels of an emulated one"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measured", type=Path, metavar="RUN", help="a run measured without SME2 (sme2-kit run)")
    parser.add_argument("emulated", type=Path, metavar="EMULATED", help="the same model's kernels (sme2-kit kernels)")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the machine with SME2: a name that `sme2-kit targets` lists (default: apple_m4), or a file that "
        "`sme2-kit roofs` wrote on one",
    )
    parser.add_argument(
        "--speedup",
        action="append",
        type=float,
        metavar="N",
        help="assume this speedup of all operators that SME2 runs, instead of a target; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the forecast as JSON")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import forecast, open_run
    from model_profiling.base.errors import InputError
    from model_profiling.report.terminal.forecast_text import show_forecasts

    measured = open_run(args.measured)
    if args.target and args.speedup:
        raise InputError("--target and --speedup exclude each other", "Name the machine, or what to assume.")
    found = forecast(measured, args.emulated, target=args.target, speedups=args.speedup)
    return answer(args, list(found), lambda: show_forecasts(measured.summary.model, list(found)))
