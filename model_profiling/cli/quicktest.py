"""`sme2-kit quicktest`: does everything work here, end to end? Export, run, validate, report, on the smallest model."""

import argparse
from pathlib import Path

from model_profiling.base.dtypes import ARITHMETICS
from model_profiling.base.printing import flush, say, tell
from model_profiling.cli import label_flags
from model_profiling.cli.next_step import next_command

HELP = "smoke test: set-up check, build, export toy_cnn, run, validate, report"
# Exit codes above it are those of commands that a signal ended.
_SIGNALS = 128
_STAGES = ("set-up", "export", "pipeline", "validate", "report")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=ARITHMETICS, default="fp16", help="default: %(default)s")
    parser.add_argument(
        "--outdir", type=Path, metavar="DIR", help="default: out_toy_cnn, in a clone model_profiling/out_toy_cnn"
    )
    label_flags.prepare_parser(parser, keeping=False)


def run(args: argparse.Namespace) -> int:
    from model_profiling.api import Run
    from model_profiling.base.errors import RunError
    from model_profiling.base.installation import default_output, relative_to_here
    from model_profiling.cli.main import main
    from model_profiling.platforms.platform_table import local_name
    from model_profiling.report.terminal import run_text

    out = args.outdir or default_output("toy_cnn")
    artifacts, runs = out / "artifacts", out / "runs" / local_name()
    label = [word for value in args.label for word in ("--label", value)]
    commands = (
        ["doctor", "--essentials"],
        ["export", "--model", "toy_cnn", "--dtype", args.dtype, "--outdir", str(artifacts)],
        ["run", str(artifacts / f"toy_cnn_xnnpack_{args.dtype}.pte"), "--output-root", str(runs), "--quiet", *label],
        ["validate", "--results", str(runs)],
        ["report", str(runs), "--html"],
    )
    for stage, command in zip(_STAGES, commands, strict=True):
        code = main(command)
        if code > _SIGNALS:
            return code  # not a fault of the stage, and said already
        if code != 0:
            raise RunError(
                f"the quick test stopped at {stage}",
                f"Correct what `sme2-kit {' '.join(command)}` says, then run it again.",
            )
        say(f"{stage} ok\n")
        flush()
    run_text.show_run(Run.open(runs))
    tell(f"  report:    {relative_to_here(runs / 'report.html')}\n")
    tell(next_command("profile", "path/net.py:Net", "--input-shape", "1,3,224,224"))
    return 0
