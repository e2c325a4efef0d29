"""`sme2-kit profile --demo`: does everything work here, end to end? Export, run, validate and report a small model."""

import argparse

from model_profiling.base.dtypes import DEFAULT_DTYPE
from model_profiling.base.printing import flush, say, tell
from model_profiling.cli.next_step import as_stage, ending

# Exit codes above it are those of commands that a signal ended.
_SIGNALS = 128
_STAGES = ("set-up", "export", "pipeline", "validate", "report")


def run_demo(args: argparse.Namespace) -> int:
    """Run each stage as its own command, so that what fails is named."""
    from model_profiling.api import Run
    from model_profiling.base.errors import RunError
    from model_profiling.base.installation import default_output
    from model_profiling.cli.main import main
    from model_profiling.platforms.platform_table import local_name
    from model_profiling.report.terminal import run_text

    dtype = getattr(args, "dtype", DEFAULT_DTYPE)
    out = args.out or default_output("toy_cnn")
    artifacts, runs = out / "artifacts", out / "runs" / local_name()
    label = [word for value in args.label for word in ("--label", value)]
    commands = (
        ["doctor", "--essentials"],
        ["export", "--model", "toy_cnn", "--dtype", dtype, "--out", str(artifacts)],
        ["run", str(artifacts / f"toy_cnn_xnnpack_{dtype}.pte"), "--out", str(runs), "--quiet", "--no-html", *label],
        ["validate", str(runs)],
        ["report", str(runs), "--html"],
    )
    for stage, command in zip(_STAGES, commands, strict=True):
        with as_stage("profile --demo"):
            code = main(command)
        if code > _SIGNALS:
            return code  # not a fault of the stage, and said already
        if code != 0:
            raise RunError(
                f"the demo stopped at {stage}", f"Correct what `sme2-kit {' '.join(command)}` says, then run it again."
            )
        say(f"{stage} ok\n")
        flush()
    run_text.show_run(Run.open(runs))
    tell("  your own:  sme2-kit profile path/net.py:Net --input 1,3,224,224\n")
    tell(ending(runs / "report.html", ["tune", "toy_cnn", "--dtype", dtype]))
    return 0
