"""`sme2-kit forecast RUN|MODEL`: what would SME2 change, on a machine that has none?"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer
from model_profiling.cli.next_step import ending, page_of
from model_profiling.cli.progress import progress

if TYPE_CHECKING:
    from model_profiling.api import Run

HELP = "predict what SME2 would change in a run, or in a model, which is measured first"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "measured", metavar="RUN|MODEL", help="a run measured without SME2; or a .pte or a model, which is measured now"
    )
    parser.add_argument(
        "emulated",
        type=Path,
        metavar="EMULATED",
        nargs="?",
        help="the same model's kernels as proof (sme2-kit kernels), instead of the table of known kernels",
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the machine with SME2: a name that `sme2-kit targets` lists (default: apple_m4), all of them, or a file "
        "that `sme2-kit roofs` wrote on one",
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
    from model_profiling.analysis.run.run_forecasts import forecast_targets
    from model_profiling.api import forecast, open_run
    from model_profiling.base.errors import InputError
    from model_profiling.report.terminal.forecast_text import show_forecasts, show_targets

    if args.target and args.speedup:
        raise InputError("--target and --speedup exclude each other", "Name the machine, or what to assume.")
    measured, proof = _measured(args.measured), open_run(args.emulated) if args.emulated is not None else None
    model = measured.summary.model
    if args.target == "all":
        every = forecast_targets(measured, proof)
        answer(args, every, lambda: show_targets(model, every))
    else:
        found = forecast(measured, proof, target=args.target, speedups=args.speedup)
        answer(args, list(found), lambda: show_forecasts(model, list(found)))
    if not args.json and not measured.path.is_file():
        tell(ending(page_of(measured.path), _next(measured, args)))
    return 0


def _next(measured: "Run", args: argparse.Namespace) -> list[object]:
    """Return the page with the forecast in it; first its proof, if there is none."""
    if args.emulated is None:
        program = measured.manifest.model.file()
        return ["kernels", program] if program is not None else []
    target = ["--target", args.target] if args.target and args.target != "all" else []
    return ["report", measured.path, "--forecast", args.emulated, *target, "--html"]


def _measured(what: str) -> "Run":
    """Return the run at a path; a program or a model is measured first, where `run` and `profile` put it."""
    from model_profiling.api import open_run, profile
    from model_profiling.api import run as run_program
    from model_profiling.models.lookup import model_name

    if Path(what).is_dir() or Path(what).suffix == ".etdump":
        return open_run(what)
    with progress() as report:
        if what.endswith(".pte"):
            from model_profiling.pipeline.defaults import output_root_of
            from model_profiling.platforms.local import LocalPlatform

            return run_program(what, out=output_root_of(Path(what), LocalPlatform().folder), on_progress=report)
        return profile(what, out=Path(f"out_{model_name(what)}"), on_progress=report)
