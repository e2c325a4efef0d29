"""`sme2-kit kernels MODEL.pte`: will this model use SME2, with which kernels, and which operators will not?"""

import argparse
from pathlib import Path

from model_profiling.cli.notes import tell_outdated
from model_profiling.cli.progress import progress
from model_profiling.cli.typed import typed

HELP = "show which SME2 kernels a model uses, operator by operator, without SME2 hardware"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.pte", help="the model")
    parser.add_argument("--output-root", type=Path, metavar="DIR", help="default: out_<model>/runs/emulator")
    parser.add_argument(
        "--json", action="store_true", help="print kernels.json: coverage, and the kernels of each operator"
    )


def run(args: argparse.Namespace) -> int:
    from model_profiling.analysis.output_checks import verify_kernels, verify_outputs
    from model_profiling.pipeline.defaults import default_config
    from model_profiling.pipeline.pipeline import Pipeline
    from model_profiling.platforms.emulator import EmulatorPlatform
    from model_profiling.report import terminal
    from model_profiling.report.kernel_view import kernels_data
    from model_profiling.saying import say_json
    from sme2_kit.run import Run

    platform = EmulatorPlatform()
    with progress() as report:
        config, remark = default_config(args.model, platform, args.output_root, ladder=True)
        directory = Pipeline(config, platform, report, command=typed(args)).run().directory
    found = Run.open(directory.path)
    tell_outdated(found.save())
    verify_outputs(found.summary)
    if args.json:
        say_json(kernels_data(found))
    else:
        terminal.show_evidence(found, remark)
    verify_kernels(found.summary)
    return 0
