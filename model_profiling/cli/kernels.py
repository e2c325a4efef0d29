"""`sme2-kit kernels MODEL.pte`: will this model use SME2, with which kernels, and which operators will not?"""

import argparse
from pathlib import Path

from model_profiling.cli import platform_flags
from model_profiling.cli.answer import answer
from model_profiling.cli.command_line import command_line
from model_profiling.cli.notes import note, tell_outdated
from model_profiling.cli.progress import progress

HELP = "show which SME2 kernels a model uses, operator by operator, without SME2 hardware"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.pte", help="the model")
    parser.add_argument(
        "--output-root", type=Path, metavar="DIR", help="default: out_<model>/runs/emulator, or <platform>_kernels"
    )
    parser.add_argument(
        "--level",
        action="append",
        choices=("neon", "sme1", "sme2"),
        help="only a CPU of this level; may be repeated (default: all, to compare their outputs)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print kernels.json: features, coverage and the kernels of each operator"
    )
    platform_flags.prepare_parser(parser)
    parser.set_defaults(platform="emulator")


def run(args: argparse.Namespace) -> int:
    from model_profiling.api.measuring import kernels_request, measure
    from model_profiling.report.kernel_view import kernels_data
    from model_profiling.report.terminal import run_text

    with platform_flags.chosen_platform(args, args.model) as platform, progress() as report:
        asked = kernels_request(args.model, platform, args.level, args.output_root, command_line(args))
        measured = measure(asked, platform, report, note)
    found = measured.run
    tell_outdated(found.save())
    found.check_outputs()
    answer(args, kernels_data(found), lambda: run_text.show_evidence(found, measured.remark))
    found.check()
    return 0
