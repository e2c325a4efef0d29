"""`sme2-kit forecast RUN EMULATED`: what would SME2 change, on a machine that has none?"""

import argparse
from pathlib import Path

HELP = "predict what SME2 would change: times of a measured run, kernels of an emulated one"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measured", type=Path, metavar="RUN", help="a run measured without SME2 (sme2-kit run)")
    parser.add_argument("emulated", type=Path, metavar="EMULATED", help="the same model's kernels (sme2-kit kernels)")
    parser.add_argument(
        "--speedup",
        action="append",
        type=float,
        metavar="N",
        help="assumed speedup of the operators that SME2 runs; may be repeated (default: 3, 8 and 15)",
    )
    parser.add_argument("--json", action="store_true", help="print the forecast as JSON")


def run(args: argparse.Namespace) -> int:
    from model_profiling.report.forecast import show_forecasts
    from model_profiling.saying import say_json
    from sme2_kit import forecast, open_run

    measured = open_run(args.measured)
    found = forecast(measured, args.emulated, speedups=args.speedup)
    if args.json:
        say_json(list(found))
    else:
        show_forecasts(measured.summary.model, list(found))
    return 0
